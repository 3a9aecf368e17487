//! Answers of scripts, verb by verb.

use eclusa_core::gate::BucketSpec;
use eclusa_core::{
    Admission, Admitted, Advanced, Cached, Cancelled, DeadLetter, DeadLetterView, Denied, Dispatched, Ended,
    Enqueued, Fallback, Grant, Hold, JobId, LaneView, Name, Place, Replayed, Settled, Span, Spec, Status,
    StoreError, Surplus, Swept, TenantView, Time, Tokens, UpstreamView, Why,
};
use serde::Deserialize;
use serde_bytes::ByteBuf;

use super::wire::{
    EndedWire, LaneState, all_ended, arc, denial, failure, gates, job_id, lease_id, level, name, read,
    read_all, reason, status, time,
};

fn unexpected(word: &str) -> StoreError {
    StoreError::Unavailable { cause: format!("its answer makes no sense: {word:?}").into() }
}

#[derive(Deserialize)]
struct EnqueuedWire {
    jobs: Vec<OneEnqueued>,
    ended: Vec<EndedWire>,
}

#[derive(Deserialize)]
struct OneEnqueued {
    how: String,
    told: usize,
    job: Option<ByteBuf>,
    place: Option<LookWire>,
    answer: Option<ByteBuf>,
    stale: Option<bool>,
    left: Option<u64>,
    overdue: Option<u64>,
}

impl OneEnqueued {
    fn read(self) -> Result<Enqueued, StoreError> {
        if let Some(place) = self.place {
            return Ok(Enqueued::Accepted(place.place()));
        }
        Ok(match (self.how.as_str(), self.job) {
            ("queue_full", _) => Enqueued::QueueFull,
            ("existing", Some(job)) => Enqueued::Existing(job_id(&job)?),
            ("conflict", Some(job)) => Enqueued::Conflict(job_id(&job)?),
            ("cached", _) => Enqueued::Cached(Cached {
                answer: arc(self.answer.unwrap_or_default()),
                stale: self.stale.unwrap_or_default().then_some(Fallback::CircuitOpen),
                left: Span::from_millis(self.left.unwrap_or_default()),
                overdue: Span::from_millis(self.overdue.unwrap_or_default()),
            }),
            (word, _) => return Err(unexpected(word)),
        })
    }
}

/// Ends in order, given to those on whose behalf they happened.
struct Ends {
    left: std::vec::IntoIter<EndedWire>,
    given: usize,
}

impl Ends {
    fn new(ended: Vec<EndedWire>) -> Self {
        Self { left: ended.into_iter(), given: 0 }
    }

    /// What ended since the last one, when so many had ended in all.
    fn until(&mut self, told: usize) -> Result<Vec<Ended>, StoreError> {
        let own = self.left.by_ref().take(told.saturating_sub(self.given)).collect();
        self.given = told;
        all_ended(own)
    }
}

pub(super) fn enqueued(packed: &[u8]) -> Result<Vec<(Enqueued, Vec<Ended>)>, StoreError> {
    let EnqueuedWire { jobs, ended } = read(packed)?;
    let mut ends = Ends::new(ended);
    let answer = |job: OneEnqueued| {
        let ended = ends.until(job.told)?;
        Ok((job.read()?, ended))
    };
    jobs.into_iter().map(answer).collect()
}

pub(super) fn replayed(packed: &[u8], id: JobId) -> Result<Replayed, StoreError> {
    let EnqueuedWire { jobs, ended } = read(packed)?;
    let Some(told) = jobs.into_iter().next() else { return Err(unexpected("nothing")) };
    Ok(match (told.how.as_str(), told.job) {
        ("accepted", _) => Replayed::As(id, all_ended(ended)?),
        ("existing", Some(job)) => Replayed::As(job_id(&job)?, Vec::new()),
        ("taken", _) => Replayed::IdTaken,
        ("queue_full", _) => Replayed::QueueFull,
        ("unknown", _) => Replayed::Unknown,
        (word, _) => return Err(unexpected(word)),
    })
}

#[derive(Deserialize)]
struct DispatchedWire {
    grants: Vec<GrantWire>,
    ended: Vec<EndedWire>,
    taken_up: Vec<ByteBuf>,
    denied: Option<DeniedWire>,
    now: u64,
    next: u64,
}

#[derive(Deserialize)]
struct DeniedWire {
    upstream: Option<String>,
    reason: String,
}

#[derive(Deserialize)]
struct GrantWire {
    lease: ByteBuf,
    lease_expires: u64,
    job: ByteBuf,
    tenant: String,
    level: u8,
    payload: ByteBuf,
    upstream: String,
    attempt: u32,
    expires: u64,
}

impl GrantWire {
    fn read(self) -> Result<Grant, StoreError> {
        Ok(Grant {
            lease: lease_id(&self.lease)?,
            lease_expires: time(self.lease_expires),
            job: job_id(&self.job)?,
            tenant: self.tenant.into(),
            level: level(self.level),
            payload: arc(self.payload),
            upstream: name(&self.upstream)?,
            attempt: self.attempt,
            expires_at: time(self.expires),
        })
    }
}

fn job_ids(ids: &[ByteBuf]) -> Result<Vec<JobId>, StoreError> {
    ids.iter().map(|id| job_id(id)).collect()
}

pub(super) fn dispatched(packed: &[u8]) -> Result<Dispatched, StoreError> {
    let told: DispatchedWire = read(packed)?;
    let denied = told.denied.map(|denied| {
        let upstream = denied.upstream.as_deref().map(name).transpose()?;
        Ok(Denied { upstream, reason: reason(&denied.reason)? })
    });
    Ok(Dispatched {
        grants: told.grants.into_iter().map(GrantWire::read).collect::<Result<_, _>>()?,
        ended: all_ended(told.ended)?,
        taken_up: job_ids(&told.taken_up)?,
        denied: denied.transpose()?,
        now: time(told.now),
        next: time(told.next),
    })
}

#[derive(Deserialize)]
struct AdvancedWire {
    how: String,
    upstream: Option<String>,
    reason: Option<String>,
    at: Option<u64>,
}

pub(super) fn advanced(packed: &[u8]) -> Result<Advanced, StoreError> {
    let told: AdvancedWire = read(packed)?;
    Ok(match told.how.as_str() {
        "to" => Advanced::To(name(&told.upstream.unwrap_or_default())?),
        "waits" => Advanced::Waits(denial(&told.reason.unwrap_or_default(), told.at.unwrap_or_default())?),
        "exhausted" => Advanced::Exhausted,
        "stale" => Advanced::Stale,
        word => return Err(unexpected(word)),
    })
}

#[derive(Deserialize)]
struct SettledWire {
    leases: Vec<OneSettled>,
    ended: Vec<EndedWire>,
}

#[derive(Deserialize)]
struct OneSettled {
    how: String,
    told: usize,
    at: Option<u64>,
    lease: Option<ByteBuf>,
}

impl OneSettled {
    fn read(&self) -> Result<Settled, StoreError> {
        Ok(match (self.how.as_str(), self.at, &self.lease) {
            ("completed", ..) => Settled::Ended(Status::Completed),
            ("failed", ..) => Settled::Ended(Status::Failed),
            ("retry_at", Some(at), _) => Settled::RetryAt(time(at)),
            ("requeued", ..) => Settled::Requeued,
            ("awaiting", _, Some(lease)) => Settled::Awaiting(lease_id(lease)?),
            ("released", ..) => Settled::Released,
            ("stale", ..) => Settled::Stale,
            (word, ..) => return Err(unexpected(word)),
        })
    }
}

pub(super) fn settled(packed: &[u8]) -> Result<Vec<(Settled, Vec<Ended>)>, StoreError> {
    let SettledWire { leases, ended } = read(packed)?;
    let mut ends = Ends::new(ended);
    leases.iter().map(|lease| Ok((lease.read()?, ends.until(lease.told)?))).collect()
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CancelledWire {
    ended: Option<EndedWire>,
    already: Option<String>,
}

pub(super) fn cancelled(packed: &[u8]) -> Result<Cancelled, StoreError> {
    let told: CancelledWire = read(packed)?;
    Ok(match (told.ended, told.already) {
        (Some(ended), _) => Cancelled::Yes(Box::new(ended.read()?)),
        (_, Some(how)) => Cancelled::AlreadyEnded(status(0, Some(&how))),
        _ => Cancelled::Unknown,
    })
}

#[derive(Deserialize)]
struct AdmittedWire {
    calls: Vec<OneAdmitted>,
    ended: Vec<EndedWire>,
    now: u64,
}

#[derive(Deserialize)]
struct OneAdmitted {
    lease: Option<ByteBuf>,
    upstream: Option<String>,
    expires: Option<u64>,
    reason: Option<String>,
    at: Option<u64>,
}

impl OneAdmitted {
    fn read(&self) -> Result<Admission, StoreError> {
        let upstream = self.upstream.as_deref().map(name).transpose()?;
        Ok(match (&self.lease, upstream) {
            (Some(lease), Some(upstream)) => Admission::Granted {
                lease: lease_id(lease)?,
                upstream,
                lease_expires: time(self.expires.unwrap_or_default()),
            },
            (_, upstream) => {
                let why = self.reason.as_deref().unwrap_or_default();
                Admission::Denied { upstream, denial: denial(why, self.at.unwrap_or_default())? }
            }
        })
    }
}

/// Whoever asked first is told what ended: that happened before anybody was admitted.
pub(super) fn admitted(packed: &[u8]) -> Result<Vec<Admitted>, StoreError> {
    let told: AdmittedWire = read(packed)?;
    let mut ended = all_ended(told.ended)?;
    let now = time(told.now);
    let answer =
        |call: &OneAdmitted| Ok(Admitted { admission: call.read()?, ended: std::mem::take(&mut ended), now });
    told.calls.iter().map(answer).collect()
}

#[derive(Deserialize)]
struct SweptWire {
    ended: Vec<EndedWire>,
    taken_up: Vec<ByteBuf>,
    dead_letters: Vec<GoneLetter>,
    now: u64,
    next: u64,
}

#[derive(Deserialize)]
struct GoneLetter {
    lane: String,
    job: ByteBuf,
    surplus: String,
}

pub(super) fn swept(packed: &[u8]) -> Result<Swept, StoreError> {
    let told: SweptWire = read(packed)?;
    let gone = |letter: GoneLetter| {
        let surplus = if letter.surplus == "expired" { Surplus::Expired } else { Surplus::OverCap };
        Ok((name(&letter.lane)?, job_id(&letter.job)?, surplus))
    };
    Ok(Swept {
        ended: all_ended(told.ended)?,
        taken_up: job_ids(&told.taken_up)?,
        dead_letters: told.dead_letters.into_iter().map(gone).collect::<Result<_, StoreError>>()?,
        now: time(told.now),
        next: time(told.next),
    })
}

#[derive(Deserialize)]
struct GatesWire {
    name: String,
    gates: ByteBuf,
    in_flight: u32,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LookWire {
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

    fn place(&self) -> Place {
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
