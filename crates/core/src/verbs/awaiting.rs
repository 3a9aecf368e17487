//! Jobs whose upstream works on them and reports later: reports from outside, and polls.

use std::sync::Arc;

use super::{Outcome, Report, Settled};
use crate::ended::Ended;
use crate::ids::{JobId, Name};
use crate::job::{Payload, Status};
use crate::time::{Span, Time};

/// When to ask an upstream that has not reported a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    /// Time from the answer to the submit until the first poll.
    pub after: Span,
    /// Time between polls.
    pub every: Span,
}

/// The result of a job that an upstream worked on, from a webhook or a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The job.
    pub job: JobId,
    /// The upstream that reports.
    pub upstream: Name,
    /// The upstream's id of the job, if given. A report about an older submit changes nothing.
    pub external: Option<Arc<str>>,
    /// A hash of the message's id, if it has one. A repeated message changes nothing.
    pub message: Option<u64>,
    /// The result of the call, for the gates.
    pub report: Report,
    /// How the job succeeded or failed. [`Outcome::Release`] and [`Outcome::Awaiting`] are neither and change nothing.
    pub outcome: Outcome,
    /// Whether a failure moves the job along the rest of its chain without spending an attempt. It is repeated here
    /// because the settlement of the submit, which also has it, may never arrive.
    pub next: bool,
    /// The upstream's result; kept with the job if this ends it.
    pub answer: Option<Payload>,
}

/// The answer to a [`Completion`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteAnswer {
    /// The effect of the completion.
    pub completed: Completed,
    /// Jobs that ended because of it, in order.
    pub ended: Vec<Ended>,
}

/// What a completion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completed {
    /// The job was awaiting, and this is what happened to it.
    Settled(Settled),
    /// The submit is not settled yet. The result is kept with the job and applied when it is.
    Kept,
    /// Nothing changed: the job has ended or moved on, or this was reported before. The job has this status.
    NotAwaited(Status),
    /// There is no such job.
    Unknown,
}

/// Asks for jobs that an upstream works on and has not reported on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poll {
    /// The upstream.
    pub upstream: Name,
    /// The most jobs to return, capped at [`MAX_BATCH`](crate::MAX_BATCH).
    pub max: usize,
    /// How long the jobs are claimed: no other process gets them until then, or until they are listed in `asked`.
    pub claim: Span,
    /// Jobs from earlier answers that the caller has polled since; their next poll is scheduled.
    pub asked: Vec<JobId>,
}

/// Jobs whose upstream must be asked now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polls {
    /// The jobs, claimed by the caller.
    pub due: Vec<DuePoll>,
    /// The store's time.
    pub now: Time,
    /// When the next job of this upstream is due; `Time::NEVER` if there is none.
    pub next: Time,
}

/// A job whose upstream must be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePoll {
    /// The job.
    pub job: JobId,
    /// The upstream, or its key that the job was submitted with.
    pub at: Option<Name>,
    /// The tenant it belongs to.
    pub tenant: Arc<str>,
    /// `id` (outboxId) or `Idempotency-Key`.
    pub key: Option<Arc<str>>,
    /// The upstream's id of the job.
    pub external: Option<Arc<str>>,
    /// The job's payload.
    pub payload: Payload,
    /// The number of this attempt, from 1.
    pub attempt: u32,
}
