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
    Dispatch, Dispatched, EnqueueAnswer, Fire, Fired, HistoryQuery, HistoryView, LetterCounts, LetterPage,
    LetterQuery, Observe, Observed, Poll, Polls, Replay, Replayed, SettleAnswer, Settlement, Swept, Wait,
};
use crate::views::{
    BucketPage, BucketQuery, CodeView, JobPage, JobQuery, LaneView, TenantPage, TenantQuery, UpstreamView,
    Why,
};

/// Why a store did not do what it was asked. Nothing was acknowledged.
#[derive(Debug, Clone, Error)]
pub enum StoreError {
    /// It stopped permanently. Everything it acknowledged is still where it was written.
    #[error("the store has stopped: {cause}")]
    Stopped {
        /// Why it stopped.
        cause: Arc<str>,
    },
    /// It cannot be reached, or cannot do this now.
    #[error("the store cannot be used now: {cause}")]
    Unavailable {
        /// The store's error, or what failed between caller and store.
        cause: Arc<str>,
    },
    /// It did not answer, so the verb may or may not have been applied. Safe to repeat if the verb carries an id.
    #[error("the store did not answer: {cause}")]
    Unconfirmed {
        /// What went wrong.
        cause: Arc<str>,
    },
}

impl StoreError {
    /// Whether the same call may succeed later without a repair.
    pub const fn is_transient(&self) -> bool {
        match self {
            StoreError::Stopped { .. } => false,
            StoreError::Unavailable { .. } | StoreError::Unconfirmed { .. } => true,
        }
    }
}

/// A future store answer.
pub trait Answer<T>: Future<Output = Result<T, StoreError>> + Send {}
impl<T, F: Future<Output = Result<T, StoreError>> + Send> Answer<T> for F {}

/// Atomic, batched verbs and a read side. A store has its own clock, so that all processes that share it agree on the
/// time. It answers once the result is durable.
///
/// Verbs take durations, so no process's own clock decides when something starts or ends. The moments in answers
/// are by the store's clock: they are displayed, or compared with `now` of the same answer. A worker counts its lease
/// from before it asked, on its own monotonic clock. The only moments in questions are those that people write: scheduled
/// times, and the bounds of a search.
///
/// A verb that can end jobs lists all jobs it ended, in order, so that each end is reported once. A repeated settlement
/// reports the end of its job again, because the first answer was not received.
///
/// A call whose answer was lost may have been applied. Enqueue, advance, settle, complete, poll, extend, cancel (one or
/// all), fire, watch, credit, correct, replay (one or many), discard (one or all), pause, recover and reset are safe to
/// repeat. So are dispatch and admit with the same nonce, after the store was restored; otherwise the jobs and slots
/// they granted return when the leases expire.
pub trait Store: Send + Sync {
    /// Adds new jobs to their lanes.
    fn enqueue(&self, jobs: Vec<NewJob>) -> impl Answer<EnqueueAnswer>;
    /// Leases jobs that may start now. If none can, the store may hold the question for up to `ask.wait`, until one can
    /// or until the lane is blocked by something other than `ask.denied`.
    fn dispatch(&self, ask: Dispatch) -> impl Answer<Dispatched>;
    /// Moves a running job to the next upstream of its chain.
    fn advance(&self, ask: Advance) -> impl Answer<Advanced>;
    /// Extends leases; returns for each whether it still exists.
    fn extend(&self, leases: Vec<LeaseId>, lease: Span) -> impl Answer<Vec<bool>>;
    /// Ends leases.
    fn settle(&self, settlements: Vec<Settlement>) -> impl Answer<SettleAnswer>;
    /// Ends a job that an upstream works on, with the result the upstream reported.
    fn complete(&self, completion: Completion) -> impl Answer<CompleteAnswer>;
    /// Jobs whose upstream has not reported a result and must be asked. Each job is claimed by the process it is
    /// returned to.
    fn poll(&self, ask: Poll) -> impl Answer<Polls>;
    /// Cancels a job.
    fn cancel(&self, job: JobId) -> impl Answer<Cancelled>;
    /// Cancels the unfinished jobs that match a query, page by page, or counts them.
    fn cancel_all(&self, ask: CancelAll) -> impl Answer<CancelledAll>;
    /// Asks for permission to make a call without a job.
    fn admit(&self, ask: Admit) -> impl Answer<Admitted>;
    /// Reports the result of a call without a lease; `None` if the upstream is unknown.
    fn record(&self, upstream: Name, result: CallResult) -> impl Answer<Option<UpstreamView>>;
    /// Closes an upstream's breaker without a probe if its open window is over, otherwise changes nothing; `None` if
    /// the upstream is unknown.
    fn recover(&self, upstream: Name) -> impl Answer<Option<UpstreamView>>;
    /// Closes an upstream's breaker by hand, ends its cooldown and clears its Retry-After; `None` if it is unknown.
    fn reset(&self, upstream: Name) -> impl Answer<Option<UpstreamView>>;
    /// Returns the tokens that events earn back, once per event.
    fn credit(&self, credits: Vec<Credit>) -> impl Answer<Vec<Credited>>;
    /// Sets balances to what their upstream reports.
    fn correct(&self, corrections: Vec<Correction>) -> impl Answer<Vec<Corrected>>;
    /// The secret that scope values and correlation ids are hashed with: the first one offered to this store.
    fn hash_key(&self, offer: HashKey) -> impl Answer<HashKey>;
    /// Enqueues the job for one scheduled time, once.
    fn fire(&self, ask: Fire) -> impl Answer<Fired>;
    /// Evaluates the alerts and enqueues notifications for those that fired or resolved.
    fn watch(&self, ask: Watch) -> impl Answer<AlertChanges>;
    /// Enqueues a dead letter again.
    fn replay(&self, ask: Replay) -> impl Answer<Replayed>;
    /// Starts, shows or stops bulk replays of dead letters; [`sweep`](Store::sweep) enqueues the jobs.
    fn bulk(&self, ask: BulkAsk) -> impl Answer<BulkAnswer>;
    /// Removes a dead letter.
    fn discard(&self, lane: Name, letter: JobId) -> impl Answer<bool>;
    /// Removes the dead letters that match a query, page by page.
    fn discard_all(&self, query: LetterQuery) -> impl Answer<DiscardedLetters>;
    /// Pauses or resumes a lane; `false` if it is unknown.
    fn pause(&self, lane: Name, paused: bool) -> impl Answer<bool>;
    /// Does what only the passing of time triggers.
    fn sweep(&self) -> impl Answer<Swept>;

    /// Why a job waits.
    fn why(&self, job: JobId) -> impl Answer<Option<Why>>;
    /// A job.
    fn job(&self, job: JobId) -> impl Answer<Option<JobView>>;
    /// A job once it has ended, even if its lane does not keep it; its current state if the timeout passes first;
    /// `None` if there is no such job.
    fn wait(&self, ask: Wait) -> impl Answer<Option<JobView>>;
    /// Jobs that match a query, page by page, newest first.
    fn jobs(&self, query: JobQuery) -> impl Answer<JobPage>;
    /// All lanes.
    fn lanes(&self) -> impl Answer<Vec<LaneView>>;
    /// Scoped buckets that match a query, page by page.
    fn buckets(&self, query: BucketQuery) -> impl Answer<BucketPage>;
    /// All upstreams.
    fn upstreams(&self) -> impl Answer<Vec<UpstreamView>>;
    /// The codes that calls to an upstream failed with, most frequent first; `None` if it is unknown.
    fn codes(&self, upstream: Name) -> impl Answer<Option<Vec<CodeView>>>;
    /// Each schedule with its last scheduled time that was handled.
    fn schedules(&self) -> impl Answer<Vec<(Name, Time)>>;
    /// The firing alerts and the most recently resolved ones.
    fn alerts(&self) -> impl Answer<AlertsView>;
    /// What changed since the asker last looked. If nothing did, the store may hold the question for up to `ask.wait`.
    fn observe(&self, ask: Observe) -> impl Answer<Observed>;
    /// What happened in each of the last minutes. A lane or upstream that is not known has no events.
    fn history(&self, query: HistoryQuery) -> impl Answer<HistoryView>;
    /// Tenants of a lane, page by page.
    fn tenants(&self, query: TenantQuery) -> impl Answer<TenantPage>;
    /// A dead letter of any lane.
    fn dead_letter(&self, letter: JobId) -> impl Answer<Option<DeadLetterView>>;
    /// Dead letters that match a query, page by page: by lane, oldest first.
    fn dead_letters(&self, query: LetterQuery) -> impl Answer<LetterPage>;
    /// How many dead letters match, as far as one step counts.
    fn count_letters(&self, ask: CountLetters) -> impl Answer<LetterCounts>;
}
