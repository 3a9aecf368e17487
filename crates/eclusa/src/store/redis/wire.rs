//! What functions answer, in the words of the core.

use std::sync::Arc;

use eclusa_core::gate::{Gates, NotUntil, Reason};
use eclusa_core::{
    DropReason, End, Ended, Event, EventKind, Failure, FailureReason, Fallback, JobId, JobView, LeaseId,
    Level, Name, Payload, ServedBy, Status, StoreError, Time, Totals,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;

/// Later than anything that happens, as functions write it: the last whole number that doubles hold exactly.
const NEVER: u64 = 1 << 53;

pub(super) fn read<T: DeserializeOwned>(packed: &[u8]) -> Result<T, StoreError> {
    rmp_serde::from_slice(packed).map_err(|error| garbled(&error))
}

/// Reads values that were packed one after the other.
pub(super) fn read_all<T: DeserializeOwned>(values: u16, packed: &[u8]) -> Result<T, StoreError> {
    let [high, low] = values.to_be_bytes();
    read(&[&[0xdc, high, low], packed].concat())
}

fn garbled(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unavailable { cause: format!("its answer makes no sense: {error}").into() }
}

pub(super) fn ms(time: Time) -> i64 {
    i64::try_from(time.as_millis().min(NEVER)).unwrap_or(i64::MAX)
}

pub(super) fn time(ms: u64) -> Time {
    if ms >= NEVER { Time::NEVER } else { Time::from_millis(ms) }
}

pub(super) fn name(text: &str) -> Result<Name, StoreError> {
    Name::new(text).map_err(|error| garbled(&error))
}

pub(super) fn job_bytes(id: JobId) -> [u8; 16] {
    id.0.to_be_bytes()
}

pub(super) fn job_id(bytes: &[u8]) -> Result<JobId, StoreError> {
    let bytes = bytes.try_into().map_err(|error| garbled(&error))?;
    Ok(JobId(u128::from_be_bytes(bytes)))
}

/// The number first: leases that end together are taken up in the order in which they were given.
pub(super) fn lease_bytes(lease: LeaseId) -> Vec<u8> {
    let LeaseId { epoch, number, nonce } = lease;
    [number.to_be_bytes().as_slice(), &epoch.to_be_bytes(), &nonce.to_be_bytes()].concat()
}

pub(super) fn lease_id(bytes: &[u8]) -> Result<LeaseId, StoreError> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|error| garbled(&error))?;
    let all = u128::from_be_bytes(bytes);
    let part = |shift: u32| u32::try_from((all >> shift) & u128::from(u32::MAX)).unwrap_or_default();
    let number = u64::from(part(96)) << 32 | u64::from(part(64));
    Ok(LeaseId { number, epoch: part(32), nonce: part(0) })
}

pub(super) const fn level_number(level: Level) -> i64 {
    level as i64 + 1
}

pub(super) fn level(number: u8) -> Level {
    match number {
        1 => Level::High,
        2 => Level::Normal,
        _ => Level::Low,
    }
}

pub(super) fn reason(word: &str) -> Result<Reason, StoreError> {
    let found = Reason::ALL.into_iter().find(|reason| reason.as_str() == word);
    found.ok_or_else(|| garbled(&format!("there is no reason {word:?}")))
}

pub(super) fn denial(why: &str, at: u64) -> Result<NotUntil, StoreError> {
    Ok(NotUntil::new(reason(why)?, time(at)))
}

pub(super) fn gates(packed: &[u8], in_flight: u32) -> Result<Gates, StoreError> {
    Ok(read::<Gates>(packed)?.occupied(in_flight))
}

/// A failure as functions keep it: reason, code, when, where.
pub(super) fn failure(packed: &[u8]) -> Result<Failure, StoreError> {
    let (reason, code, at, upstream): (String, Option<String>, u64, Option<String>) = read_all(4, packed)?;
    Ok(Failure {
        reason: FailureReason::new(&reason).map_err(|error| garbled(&error))?,
        code: code.map(Into::into),
        at: time(at),
        upstream: upstream.as_deref().map(name).transpose()?,
    })
}

#[derive(Debug, Deserialize)]
pub(super) struct EndedWire {
    job: ByteBuf,
    lane: String,
    tenant: String,
    level: u8,
    attempts: u32,
    created: u64,
    how: String,
    failure: Option<ByteBuf>,
    forgotten: Option<ForgottenWire>,
}

/// A job that is no longer there.
#[derive(Debug, Deserialize)]
struct ForgottenWire {
    record: ByteBuf,
    payload: Option<ByteBuf>,
    result: Option<ByteBuf>,
}

impl ForgottenWire {
    fn read(self, id: JobId) -> Result<Box<JobView>, StoreError> {
        let record = JobRecord::read(&self.record)?;
        record.view(id, self.payload.map(arc), self.result.map(arc)).map(Box::new)
    }
}

/// A job as it ended, when nothing of it was kept.
pub(super) fn forgotten(packed: &[u8], job: JobId) -> Result<JobView, StoreError> {
    read::<ForgottenWire>(packed)?.read(job).map(|view| *view)
}

impl EndedWire {
    pub(super) fn read(self) -> Result<Ended, StoreError> {
        let end = match (self.how.as_str(), &self.failure) {
            ("failed" | "dead", Some(packed)) => {
                End::Failed { failure: failure(packed)?, dead_letter: self.how == "dead" }
            }
            (word, _) => end_of(word)?,
        };
        let job = job_id(&self.job)?;
        Ok(Ended {
            job,
            lane: name(&self.lane)?,
            tenant: self.tenant.into(),
            level: level(self.level),
            attempts: self.attempts,
            created_at: time(self.created),
            end,
            forgotten: self.forgotten.map(|gone| gone.read(job)).transpose()?,
        })
    }
}

pub(super) fn all_ended(ended: Vec<EndedWire>) -> Result<Vec<Ended>, StoreError> {
    ended.into_iter().map(EndedWire::read).collect()
}

fn end_of(word: &str) -> Result<End, StoreError> {
    Ok(match word {
        "completed" => End::Completed,
        "cancelled" => End::Cancelled,
        word => match (served(word), dropped(word)) {
            (Some(by), _) => End::Served(by),
            (_, Some(reason)) => End::Dropped(reason),
            _ => return Err(garbled(&format!("no job ends as {word:?}"))),
        },
    })
}

fn served(word: &str) -> Option<ServedBy> {
    let stale = [Fallback::CircuitOpen, Fallback::Timeout, Fallback::Error];
    match word {
        "cache" => Some(ServedBy::Cache),
        "coalesced" => Some(ServedBy::Coalesced),
        word => stale.into_iter().find(|why| why.as_str() == word).map(ServedBy::Stale),
    }
}

fn dropped(word: &str) -> Option<DropReason> {
    let all = [DropReason::TtlExpired, DropReason::Preempted, DropReason::QueueFull];
    all.into_iter().find(|reason| reason.as_str() == word)
}

/// The status of a job in this phase that ended so, if it did.
pub(super) fn status(phase: u8, how: Option<&str>) -> Status {
    match (phase, how) {
        (1, _) => Status::Pending,
        (2 | 3, _) => Status::Queued,
        (4, _) => Status::Processing,
        (_, Some("failed" | "dead")) => Status::Failed,
        (_, Some("cancelled")) => Status::Cancelled,
        (_, Some(word)) if dropped(word).is_some() => Status::Dropped,
        _ => Status::Completed,
    }
}

/// A job's record, in the order in which `jobs.lua` packs it.
#[derive(Debug, Deserialize)]
pub(super) struct JobRecord {
    lane: String,
    tenant: String,
    level: u8,
    _seq: u64,
    created: u64,
    expires: Option<u64>,
    _chain: u32,
    bytes: u64,
    phase: u8,
    at: Option<u64>,
    lease: Option<ByteBuf>,
    _tried: i64,
    attempts: u32,
    _lost: u8,
    upstream: Option<String>,
    _odd: Option<bool>,
    _shared: Option<bool>,
    payload: Option<ByteBuf>,
    key: Option<String>,
    cache_key: Option<String>,
    _holds: Option<ByteBuf>,
    _replay_of: Option<ByteBuf>,
    failure: Option<ByteBuf>,
    events: Option<u16>,
    timeline: Option<ByteBuf>,
    how: Option<String>,
    answered: Option<bool>,
}

impl JobRecord {
    const VALUES: u16 = 27;

    /// Nothing stands at the end of a record: what is missing there is nothing.
    pub(super) fn read(packed: &[u8]) -> Result<Self, StoreError> {
        const NIL: u8 = 0xc0;
        read_all(Self::VALUES, &[packed, &[NIL; Self::VALUES as usize]].concat())
    }

    pub(super) fn lane(&self) -> &str {
        &self.lane
    }

    pub(super) fn tenant(&self) -> &str {
        &self.tenant
    }

    pub(super) fn status(&self) -> Status {
        status(self.phase, self.how.as_deref())
    }

    /// Whether what was to be sent is kept beside it.
    pub(super) fn payload_beside(&self) -> bool {
        self.payload.is_none() && self.bytes > 0
    }

    pub(super) fn answered(&self) -> bool {
        self.answered == Some(true)
    }

    /// The job as shown, with what is kept beside its record.
    pub(super) fn view(
        self,
        id: JobId,
        beside: Option<Payload>,
        result: Option<Payload>,
    ) -> Result<JobView, StoreError> {
        let status = self.status();
        let payload = self.payload.as_ref().map(|payload| Payload::from(payload.as_slice()));
        Ok(JobView {
            id,
            lane: name(&self.lane)?,
            timeline: self.history(status)?,
            tenant: self.tenant.into(),
            level: level(self.level),
            key: self.key.map(Into::into),
            cache_key: self.cache_key.map(Into::into),
            status,
            served: self.how.as_deref().and_then(served),
            dropped: self.how.as_deref().and_then(dropped),
            created_at: time(self.created),
            expires_at: self.expires.map_or(Time::NEVER, time),
            due_at: self.at.filter(|_| status == Status::Pending).map(time),
            attempts: self.attempts,
            upstream: self.upstream.as_deref().map(name).transpose()?,
            lease: self.lease.map(|lease| lease_id(&lease)).transpose()?,
            last_failure: self.failure.map(|packed| failure(&packed)).transpose()?,
            payload: payload.or(beside).unwrap_or_default(),
            result,
        })
    }

    fn history(&self, status: Status) -> Result<Vec<Event<Name>>, StoreError> {
        let mut history = vec![Event { at: time(self.created), kind: EventKind::Accepted }];
        if let (Some(packed), Some(events)) = (&self.timeline, self.events) {
            let words: Vec<Word> = read_all(events * 3, packed)?;
            for event in words.chunks_exact(3) {
                let [Word::Number(at), Word::Number(kind), detail] = event else {
                    return Err(garbled(&"a history of numbers and names was expected"));
                };
                history.push(Event { at: time(*at), kind: event_kind(*kind, detail)? });
            }
        }
        if let (5, Some(at)) = (self.phase, self.at) {
            history.push(Event { at: time(at), kind: EventKind::Ended(status) });
        }
        Ok(history)
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Word {
    Number(u64),
    Text(String),
    Nothing(()),
}

fn event_kind(kind: u64, detail: &Word) -> Result<EventKind<Name>, StoreError> {
    let text = || if let Word::Text(text) = detail { text.as_str() } else { "" };
    Ok(match (kind, detail) {
        (1, _) => EventKind::Started(name(text())?),
        (2, _) => EventKind::Failed(name(text())?),
        (3, Word::Number(at)) => EventKind::RetryAt(time(*at)),
        (4, _) => EventKind::WaitsForRest,
        (5, _) => EventKind::TakenUp,
        (6, _) => EventKind::Released,
        (7, _) => EventKind::Awaiting(name(text())?),
        (8, _) => EventKind::Served(served(text()).ok_or_else(|| garbled(&"served by whom?"))?),
        _ => return Err(garbled(&format!("there is no event {kind}"))),
    })
}

/// What is kept of a lane, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(super) struct LaneState {
    pub(super) paused: bool,
    pub(super) levels: Vec<LevelState>,
    pub(super) waiting_bytes: u64,
    pub(super) pending: u64,
    pub(super) processing: u64,
    pub(super) finished: u64,
    pub(super) dead: u64,
    pub(super) totals: Totals,
}

#[derive(Debug, Deserialize)]
pub(super) struct LevelState {
    pub(super) queued: u64,
    pub(super) aside: u64,
}

impl LaneState {
    pub(super) fn queued(&self) -> [u64; 3] {
        [0, 1, 2].map(|level: usize| self.levels.get(level).map_or(0, |level| level.queued + level.aside))
    }
}

pub(super) fn arc(bytes: ByteBuf) -> Arc<[u8]> {
    bytes.into_vec().into()
}
