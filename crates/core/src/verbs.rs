//! What is asked of a store and what it answers.

mod awaiting;
mod letters;
mod policy;
mod replays;

use std::sync::Arc;

use crate::dead_letter::TrimReason;
use crate::ended::{Ended, Fallback};
use crate::error::SpecError;
use crate::gate::{CallResult, GateView, NotUntil, Quota, Reason};
use crate::ids::{JobId, LeaseId, Name};
use crate::job::{CallFailure, Hold, Level, NewJob, Payload, Status};
use crate::policy::Correlation;
use crate::time::{Span, Time};
use crate::tokens::Tokens;
use crate::views::{JobCursor, JobQuery, Place};

pub use awaiting::{CompleteAnswer, Completed, Completion, DuePoll, Poll, Polling, Polls};
pub use letters::{
    CountLetters, DiscardedLetters, LetterBy, LetterCounts, LetterCursor, LetterFilter, LetterPage,
    LetterQuery,
};
pub(crate) use letters::{NO_CODE, fits_code};
pub use policy::{Corrected, Correction, Credit, Credited};
pub use replays::{BulkAnswer, BulkAsk, BulkStatus, BulkView, Replay, Replayed, ReplayedLetter};

/// The most that one dispatch gives and one sweep cleans up of each kind, so that every step is short.
pub const MAX_BATCH: usize = 100;

/// Answers to a batch of new jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnqueueAnswer {
    /// One for each job, in order.
    pub jobs: Vec<Enqueued>,
    /// Jobs that were evicted or refused, in order.
    pub ended: Vec<Ended>,
}

/// What became of a new job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// It waits, here.
    Accepted(Place),
    /// It is known already: by its id, or by its key and the same payload.
    Existing(JobId),
    /// No job was made: the answer is there already.
    Cached(Cached),
    /// Its key was used with another payload, by this job.
    Conflict(JobId),
    /// The lane is full.
    QueueFull,
    /// No such lane.
    UnknownLane,
    /// Something about it cannot be.
    Invalid(SpecError),
    /// It would start only then, which is after it expires.
    NotInTime {
        /// When it would start.
        eta: Time,
        /// How much too late that is: after so long the same job might be in time.
        late: Span,
    },
}

impl Enqueued {
    /// Whether there is a new job.
    pub const fn is_accepted(&self) -> bool {
        matches!(self, Enqueued::Accepted(_))
    }

    /// Whether the lane refused it: there is no job under its id or key, and no cached answer.
    pub const fn is_refused(&self) -> bool {
        match self {
            Enqueued::Accepted(_) | Enqueued::Existing(_) | Enqueued::Conflict(_) | Enqueued::Cached(_) => {
                false
            }
            Enqueued::QueueFull
            | Enqueued::UnknownLane
            | Enqueued::Invalid(_)
            | Enqueued::NotInTime { .. } => true,
        }
    }
}

/// An answer that was there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// What the upstream answered to an equal request.
    pub answer: Payload,
    /// Why an old answer is given, if it is one.
    pub stale: Option<Fallback>,
    /// How long it stays fresh.
    pub fresh_for: Span,
    /// How long it has been stale.
    pub stale_for: Span,
}

/// Asks for jobs to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// From which lane.
    pub lane: Name,
    /// How many at the most; no more than [`MAX_BATCH`] are given.
    pub max: usize,
    /// How long each lease lasts.
    pub lease: Span,
    /// Of this ask alone: asked again after the store was restored, it gets what it was given before and is still out.
    pub nonce: u64,
    /// How long the store may hold the question until something can start; zero answers at once. The engine always
    /// answers at once: it is the store that asks it again.
    pub wait: Span,
    /// What held the lane back when this caller last heard: a change of it is an answer too.
    pub denied: Option<Denied>,
}

/// Jobs to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatched {
    /// Each to be called and settled.
    pub grants: Vec<Grant>,
    /// Jobs found to be too old, lost for good with their worker, or answered without a call, in order.
    pub ended: Vec<Ended>,
    /// Jobs of any lane whose worker vanished, now back in their lines.
    pub taken_up: Vec<JobId>,
    /// What held back the most urgent job that could not start, if a gate did.
    pub denied: Option<Denied>,
    /// What time it was in the store.
    pub now: Time,
    /// When to ask again if nothing else happens before.
    pub next: Time,
    /// How long the store held the question: leases began that much after it was asked, at the earliest.
    pub held: Span,
}

/// A gate that said no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The upstream it belongs to; `None` if it is the lane's own.
    pub upstream: Option<Name>,
    /// Why.
    pub reason: Reason,
}

/// The right to run one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The fence: every later word about the job needs it.
    pub lease: LeaseId,
    /// When it ends unless extended.
    pub lease_expires: Time,
    /// Which job.
    pub job: JobId,
    /// Whose.
    pub tenant: Arc<str>,
    /// Its priority.
    pub level: Level,
    /// What to send.
    pub payload: Payload,
    /// Where to.
    pub upstream: Name,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// After when it must not be started.
    pub expires_at: Time,
}

/// What a call told, for the gates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub result: CallResult,
    /// What the upstream answered; `None` if it did not, or nobody knows.
    pub status: Option<u16>,
    /// What it says was used. With the status this is what a policy charges by.
    pub usage: Usage,
    /// The upstream's word to stay away.
    pub retry_after: Option<RetryAfter>,
    /// How long the call took until its answer began, where that was measured.
    pub took: Option<Span>,
}

impl From<CallResult> for Report {
    fn from(result: CallResult) -> Self {
        Self { result, status: None, usage: Usage::Unknown, retry_after: None, took: None }
    }
}

/// What a call used, by the upstream's own count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Usage {
    /// The answer did not say, or nobody looked.
    #[default]
    Unknown,
    /// So much, whatever a policy counts.
    Amount(Tokens),
    /// So much by each place of the answer that says so (`body:/usage/total_tokens`).
    BySource(Vec<(Arc<str>, Tokens)>),
}

/// A `Retry-After` of the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryAfter {
    /// How long nothing may start, from when the store hears of it.
    pub wait: Span,
    /// Only this scoped bucket, or the whole upstream.
    pub bucket: Option<Arc<str>>,
}

/// The end of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Which.
    pub lease: LeaseId,
    /// What the call told.
    pub report: Report,
    /// What becomes of the job; nothing for a lease without one.
    pub outcome: Outcome,
    /// What the upstream answered; kept with the job if this ends it, however it ends.
    pub answer: Option<Payload>,
    /// What is left to send after a call that did a part; it replaces the job's payload.
    pub unsent: Option<Payload>,
}

/// What becomes of a job after its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// It succeeded, with an answer that no equal request may be given.
    DoneUncached,
    /// It is tried again later, or ends with this failure if that is too late for it.
    Retry {
        /// How long to wait, from when the store hears of it.
        after: Span,
        /// Why this attempt failed.
        failure: CallFailure,
    },
    /// It failed for good and becomes a dead letter.
    Dead(CallFailure),
    /// It failed for good and is only remembered like any finished job.
    Failed(CallFailure),
    /// It was not sent and goes back to the front of its line.
    Release,
    /// The upstream works on it and will tell.
    Awaiting {
        /// Within this time, from when the store hears of it; else it failed.
        timeout: Span,
        /// What the upstream calls it.
        external: Option<Arc<str>>,
        /// Whether the job goes on along its chain if the upstream fails it, before the attempt counts as failed.
        next: bool,
        /// When the upstream is asked if it does not tell.
        poll: Option<Polling>,
    },
}

impl Outcome {
    /// The upstream works on it and will tell within `timeout`; nothing more is known, and a failure ends the attempt.
    pub const fn awaiting(timeout: Span) -> Self {
        Outcome::Awaiting { timeout, external: None, next: false, poll: None }
    }
}

/// Answers to a batch of settlements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettleAnswer {
    /// One for each settlement, in order.
    pub leases: Vec<Settled>,
    /// Jobs that ended by it, in order. A settlement that is repeated lists the end of its own job again.
    pub ended: Vec<Ended>,
}

/// What a settlement did. Repeated while its job is remembered and was settled under no other lease since, it answers the
/// same and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The job ended so.
    Ended(Status),
    /// The job waits for its next attempt.
    RetryAt(Time),
    /// The job is back in its line.
    Requeued,
    /// The upstream works on it; its end is settled under this lease.
    Awaiting(LeaseId),
    /// A lease without a job was given back.
    Released,
    /// The lease was not known, or no longer: nothing was changed.
    Stale,
}

/// Asks to go on with the next upstream of the chain after a failure there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The lease it runs under.
    pub lease: LeaseId,
    /// The upstream that failed; a repeated call is known by it.
    pub upstream: Name,
    /// What the failed call told.
    pub report: Report,
    /// Why it failed.
    pub failure: CallFailure,
    /// What is left to send after a call that did a part; it replaces the job's payload.
    pub unsent: Option<Payload>,
}

/// How a job goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advanced {
    /// Call this upstream, under the same lease.
    To(Name),
    /// The others are busy: the job waits for them and the lease is over.
    Waits(NotUntil),
    /// All were tried: the attempt failed; settle the lease.
    Exhausted,
    /// The lease was not known, or no longer: nothing was changed.
    Stale,
}

/// Asks to make a call without a job: now or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admit {
    /// Under the gates of this lane too.
    pub lane: Option<Name>,
    /// Whose limits in that lane it falls under, if anybody's.
    pub tenant: Option<Arc<str>>,
    /// At the first of these upstreams that admits it; empty with a lane means the lane's own chain.
    pub chain: Vec<Name>,
    /// Tokens from scoped buckets, taken at the upstream they belong to.
    pub holds: Vec<Hold>,
    /// What ties a later event to this call, so that it can earn a credit.
    pub correlation: Option<Correlation>,
    /// How long the lease lasts. Without any time there is none, and its number is 0: what is taken is spent, no slot is
    /// held, and nobody need tell how the call went. Such a call is never a probe: in a lane it is admitted only while the
    /// breaker is closed; without a lane it asks only whether the rate allows it, and the breaker is not asked.
    pub lease: Span,
    /// Of this ask alone: asked again after the store was restored, it gets the lease it was given if that is still out.
    pub nonce: u64,
    /// Goes on from the call under this lease, which ended so: what that holds at its upstream is given back, and what it
    /// holds in the lane passes to this call, which takes nothing from the lane. Whether admitted or not, that lease is over
    /// if it was known.
    pub after: Option<(LeaseId, Report)>,
}

/// The answer to a wish to make a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Whether it may be made.
    pub admission: Admission,
    /// Jobs that were lost for good with their worker, in order.
    pub ended: Vec<Ended>,
    /// What time it was in the store.
    pub now: Time,
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Yes.
    Granted {
        /// Under this lease, which holds a slot of the upstream and of the lane.
        lease: LeaseId,
        /// There.
        upstream: Name,
        /// Until then, unless the lease is extended.
        lease_expires: Time,
        /// The limit that allows the fewest more such calls now, if there is any.
        quota: Option<Quota>,
    },
    /// Not now, and nothing was taken.
    Denied {
        /// The upstream that will admit it first; `None` if the lane denies it.
        upstream: Option<Name>,
        /// Why and until when.
        denial: NotUntil,
        /// The limit that allows the fewest such calls there, if there is any; of several that allow none the one
        /// that does so longest.
        quota: Option<Quota>,
        /// The own gate of the lane or the upstream with the reason of the denial, if there is one.
        gate: Option<GateView>,
        /// Whether it may be admitted before the time that `denial` says: that is when a lease ends, and its call may end
        /// sooner.
        sooner: bool,
    },
    /// There is no such upstream.
    UnknownUpstream(Name),
    /// There is no such lane.
    UnknownLane,
}

/// Asks for a job when it has ended, or when more of its history can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Which job.
    pub job: JobId,
    /// How long to wait for its end; the job is shown as it is then.
    pub timeout: Span,
    /// The job may not be there yet: an unknown id is waited for too.
    pub allow_unknown: bool,
    /// The number of the last line of its history that the asker has; a later one is told at once, the job's end or not.
    pub seen: Option<u64>,
}

impl Wait {
    /// Waits for the end of a job that is there.
    pub const fn for_end(job: JobId, timeout: Span) -> Self {
        Self { job, timeout, allow_unknown: false, seen: None }
    }
}

/// What became of a wish to cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// It is cancelled.
    Yes(Box<Ended>),
    /// It had ended before.
    AlreadyEnded(Status),
    /// There is no such job.
    Unknown,
}

/// Asks to cancel all jobs that fit and have not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelAll {
    /// Which; a page of them at a time.
    pub query: JobQuery,
    /// Only counts them.
    pub dry_run: bool,
}

/// What became of a page of jobs to cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelledAll {
    /// Jobs that fit and had not ended.
    pub matched: u64,
    /// Those that were cancelled, in order.
    pub ended: Vec<Ended>,
    /// Where to go on; `None` when all were looked at.
    pub next: Option<JobCursor>,
}

/// Asks for the job of one moment of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    /// The schedule.
    pub schedule: Name,
    /// Later than all its moments that were done.
    pub moment: Time,
    /// What to enqueue; nothing, where the moment is only to count as done.
    pub job: Option<Box<NewJob>>,
}

/// What became of a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fired {
    /// Its job was handed to its lane. If that refused it, the moment is not done and may be asked for again.
    Submitted(EnqueueAnswer),
    /// It was done before, or passed over: this is the last that was done.
    AlreadyDone(Time),
    /// It comes only in this time, by the clock of the store.
    TooSoon(Span),
}

/// What a sweep cleaned up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Jobs that waited too long, were lost for good with their worker, or answered without a call, in order.
    pub ended: Vec<Ended>,
    /// Jobs whose worker vanished.
    pub taken_up: Vec<JobId>,
    /// Dead letters that went.
    pub dead_letters: Vec<(Name, JobId, TrimReason)>,
    /// Dead letters that were enqueued again: by bulk replays, or by themselves.
    pub replayed: Vec<ReplayedLetter>,
    /// Calls with a correlation id that were forgotten before their time, because too many were remembered. No event gives
    /// their tokens back.
    pub debits_dropped: u64,
    /// What time it was in the store.
    pub now: Time,
    /// When to sweep again; at once if there was more than one call may do.
    pub next: Time,
}
