//! A store that can be closed and reopened before every verb.

use std::any::Any;
use std::sync::Mutex;

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admit, Admitted, Advance, Advanced, AlertChanges, AlertsView, Answer, BucketPage, BucketQuery,
    BulkAnswer, BulkAsk, CancelAll, Cancelled, CancelledAll, CodeView, CompleteAnswer, Completion, Corrected,
    Correction, CountLetters, Credit, Credited, DeadLetterView, DiscardedLetters, Dispatch, Dispatched,
    EnqueueAnswer, Fire, Fired, HashKey, HistoryQuery, HistoryView, JobId, JobPage, JobQuery, JobView,
    LaneView, LeaseId, LetterCounts, LetterPage, LetterQuery, Name, NewJob, Observe, Observed, Poll, Polls,
    Replay, Replayed, SettleAnswer, Settlement, Span, Store, StoreError, Swept, TenantPage, TenantQuery,
    Time, UpstreamView, Wait, Watch, Why,
};

/// A scenario on this store notices any visible effect of a restart or a takeover.
pub(crate) struct Reopened<S> {
    open: Box<dyn Fn() -> S + Send + Sync>,
    /// Whether to reopen before every verb, or only before the first.
    always: bool,
    /// Declared before what it needs, so dropped first.
    store: Mutex<Option<S>>,
    _needs: Box<dyn Any + Send + Sync>,
}

impl<S: Store> Reopened<S> {
    pub(crate) fn always(
        open: impl Fn() -> S + Send + Sync + 'static,
        needs: impl Any + Send + Sync,
    ) -> Self {
        Self { open: Box::new(open), always: true, store: Mutex::new(None), _needs: Box::new(needs) }
    }

    pub(crate) fn once(open: impl Fn() -> S + Send + Sync + 'static, needs: impl Any + Send + Sync) -> Self {
        Self { always: false, ..Self::always(open, needs) }
    }

    fn run<T: Send>(&self, verb: impl AsyncFnOnce(&S) -> Result<T, StoreError> + Send) -> impl Answer<T> {
        let mut slot = self.store.lock().unwrap();
        if self.always {
            // The old store must be closed before the new one opens.
            drop(slot.take());
        }
        let store = &*slot.get_or_insert_with(|| (self.open)());
        // Not on the scenario's thread, because its timers would stop meanwhile.
        let answer = std::thread::scope(|scope| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            scope.spawn(move || runtime.block_on(verb(store))).join().unwrap()
        });
        std::future::ready(answer)
    }
}

impl<S: Store> Store for Reopened<S> {
    fn enqueue(&self, jobs: Vec<NewJob>) -> impl Answer<EnqueueAnswer> {
        self.run(async move |store| store.enqueue(jobs).await)
    }

    fn dispatch(&self, ask: Dispatch) -> impl Answer<Dispatched> {
        self.run(async move |store| store.dispatch(ask).await)
    }

    fn advance(&self, ask: Advance) -> impl Answer<Advanced> {
        self.run(async move |store| store.advance(ask).await)
    }

    fn extend(&self, leases: Vec<LeaseId>, lease: Span) -> impl Answer<Vec<bool>> {
        self.run(async move |store| store.extend(leases, lease).await)
    }

    fn settle(&self, settlements: Vec<Settlement>) -> impl Answer<SettleAnswer> {
        self.run(async move |store| store.settle(settlements).await)
    }

    fn complete(&self, reported: Completion) -> impl Answer<CompleteAnswer> {
        self.run(async move |store| store.complete(reported).await)
    }

    fn poll(&self, ask: Poll) -> impl Answer<Polls> {
        self.run(async move |store| store.poll(ask).await)
    }

    fn cancel(&self, job: JobId) -> impl Answer<Cancelled> {
        self.run(async move |store| store.cancel(job).await)
    }

    fn cancel_all(&self, ask: CancelAll) -> impl Answer<CancelledAll> {
        self.run(async move |store| store.cancel_all(ask).await)
    }

    fn fire(&self, ask: Fire) -> impl Answer<Fired> {
        self.run(async move |store| store.fire(ask).await)
    }

    fn watch(&self, ask: Watch) -> impl Answer<AlertChanges> {
        self.run(async move |store| store.watch(ask).await)
    }

    fn alerts(&self) -> impl Answer<AlertsView> {
        self.run(async move |store| store.alerts().await)
    }

    fn schedules(&self) -> impl Answer<Vec<(Name, Time)>> {
        self.run(async move |store| store.schedules().await)
    }

    fn observe(&self, ask: Observe) -> impl Answer<Observed> {
        self.run(async move |store| store.observe(ask).await)
    }

    fn history(&self, query: HistoryQuery) -> impl Answer<HistoryView> {
        self.run(async move |store| store.history(query).await)
    }

    fn codes(&self, upstream: Name) -> impl Answer<Option<Vec<CodeView>>> {
        self.run(async move |store| store.codes(upstream).await)
    }

    fn admit(&self, ask: Admit) -> impl Answer<Admitted> {
        self.run(async move |store| store.admit(ask).await)
    }

    fn record(&self, upstream: Name, result: CallResult) -> impl Answer<Option<UpstreamView>> {
        self.run(async move |store| store.record(upstream, result).await)
    }

    fn recover(&self, upstream: Name) -> impl Answer<Option<UpstreamView>> {
        self.run(async move |store| store.recover(upstream).await)
    }

    fn reset(&self, upstream: Name) -> impl Answer<Option<UpstreamView>> {
        self.run(async move |store| store.reset(upstream).await)
    }

    fn credit(&self, credits: Vec<Credit>) -> impl Answer<Vec<Credited>> {
        self.run(async move |store| store.credit(credits).await)
    }

    fn correct(&self, corrections: Vec<Correction>) -> impl Answer<Vec<Corrected>> {
        self.run(async move |store| store.correct(corrections).await)
    }

    fn hash_key(&self, offer: HashKey) -> impl Answer<HashKey> {
        self.run(async move |store| store.hash_key(offer).await)
    }

    fn buckets(&self, query: BucketQuery) -> impl Answer<BucketPage> {
        self.run(async move |store| store.buckets(query).await)
    }

    fn replay(&self, ask: Replay) -> impl Answer<Replayed> {
        self.run(async move |store| store.replay(ask).await)
    }

    fn bulk(&self, ask: BulkAsk) -> impl Answer<BulkAnswer> {
        self.run(async move |store| store.bulk(ask).await)
    }

    fn discard_all(&self, query: LetterQuery) -> impl Answer<DiscardedLetters> {
        self.run(async move |store| store.discard_all(query).await)
    }

    fn count_letters(&self, ask: CountLetters) -> impl Answer<LetterCounts> {
        self.run(async move |store| store.count_letters(ask).await)
    }

    fn discard(&self, lane: Name, letter: JobId) -> impl Answer<bool> {
        self.run(async move |store| store.discard(lane, letter).await)
    }

    fn pause(&self, lane: Name, paused: bool) -> impl Answer<bool> {
        self.run(async move |store| store.pause(lane, paused).await)
    }

    fn sweep(&self) -> impl Answer<Swept> {
        self.run(async move |store| store.sweep().await)
    }

    fn why(&self, job: JobId) -> impl Answer<Option<Why>> {
        self.run(async move |store| store.why(job).await)
    }

    fn job(&self, job: JobId) -> impl Answer<Option<JobView>> {
        self.run(async move |store| store.job(job).await)
    }

    fn wait(&self, ask: Wait) -> impl Answer<Option<JobView>> {
        self.run(async move |store| store.wait(ask).await)
    }

    fn jobs(&self, query: JobQuery) -> impl Answer<JobPage> {
        self.run(async move |store| store.jobs(query).await)
    }

    fn lanes(&self) -> impl Answer<Vec<LaneView>> {
        self.run(async move |store| store.lanes().await)
    }

    fn upstreams(&self) -> impl Answer<Vec<UpstreamView>> {
        self.run(async move |store| store.upstreams().await)
    }

    fn tenants(&self, query: TenantQuery) -> impl Answer<TenantPage> {
        self.run(async move |store| store.tenants(query).await)
    }

    fn dead_letter(&self, letter: JobId) -> impl Answer<Option<DeadLetterView>> {
        self.run(async move |store| store.dead_letter(letter).await)
    }

    fn dead_letters(&self, query: LetterQuery) -> impl Answer<LetterPage> {
        self.run(async move |store| store.dead_letters(query).await)
    }
}
