//! The boundary between the rules and where their state lives.

use std::future::Future;
use std::sync::Arc;

use thiserror::Error;

use crate::alert::{AlertChanges, AlertsView, Watch};
use crate::dead_letter::DeadLetterView;
use crate::gate::CallResult;
use crate::ids::{JobId, LeaseId, Name};
use crate::job::{JobView, NewJob};
use crate::policy::HashKey;
use crate::time::{Span, Time};
use crate::verbs::{
    Admit, Admitted, Advance, Advanced, BulkAnswer, BulkAsk, CancelAll, Cancelled, CancelledAll,
    CompleteAnswer, Completion, Corrected, Correction, CountLetters, Credit, Credited, DiscardedLetters,
    Dispatch, Dispatched, EnqueueAnswer, Fire, Fired, LetterCounts, LetterPage, LetterQuery, Poll, Polls,
    Replay, Replayed, SettleAnswer, Settlement, Swept, Wait,
};
use crate::views::{
    BucketPage, BucketQuery, CodeView, JobPage, JobQuery, LaneView, TenantView, UpstreamView, Why,
};

/// Why a store did not do what it was asked. Nothing was promised then.
#[derive(Debug, Clone, Error)]
pub enum StoreError {
    /// It stopped for good. What it had acknowledged is where it was written.
    #[error("the store has stopped: {cause}. Fix the cause and start again")]
    Stopped {
        /// What made it stop.
        cause: Arc<str>,
    },
    /// It cannot be reached, or cannot do it now.
    #[error("the store cannot be used now: {cause}")]
    Unavailable {
        /// What it said, or what happened on the way.
        cause: Arc<str>,
    },
    /// It was asked and did not answer, so what was asked for may have been done. Safe to repeat where it carries an id.
    #[error("the store did not answer: {cause}")]
    Unconfirmed {
        /// What happened.
        cause: Arc<str>,
    },
}

impl StoreError {
    /// Whether the same call may pass later without a repair.
    pub const fn is_transient(&self) -> bool {
        match self {
            StoreError::Stopped { .. } => false,
            StoreError::Unavailable { .. } | StoreError::Unconfirmed { .. } => true,
        }
    }
}

/// The answer of a store, when it comes.
pub trait Answer<T>: Future<Output = Result<T, StoreError>> + Send {}
impl<T, F: Future<Output = Result<T, StoreError>> + Send> Answer<T> for F {}

/// Atomic, batched verbs and a read side. A store has a clock of its own, so that all who share it agree on the time. An
/// answer comes when what it says is durable.
///
/// A verb that can end jobs lists all that it ended, in order, so that each end is told once; a settlement that is repeated
/// tells the end of its job again, because its answer was not heard.
///
/// A call whose answer was lost may have been done. Enqueue, advance, settle, complete, poll, extend, cancel (of one or all),
/// fire, watch, credit, correct, replay (of one or many), discard (of one or all), pause, recover and reset can be repeated
/// without harm. So can a dispatch or an admit, with
/// the same nonce, after the store was restored; otherwise what they handed out comes back when its lease ends.
pub trait Store: Send + Sync {
    /// Takes in new jobs.
    fn enqueue(&self, jobs: Vec<NewJob>) -> impl Answer<EnqueueAnswer>;
    /// Hands out jobs that may start now. If none can, the store may hold the question for as long as `ask.wait` until one
    /// can, or until what holds the lane back is no longer `ask.denied`.
    fn dispatch(&self, ask: Dispatch) -> impl Answer<Dispatched>;
    /// Goes on to the next upstream of a job's chain.
    fn advance(&self, ask: Advance) -> impl Answer<Advanced>;
    /// Prolongs leases; says which still exist.
    fn extend(&self, leases: Vec<LeaseId>, lease: Span) -> impl Answer<Vec<bool>>;
    /// Ends leases.
    fn settle(&self, settlements: Vec<Settlement>) -> impl Answer<SettleAnswer>;
    /// Ends a job that an upstream works on, because that has told.
    fn complete(&self, told: Completion) -> impl Answer<CompleteAnswer>;
    /// Jobs whose upstream has not told and must be asked. Each is claimed by whoever gets it.
    fn poll(&self, ask: Poll) -> impl Answer<Polls>;
    /// Cancels a job.
    fn cancel(&self, job: JobId) -> impl Answer<Cancelled>;
    /// Cancels jobs that fit a query and have not ended, by page, or counts them.
    fn cancel_all(&self, ask: CancelAll) -> impl Answer<CancelledAll>;
    /// Asks for a call without a job.
    fn admit(&self, ask: Admit) -> impl Answer<Admitted>;
    /// Tells how a call without a lease went; `None` if the upstream is unknown.
    fn record(&self, upstream: Name, result: CallResult) -> impl Answer<Option<UpstreamView>>;
    /// Closes an upstream's breaker without a probe if its open window is over, else changes nothing; `None` if the
    /// upstream is unknown.
    fn recover(&self, upstream: Name) -> impl Answer<Option<UpstreamView>>;
    /// Closes an upstream's breaker by hand, ends its cooldown and forgets its word to stay away; `None` if it is unknown.
    fn reset(&self, upstream: Name) -> impl Answer<Option<UpstreamView>>;
    /// Gives back tokens that events earned, each once.
    fn credit(&self, credits: Vec<Credit>) -> impl Answer<Vec<Credited>>;
    /// Sets balances to what their upstream counts.
    fn correct(&self, corrections: Vec<Correction>) -> impl Answer<Vec<Corrected>>;
    /// The secret under which scope values and correlation ids are hashed: the first that was offered.
    fn hash_key(&self, offer: HashKey) -> impl Answer<HashKey>;
    /// Enqueues the job of a moment of a schedule, once.
    fn fire(&self, ask: Fire) -> impl Answer<Fired>;
    /// Looks which alerts fire and which are over, and enqueues notifications of both.
    fn watch(&self, ask: Watch) -> impl Answer<AlertChanges>;
    /// Enqueues a dead letter again.
    fn replay(&self, ask: Replay) -> impl Answer<Replayed>;
    /// Begins, shows or stops replays of many dead letters; [`sweep`](Store::sweep) enqueues them.
    fn bulk(&self, ask: BulkAsk) -> impl Answer<BulkAnswer>;
    /// Lets a dead letter go.
    fn discard(&self, lane: Name, letter: JobId) -> impl Answer<bool>;
    /// Lets dead letters go that fit a query, by page.
    fn discard_all(&self, query: LetterQuery) -> impl Answer<DiscardedLetters>;
    /// Pauses or resumes a lane; `false` if it is unknown.
    fn pause(&self, lane: Name, paused: bool) -> impl Answer<bool>;
    /// Does what time does by itself.
    fn sweep(&self) -> impl Answer<Swept>;

    /// Why a job waits.
    fn why(&self, job: JobId) -> impl Answer<Option<Why>>;
    /// A job.
    fn job(&self, job: JobId) -> impl Answer<Option<JobView>>;
    /// A job when it has ended, even if its lane forgets it at once; as it is when the timeout passes; `None` if there is
    /// no such job.
    fn wait(&self, ask: Wait) -> impl Answer<Option<JobView>>;
    /// Jobs that fit a query, by page, the newest first.
    fn jobs(&self, query: JobQuery) -> impl Answer<JobPage>;
    /// All lanes.
    fn lanes(&self) -> impl Answer<Vec<LaneView>>;
    /// Scoped buckets that fit a query, by page.
    fn buckets(&self, query: BucketQuery) -> impl Answer<BucketPage>;
    /// All upstreams.
    fn upstreams(&self) -> impl Answer<Vec<UpstreamView>>;
    /// The codes that calls to an upstream failed with, the most frequent first; `None` if it is unknown.
    fn codes(&self, upstream: Name) -> impl Answer<Option<Vec<CodeView>>>;
    /// The last moment of each schedule that was done.
    fn schedules(&self) -> impl Answer<Vec<(Name, Time)>>;
    /// The alerts that fire, and those that resolved last.
    fn alerts(&self) -> impl Answer<AlertsView>;
    /// Tenants of a lane, at most `max` from a place on, each with its place.
    fn tenants(&self, lane: Name, from: u32, max: usize) -> impl Answer<Vec<(u32, TenantView)>>;
    /// A dead letter, of whatever lane.
    fn dead_letter(&self, letter: JobId) -> impl Answer<Option<DeadLetterView>>;
    /// Dead letters that fit a query, by page: by lane, in each the oldest first.
    fn dead_letters(&self, query: LetterQuery) -> impl Answer<LetterPage>;
    /// How many dead letters fit, as far as one step looks.
    fn count_letters(&self, ask: CountLetters) -> impl Answer<LetterCounts>;
}
