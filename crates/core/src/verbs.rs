//! What is asked of a store and what it answers.

use std::sync::Arc;

use crate::dead_letter::Surplus;
use crate::error::SpecError;
use crate::gate::{CallResult, GateView, NotUntil, Reason};
use crate::ids::{JobId, LeaseId, Name};
use crate::job::{Dropped, Failure, Hold, Level, Payload, Status};
use crate::lane::Totals;
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// The most that one dispatch gives and one sweep cleans up of each kind, so that every step is short.
pub const MAX_BATCH: usize = 100;

/// Answers to a batch of new jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnqueueAnswer {
    /// One for each job, in order.
    pub jobs: Vec<Enqueued>,
    /// Jobs that were evicted or refused.
    pub drops: Vec<Dropped>,
}

/// What became of a new job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// It waits.
    Accepted,
    /// It is known already: by its id, or by its key and the same payload.
    Existing(JobId),
    /// Its key was used with another payload, by this job.
    Conflict(JobId),
    /// The lane is full.
    QueueFull,
    /// No such lane.
    UnknownLane,
    /// Something about it cannot be.
    Invalid(SpecError),
}

/// Asks for jobs to run.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// From which lane.
    pub lane: Name,
    /// How many at the most; no more than [`MAX_BATCH`] are given.
    pub max: usize,
    /// How long each lease lasts.
    pub lease: Span,
    /// Makes lease ids of this worker its own.
    pub nonce: u32,
}

/// Jobs to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatched {
    /// Each to be called and settled.
    pub grants: Vec<Grant>,
    /// Jobs found to be too old.
    pub drops: Vec<Dropped>,
    /// When to ask again if nothing else happens before.
    pub next: Time,
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
    /// What it really cost, by key of the bucket; a hold that is not named stays spent as it is.
    pub costs: Vec<(Arc<str>, Tokens)>,
    /// The upstream's word to stay away.
    pub close: Option<Closure>,
}

impl From<CallResult> for Report {
    fn from(result: CallResult) -> Self {
        Self { result, costs: Vec::new(), close: None }
    }
}

/// A `Retry-After` of the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closure {
    /// Nothing before that.
    pub until: Time,
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
}

/// What becomes of a job after its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done(Option<Payload>),
    /// It is tried again then, or ends with this failure if that is too late for it.
    Retry {
        /// When.
        at: Time,
        /// Why this attempt failed.
        failure: Failure,
    },
    /// It failed for good and becomes a dead letter.
    Dead(Failure),
    /// It failed for good and is only remembered like any finished job.
    Failed(Failure),
    /// It was not sent and goes back to the front of its line.
    Release,
    /// The upstream works on it and will tell before then.
    Awaiting(Time),
}

/// What a settlement did.
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
#[derive(Debug, Clone)]
pub struct Advance {
    /// The lease it runs under.
    pub lease: LeaseId,
    /// The upstream that failed; a repeated call is known by it.
    pub upstream: Name,
    /// What the failed call told.
    pub report: Report,
    /// Why it failed.
    pub failure: Failure,
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

/// Asks to make a call without a job.
#[derive(Debug, Clone)]
pub struct Admit {
    /// At which upstream.
    pub upstream: Name,
    /// Tokens from scoped buckets.
    pub holds: Vec<Hold>,
    /// How long the lease lasts.
    pub lease: Span,
    /// Makes lease ids of this caller its own.
    pub nonce: u32,
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Yes, under this lease.
    Granted(LeaseId),
    /// Not now.
    Denied(NotUntil),
    /// There is no such upstream.
    UnknownUpstream,
}

/// What became of a wish to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It is cancelled.
    Yes,
    /// It had ended before.
    AlreadyEnded(Status),
    /// There is no such job.
    Unknown,
}

/// What became of a wish to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// This job does it now, and these had to make room for it.
    As(JobId, Vec<Dropped>),
    /// There is no such dead letter.
    Unknown,
    /// The lane is full.
    QueueFull,
    /// The id that was to be the replay's is another job's.
    IdTaken,
}

/// What a sweep cleaned up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Jobs that waited too long.
    pub drops: Vec<Dropped>,
    /// Jobs whose worker vanished.
    pub taken_up: Vec<JobId>,
    /// Dead letters that went.
    pub dead_letters: Vec<(Name, JobId, Surplus)>,
    /// When to sweep again; at once if there was more than one call may do.
    pub next: Time,
}

/// Why a job waits and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// Where it is in its life.
    pub status: Status,
    /// What it waits for, if it waits.
    pub reason: Option<Reason>,
    /// At which upstream.
    pub upstream: Option<Name>,
    /// About how many jobs go before it.
    pub position: u64,
    /// When it will start, as far as can be told.
    pub eta: Option<Time>,
    /// Whether it will be too old by then.
    pub will_expire: bool,
    /// The gates of its upstreams.
    pub gates: Vec<(Name, Vec<GateView>)>,
}

/// A lane as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// Its name.
    pub name: Name,
    /// Whether it is paused.
    pub paused: bool,
    /// Jobs in lines: high, normal, low.
    pub queued: [u64; 3],
    /// Jobs held back.
    pub pending: u64,
    /// Jobs that a worker or an upstream has.
    pub processing: u64,
    /// Bytes of payload that wait.
    pub waiting_bytes: u64,
    /// Finished jobs still remembered.
    pub finished: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// What happened so far.
    pub totals: Totals,
    /// Its own gates.
    pub gates: Vec<GateView>,
}

/// An upstream as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamView {
    /// Its name.
    pub name: Name,
    /// Calls under way.
    pub in_flight: u32,
    /// Failures in a row that the breaker counts.
    pub failures: u32,
    /// Until when the breaker is open, if it is.
    pub degraded_until: Option<Time>,
    /// Its gates.
    pub gates: Vec<GateView>,
}

/// How fair a lane is to one tenant (`TenantFairnessMetrics`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    /// `companyId`.
    pub tenant: Arc<str>,
    /// When a job of it was last started.
    pub last_processed: Option<Time>,
    /// Turns that passed since its own.
    pub rounds_without_processing: i64,
    /// `max(1, 5 - rounds)`: 1 is the most urgent.
    pub current_priority: i64,
    /// Jobs of it started so far.
    pub total_processed: u64,
    /// Jobs of it started in a row.
    pub consecutive_batch: u32,
}
