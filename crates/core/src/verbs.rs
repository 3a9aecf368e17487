//! Arguments and answers of a store's verbs.

mod awaiting;
mod history;
mod letters;
mod observe;
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
pub use history::{
    CallStatus, GateTransition, HistoryOf, HistoryQuery, HistoryView, LanePoint, MAX_MINUTES, UpstreamPoint,
};
pub use letters::{
    CountLetters, DiscardedLetters, LetterBy, LetterCounts, LetterCursor, LetterFilter, LetterPage,
    LetterQuery, TREND_HOURS,
};
pub(crate) use letters::{NO_CODE, fits_code};
pub use observe::{JobTransition, Observe, ObserveCursor, Observed, ObservedState};
pub use policy::{Corrected, Correction, Credit, Credited};
pub use replays::{BulkAnswer, BulkAsk, BulkStatus, BulkView, Replay, Replayed, ReplayedLetter};

/// The most that one dispatch grants and one sweep cleans up of each kind, so that every step is short.
pub const MAX_BATCH: usize = 100;

/// The answers to a batch of new jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnqueueAnswer {
    /// One for each job, in order.
    pub jobs: Vec<Enqueued>,
    /// Jobs that were evicted or refused, in order.
    pub ended: Vec<Ended>,
}

/// The result for one new job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// It was accepted and waits.
    Accepted(Place),
    /// This job exists already, with the same id, or with the same key and payload.
    Existing(JobId),
    /// No job was created: the cache has an answer.
    Cached(Cached),
    /// This job used the same key with another payload.
    Conflict(JobId),
    /// The lane is full.
    QueueFull,
    /// No such lane.
    UnknownLane,
    /// The job is invalid.
    Invalid(SpecError),
    /// It would expire before it could start.
    NotInTime {
        /// When it would start.
        eta: Time,
        /// How long after its expiry that is. The same job may be accepted after this time.
        late: Span,
    },
}

impl Enqueued {
    /// Whether a new job was created.
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

/// An answer from the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// The upstream's answer to an equal request.
    pub answer: Payload,
    /// Why a stale answer is served; `None` if it is fresh.
    pub stale: Option<Fallback>,
    /// How much longer it is fresh.
    pub fresh_for: Span,
    /// How long it has been stale.
    pub stale_for: Span,
}

/// Asks for jobs to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// The lane to serve.
    pub lane: Name,
    /// The most jobs to return, capped at [`MAX_BATCH`].
    pub max: usize,
    /// How long each lease lasts.
    pub lease: Span,
    /// Unique to this request. Repeated after the store was restored, the request returns its previous grants that are
    /// still leased.
    pub nonce: u64,
    /// How long the store may hold the question until something can start; zero answers at once. Only the store holds
    /// questions; the engine always answers at once.
    pub wait: Span,
    /// What blocked the lane according to the caller's last answer. If that changes, the store answers.
    pub denied: Option<Denied>,
}

/// Jobs to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatched {
    /// Jobs to run and settle.
    pub grants: Vec<Grant>,
    /// Jobs that expired, were permanently lost with their worker, or were answered without a call, in order.
    pub ended: Vec<Ended>,
    /// Jobs of any lane whose worker vanished; they are back in their lines.
    pub recovered: Vec<JobId>,
    /// The gate that blocks the most urgent job that could not start, if it was a gate.
    pub denied: Option<Denied>,
    /// The store's time.
    pub now: Time,
    /// When to ask again if nothing else happens first.
    pub next: Time,
    /// How long the store held the question. The leases began at least this long after the request was sent.
    pub held: Span,
}

/// A gate that denied a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The upstream the gate belongs to; `None` for a gate of the lane.
    pub upstream: Option<Name>,
    /// Its reason.
    pub reason: Reason,
}

/// The right to run one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token: settle, advance and extend need it.
    pub lease: LeaseId,
    /// When the lease expires unless extended.
    pub lease_expires: Time,
    /// The job.
    pub job: JobId,
    /// The tenant it belongs to.
    pub tenant: Arc<str>,
    /// Its priority.
    pub level: Level,
    /// What to send.
    pub payload: Payload,
    /// The upstream to send it to.
    pub upstream: Name,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The job must not start after this time.
    pub expires_at: Time,
}

/// The result of a call, as the gates need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub result: CallResult,
    /// The status of the answer; `None` without an answer or if it is unknown.
    pub status: Option<u16>,
    /// The usage that the answer reports. Policies charge by status and usage.
    pub usage: Usage,
    /// The upstream's `Retry-After`, if it sent one.
    pub retry_after: Option<RetryAfter>,
    /// The time until the answer began, if it was measured.
    pub took: Option<Span>,
    /// How long before this report the answer began; `None` if the report is made then. A place in a window comes free
    /// that much earlier.
    pub answered_ago: Option<Span>,
}

impl From<CallResult> for Report {
    fn from(result: CallResult) -> Self {
        Self {
            result,
            status: None,
            usage: Usage::Unknown,
            retry_after: None,
            took: None,
            answered_ago: None,
        }
    }
}

/// What a call used, as counted by the upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Usage {
    /// The answer did not say, or was not inspected.
    #[default]
    Unknown,
    /// This amount, for every policy.
    Amount(Tokens),
    /// An amount for each part of the answer that reports one (`body:/usage/total_tokens`).
    BySource(Vec<(Arc<str>, Tokens)>),
}

/// A `Retry-After` of the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryAfter {
    /// How long nothing may start, counted from when the store receives the report.
    pub wait: Span,
    /// The scoped bucket it applies to; `None` for the whole upstream.
    pub bucket: Option<Arc<str>>,
}

/// The end of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The lease to end.
    pub lease: LeaseId,
    /// The result of the call.
    pub report: Report,
    /// What happens to the job; ignored for a lease without a job.
    pub outcome: Outcome,
    /// The upstream's answer; kept with the job if this settlement ends it, successfully or not.
    pub answer: Option<Payload>,
    /// What is left to send after a call that delivered only a part; it replaces the job's payload.
    pub unsent: Option<Payload>,
}

/// What happens to a job after its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// It succeeded, with an answer that must not be cached.
    DoneUncached,
    /// It is retried later, or ends with this failure if it would expire before that.
    Retry {
        /// How long to wait, counted from when the store receives the settlement.
        after: Span,
        /// Why this attempt failed.
        failure: CallFailure,
    },
    /// It failed permanently and becomes a dead letter.
    Dead(CallFailure),
    /// It failed permanently, without a dead letter.
    Failed(CallFailure),
    /// It was not sent and goes back to the front of its line.
    Release,
    /// The upstream works on it and will report the result.
    Awaiting {
        /// The job fails if no result arrives within this time, counted from when the store receives the settlement.
        timeout: Span,
        /// The upstream's id of the job.
        external: Option<Arc<str>>,
        /// Whether a failure moves the job along its chain before the attempt counts as failed.
        next: bool,
        /// When to ask the upstream if it reports nothing.
        poll: Option<Polling>,
    },
}

impl Outcome {
    /// The upstream works on it and reports within `timeout`. It gave no id, is not polled, and a failure ends the
    /// attempt.
    pub const fn awaiting(timeout: Span) -> Self {
        Outcome::Awaiting { timeout, external: None, next: false, poll: None }
    }
}

/// The answers to a batch of settlements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettleAnswer {
    /// One for each settlement, in order.
    pub leases: Vec<Settled>,
    /// Jobs that these settlements ended, in order. A repeated settlement lists its job again.
    pub ended: Vec<Ended>,
}

/// What a settlement did. A repeated settlement returns the same and changes nothing, as long as the store keeps the
/// job and no other lease of it was settled since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The job ended with this status.
    Ended(Status),
    /// The job waits for its next attempt.
    RetryAt(Time),
    /// The job is back in its line.
    Requeued,
    /// The upstream works on the job; its result is settled under this lease.
    Awaiting(LeaseId),
    /// A lease without a job was released.
    Released,
    /// The lease is unknown or over; nothing changed.
    Stale,
}

/// Asks for the next upstream of the chain after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The lease the job runs under.
    pub lease: LeaseId,
    /// The upstream that failed. A repeated request is recognized by it.
    pub upstream: Name,
    /// The result of the failed call.
    pub report: Report,
    /// Why it failed.
    pub failure: CallFailure,
    /// What is left to send after a call that delivered only a part; it replaces the job's payload.
    pub unsent: Option<Payload>,
}

/// How a job continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advanced {
    /// Call this upstream, under the same lease.
    To(Name),
    /// The remaining upstreams are busy. The job waits for them, and the lease is over.
    Waits(NotUntil),
    /// All upstreams were tried. The attempt failed; settle the lease.
    Exhausted,
    /// The lease is unknown or over; nothing changed.
    Stale,
}

/// Asks for permission to make a call without a job, now or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admit {
    /// The lane whose gates apply in addition to the upstream's.
    pub lane: Option<Name>,
    /// The tenant whose limits in the lane apply.
    pub tenant: Option<Arc<str>>,
    /// The upstreams to try in order; empty means the lane's own chain.
    pub chain: Vec<Name>,
    /// Tokens to take from scoped buckets, at the upstream they belong to.
    pub holds: Vec<Hold>,
    /// Identifies the call to later events that earn tokens back.
    pub correlation: Option<Correlation>,
    /// How long the lease lasts. Zero means no lease (its number is 0): tokens are spent at once, no slot is held, and
    /// no result needs to be reported. Such a call is never a probe. In a lane it is admitted only while the breaker is
    /// closed; without a lane only the rate limits are checked, not the breaker.
    pub lease: Span,
    /// Unique to this request. Repeated after the store was restored, the request returns its previous lease if that is
    /// still held.
    pub nonce: u64,
    /// Continues after the call under this lease, which ended with this report. The lease releases what it holds at its
    /// upstream and hands over what it holds in the lane, so that this call takes nothing more from the lane. The old
    /// lease is over, whether this call is admitted or not.
    pub after: Option<(LeaseId, Report)>,
    /// Whether the call may be a probe of a half-open breaker. If the caller's report does not count, it may not: it waits
    /// until other calls close the breaker.
    pub probe: bool,
}

/// The answer to an [`Admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Whether it may be made.
    pub admission: Admission,
    /// Jobs that were permanently lost with their worker, in order.
    pub ended: Vec<Ended>,
    /// The store's time.
    pub now: Time,
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may be made.
    Granted {
        /// The lease, which holds a slot of the upstream and of the lane.
        lease: LeaseId,
        /// The upstream to call.
        upstream: Name,
        /// When the lease expires unless extended.
        lease_expires: Time,
        /// The tightest limit: the one that allows the fewest more such calls now.
        quota: Option<Quota>,
    },
    /// It may not be made now. Nothing was taken.
    Denied {
        /// The upstream that will admit it first; `None` if the lane denies it.
        upstream: Option<Name>,
        /// Reason and time of the denial.
        denial: NotUntil,
        /// The tightest limit there: the one that allows the fewest such calls; of several that allow none, the one
        /// that does so longest.
        quota: Option<Quota>,
        /// The gate of the lane or upstream with the reason of the denial, if there is one.
        gate: Option<GateView>,
        /// Whether it may be admitted before the time in `denial`: that is when a lease expires, and its call may end
        /// sooner.
        sooner: bool,
    },
    /// There is no such upstream.
    UnknownUpstream(Name),
    /// There is no such lane.
    UnknownLane,
}

/// Waits until a job ends or its history grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The job.
    pub job: JobId,
    /// How long to wait; after that, the job's current state is returned.
    pub timeout: Span,
    /// Also waits for a job that does not exist yet.
    pub allow_unknown: bool,
    /// The number of the last history line the caller has. If there is a later one, the answer is immediate.
    pub seen: Option<u64>,
}

impl Wait {
    /// Waits for the end of an existing job.
    pub const fn for_end(job: JobId, timeout: Span) -> Self {
        Self { job, timeout, allow_unknown: false, seen: None }
    }
}

/// The result of a cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// It was cancelled.
    Yes(Box<Ended>),
    /// It had already ended.
    AlreadyEnded(Status),
    /// There is no such job.
    Unknown,
}

/// Asks to cancel all unfinished jobs that match a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelAll {
    /// Which jobs; one page at a time.
    pub query: JobQuery,
    /// Only counts the jobs.
    pub dry_run: bool,
}

/// The result of cancelling one page of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelledAll {
    /// Jobs that matched and had not ended.
    pub matched: u64,
    /// The cancelled jobs, in order.
    pub ended: Vec<Ended>,
    /// Where the next page starts; `None` after the last page.
    pub next: Option<JobCursor>,
}

/// Asks to enqueue the job for one scheduled time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    /// The schedule.
    pub schedule: Name,
    /// The scheduled time; must be later than all that were handled.
    pub moment: Time,
    /// The job to enqueue; `None` only marks the time as handled.
    pub job: Option<Box<NewJob>>,
}

/// The result for one scheduled time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fired {
    /// The job was submitted to its lane. If the lane refused it, the scheduled time is not handled and may be
    /// repeated.
    Submitted(EnqueueAnswer),
    /// It was handled or skipped before; this is the last scheduled time that was handled.
    AlreadyDone(Time),
    /// It is still this far in the future by the store's clock.
    TooSoon(Span),
}

/// What a sweep cleaned up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Jobs that expired, were permanently lost with their worker, or were answered without a call, in order.
    pub ended: Vec<Ended>,
    /// Jobs whose worker vanished; they are back in their lines.
    pub recovered: Vec<JobId>,
    /// Dead letters that were trimmed.
    pub dead_letters: Vec<(Name, JobId, TrimReason)>,
    /// Dead letters that were enqueued again, by a bulk replay or by the lane's redrive.
    pub replayed: Vec<ReplayedLetter>,
    /// Debits that were dropped early because there were too many. Events can no longer return their tokens.
    pub debits_dropped: u64,
    /// The store's time.
    pub now: Time,
    /// When to sweep again; now if there was more than one sweep may do.
    pub next: Time,
}
