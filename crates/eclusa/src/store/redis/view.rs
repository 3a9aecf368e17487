//! What functions show to those who only look.

use eclusa_core::gate::BucketSpec;
use eclusa_core::{
    DeadLetter, DeadLetterView, Hold, LaneView, Name, Place, Span, Spec, StoreError, TenantView, Time,
    Tokens, UpstreamView, Why,
};
use serde::Deserialize;
use serde_bytes::ByteBuf;

use super::wire::{
    LaneState, arc, failure, gates, job_id, level, name, read, read_all, reason, status, time,
};

#[derive(Deserialize)]
struct GatesWire {
    name: String,
    gates: ByteBuf,
    in_flight: u32,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct LookWire {
    phase: u8,
    how: Option<String>,
    expires: u64,
    reason: Option<String>,
    at: Option<String>,
    position: u64,
    eta: Option<u64>,
    waits: bool,
    gates: Vec<GatesWire>,
    slot_free_at: u64,
    now: u64,
}

impl LookWire {
    fn read(packed: &[u8]) -> Result<Option<Self>, StoreError> {
        let told: Self = read(packed)?;
        Ok(Some(told).filter(|told| told.phase > 0))
    }

    pub(super) fn place(&self) -> Place {
        Place {
            status: status(self.phase, self.how.as_deref()),
            position: self.position,
            eta: self.eta.map(time),
            expires_at: time(self.expires),
        }
    }
}

pub(super) fn why(packed: &[u8], spec: &Spec) -> Result<Option<Why>, StoreError> {
    let Some(told) = LookWire::read(packed)? else { return Ok(None) };
    let Place { status, position, eta, expires_at } = told.place();
    let (now, slot_free_at) = (time(told.now), time(told.slot_free_at));
    let view = |wire: &GatesWire| {
        let name = name(&wire.name)?;
        let gates = gates(&wire.gates, wire.in_flight)?;
        let rule = spec.upstream(&name).map(|upstream| &upstream.gates);
        let views = rule.map_or(Vec::new(), |rule| gates.view(rule, now, slot_free_at));
        Ok((name, views))
    };
    Ok(Some(Why {
        status,
        reason: told.reason.as_deref().map(reason).transpose()?,
        upstream: told.at.as_deref().map(name).transpose()?,
        position,
        eta,
        will_expire: told.waits && eta.is_some_and(|eta| eta > expires_at),
        gates: told.gates.iter().map(view).collect::<Result<_, StoreError>>()?,
    }))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UpstreamWire {
    gates: Option<ByteBuf>,
    in_flight: u32,
    slot_free_at: u64,
    now: u64,
}

fn upstream_view(
    name: &Name,
    packed: &[u8],
    in_flight: u32,
    spec: &Spec,
    (now, slot_free_at): (Time, Time),
) -> Result<UpstreamView, StoreError> {
    let rule = spec.upstream(name).map(|upstream| &upstream.gates);
    Ok(UpstreamView::of(name, rule, &gates(packed, in_flight)?, now, slot_free_at))
}

pub(super) fn upstream(packed: &[u8], name: &Name, spec: &Spec) -> Result<Option<UpstreamView>, StoreError> {
    let told: UpstreamWire = read(packed)?;
    let times = (time(told.now), time(told.slot_free_at));
    told.gates.map(|gates| upstream_view(name, &gates, told.in_flight, spec, times)).transpose()
}

#[derive(Deserialize)]
struct UpstreamsWire {
    upstreams: Vec<GatesWire>,
    slot_free_at: u64,
    now: u64,
}

pub(super) fn upstreams(packed: &[u8], spec: &Spec) -> Result<Vec<UpstreamView>, StoreError> {
    let told: UpstreamsWire = read(packed)?;
    let times = (time(told.now), time(told.slot_free_at));
    let view = |wire: &GatesWire| upstream_view(&name(&wire.name)?, &wire.gates, wire.in_flight, spec, times);
    told.upstreams.iter().map(view).collect()
}

#[derive(Deserialize)]
struct LanesWire {
    lanes: Vec<LaneWire>,
    slot_free_at: u64,
    now: u64,
}

#[derive(Deserialize)]
struct LaneWire {
    name: String,
    state: ByteBuf,
    gates: ByteBuf,
    in_flight: u32,
    oldest_letter: Option<u64>,
}

pub(super) fn lanes(packed: &[u8], spec: &Spec) -> Result<Vec<LaneView>, StoreError> {
    let told: LanesWire = read(packed)?;
    let (now, slot_free_at) = (time(told.now), time(told.slot_free_at));
    let view = |wire: &LaneWire| {
        let name = name(&wire.name)?;
        let state: LaneState = read(&wire.state)?;
        let gates = gates(&wire.gates, wire.in_flight)?;
        let rule = spec.lane(&name).map(|lane| &lane.gates);
        Ok(LaneView {
            name,
            paused: state.paused,
            queued: state.queued(),
            pending: state.pending,
            processing: state.processing,
            waiting_bytes: state.waiting_bytes,
            finished: state.finished,
            dead_letters: state.dead,
            oldest_dead_letter: wire.oldest_letter.map(time),
            totals: state.totals,
            gates: rule.map_or(Vec::new(), |rule| gates.view(rule, now, slot_free_at)),
        })
    };
    told.lanes.iter().map(view).collect()
}

#[derive(Deserialize)]
struct TenantsWire {
    tenants: Vec<TenantWire>,
    levels: Vec<TurnsWire>,
}

#[derive(Deserialize)]
struct TenantWire {
    name: String,
    arrival: u32,
    processed: u64,
    last_processed: Option<u64>,
    turns: Vec<i64>,
}

#[derive(Deserialize)]
struct TurnsWire {
    turn: i64,
    current: Option<String>,
    in_a_row: u32,
}

pub(super) fn tenants(packed: &[u8]) -> Result<Vec<(u32, TenantView)>, StoreError> {
    const NEVER_SERVED: i64 = 1 << 53;
    let told: TenantsWire = read(packed)?;
    let view = |tenant: TenantWire| {
        let served = tenant.turns.iter().zip(&told.levels).filter(|(last, _)| **last != NEVER_SERVED);
        let rounds = served.map(|(last, level)| level.turn - last).min();
        let own = told.levels.iter().filter(|level| level.current.as_ref() == Some(&tenant.name));
        let in_a_row = own.map(|level| level.in_a_row).max();
        let view = TenantView::of(
            tenant.name.as_str().into(),
            rounds,
            tenant.last_processed.map(time),
            tenant.processed,
            in_a_row.unwrap_or_default(),
        );
        (tenant.arrival, view)
    };
    Ok(told.tenants.into_iter().map(view).collect())
}

/// A dead letter, in the order in which `ending.lua` packs it.
#[derive(Deserialize)]
struct LetterRecord {
    key: Option<String>,
    tenant: String,
    level: u8,
    payload: ByteBuf,
    chain: String,
    holds: Option<ByteBuf>,
    attempts: u32,
    failure: ByteBuf,
    enqueued: u64,
    moved: u64,
    ttl: u64,
    replay: Option<ByteBuf>,
    _number: u64,
}

pub(super) fn letter(packed: &[u8]) -> Result<DeadLetter, StoreError> {
    let found: LetterRecord = read_all(13, packed)?;
    Ok(DeadLetter {
        key: found.key.map(Into::into),
        tenant: found.tenant.into(),
        level: level(found.level),
        payload: arc(found.payload),
        chain: found.chain.split(',').map(name).collect::<Result<_, _>>()?,
        holds: found.holds.map_or(Ok(Vec::new()), |packed| holds(&packed))?,
        failed_attempts: found.attempts,
        last_failure: failure(&found.failure)?,
        enqueued_at: time(found.enqueued),
        moved_at: time(found.moved),
        ttl: Span::from_millis(found.ttl),
        replay: found.replay.map(|job| job_id(&job)).transpose()?,
    })
}

/// Upstream, bucket, tokens, capacity, refill.
type HoldWire = (String, String, i64, i64, u64, u64);

fn holds(packed: &[u8]) -> Result<Vec<Hold>, StoreError> {
    let read_one = |(upstream, bucket, tokens, capacity, refill_micro, refill_ms): HoldWire| {
        let spec = BucketSpec::restore(Tokens::from_micro(capacity), (refill_micro, refill_ms));
        Ok(Hold::restore(name(&upstream)?, &bucket, spec, Tokens::from_micro(tokens)))
    };
    read::<Vec<HoldWire>>(packed)?.into_iter().map(read_one).collect()
}

#[derive(Deserialize)]
struct RegisteredWire {
    id: String,
    about: String,
}

pub(super) fn registered(packed: &[u8]) -> Result<Vec<(String, String)>, StoreError> {
    let found: Vec<RegisteredWire> = read(packed)?;
    Ok(found.into_iter().map(|one| (one.id, one.about)).collect())
}

#[derive(Deserialize)]
struct OneLetter {
    number: u64,
    job: ByteBuf,
    letter: ByteBuf,
}

pub(super) fn letters(packed: &[u8], lane: &Name) -> Result<Vec<(u64, DeadLetterView)>, StoreError> {
    let found: Vec<OneLetter> = read(packed)?;
    let view = |one: OneLetter| {
        let job = job_id(&one.job)?;
        Ok((one.number, DeadLetterView { job, lane: lane.clone(), letter: letter(&one.letter)? }))
    };
    found.into_iter().map(view).collect()
}
