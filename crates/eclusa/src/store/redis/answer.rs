//! Answers of functions, verb by verb.

use eclusa_core::{
    Admission, Admitted, Advanced, Cached, Cancelled, Denied, Dispatched, Ended, Enqueued, Fallback, Grant,
    JobId, Replayed, Settled, Span, Status, StoreError, Surplus, Swept,
};
use serde::Deserialize;
use serde_bytes::ByteBuf;

use super::view::LookWire;
use super::wire::{
    EndedWire, all_ended, arc, denial, job_id, lease_id, level, name, read, reason, status, time,
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
    /// Each packed.
    calls: Vec<ByteBuf>,
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
    let answer = |packed: &ByteBuf| {
        let call: OneAdmitted = read(packed)?;
        Ok(Admitted { admission: call.read()?, ended: std::mem::take(&mut ended), now })
    };
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
