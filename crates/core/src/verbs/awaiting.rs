//! Jobs whose upstream works on them and will tell: what is told from outside, and who must be asked.

use std::sync::Arc;

use super::{Outcome, Report, Settled};
use crate::ended::Ended;
use crate::ids::{JobId, Name};
use crate::job::{Payload, Status};
use crate::time::{Span, Time};

/// When an upstream that has not told anything is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    /// For the first time so long after its answer to the submit.
    pub after: Span,
    /// Then once in so long.
    pub every: Span,
}

/// What an upstream told of a job it worked on, by a webhook or because it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Which job.
    pub job: JobId,
    /// Who tells.
    pub upstream: Name,
    /// What the upstream calls the job, if it says so: what it tells of an older submit changes nothing.
    pub external: Option<Arc<str>>,
    /// A hash of the message's own id, if it has one: the same message changes nothing the second time.
    pub message: Option<u64>,
    /// What the gates hear.
    pub report: Report,
    /// What becomes of the job: how it succeeded, or how it failed. [`Outcome::Release`] and [`Outcome::Awaiting`] are
    /// neither and change nothing.
    pub outcome: Outcome,
    /// Whether a failure sends the job on along its chain, if some of it is left, without spending an attempt. It is told here
    /// because the submit that would have said so may never be settled.
    pub next: bool,
    /// What the upstream brought; kept with the job if this ends it.
    pub answer: Option<Payload>,
}

/// The answer to a [`Completion`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteAnswer {
    /// What it did.
    pub completed: Completed,
    /// Jobs that ended by it, in order.
    pub ended: Vec<Ended>,
}

/// What a completion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completed {
    /// The job was waited for, and this became of it.
    Settled(Settled),
    /// The submit's own answer has not come yet: it is kept with the job and counts as soon as that has.
    Kept,
    /// Nothing was changed: the job has ended, has moved on, or this was told before. The job is here.
    NotAwaited(Status),
    /// There is no such job.
    Unknown,
}

/// Asks for jobs that an upstream works on and has told nothing of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poll {
    /// Of this upstream.
    pub upstream: Name,
    /// How many at the most; no more than [`MAX_BATCH`](crate::MAX_BATCH) are given.
    pub max: usize,
    /// Nobody else is given the same ones for this long, or until they are said to be asked.
    pub claim: Span,
    /// Jobs that whoever asks was given before and has asked the upstream for: they are due again later.
    pub asked: Vec<JobId>,
}

/// Jobs whose upstream must be asked now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polls {
    /// Each claimed by whoever asked.
    pub due: Vec<DuePoll>,
    /// What time it was in the store.
    pub now: Time,
    /// When the next one of this upstream is due; `Time::NEVER` if none is known.
    pub next: Time,
}

/// A job whose upstream must be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePoll {
    /// Which job.
    pub job: JobId,
    /// The upstream, or the key of it with which the job was submitted.
    pub at: Option<Name>,
    /// Whose.
    pub tenant: Arc<str>,
    /// `id` (outboxId) or `Idempotency-Key`.
    pub key: Option<Arc<str>>,
    /// What the upstream calls it.
    pub external: Option<Arc<str>>,
    /// What was to be sent.
    pub payload: Payload,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}
