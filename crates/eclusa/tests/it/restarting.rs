//! An embedded store that is closed and opened again before every verb.

use std::sync::{Arc, Mutex};

use eclusa::store::{Ack, EmbeddedStore};
use eclusa_conformance::ManualClock;
use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admit, Admitted, Advance, Advanced, Answer, Cancelled, DeadLetterView, Dispatch, Dispatched,
    EnqueueAnswer, JobId, JobPage, JobQuery, JobView, LaneView, LeaseId, Name, NewJob, Replayed,
    SettleAnswer, Settlement, Span, Spec, Store, StoreError, Swept, TenantView, UpstreamView, Why,
};
use pollster::block_on;
use tempfile::TempDir;

/// If a restart can be seen, a scenario on this store sees it.
pub(crate) struct Restarting {
    spec: Spec,
    clock: Arc<ManualClock>,
    /// Dropped before the directory it lives in.
    store: Mutex<Option<EmbeddedStore>>,
    dir: TempDir,
}

impl Restarting {
    pub(crate) fn new(spec: &Spec, clock: Arc<ManualClock>) -> Self {
        Self { spec: spec.clone(), clock, store: Mutex::default(), dir: TempDir::new().unwrap() }
    }

    fn run<T: Send>(
        &self,
        verb: impl AsyncFnOnce(&EmbeddedStore) -> Result<T, StoreError>,
    ) -> impl Answer<T> {
        let mut slot = self.store.lock().unwrap();
        // A directory has one owner: the old store must be gone before the new one comes.
        drop(slot.take());
        let store = EmbeddedStore::open(self.dir.path(), Ack::Write, &self.spec, self.clock.clone()).unwrap();
        let answer = block_on(verb(&store));
        *slot = Some(store);
        std::future::ready(answer)
    }
}

impl Store for Restarting {
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

    fn cancel(&self, job: JobId) -> impl Answer<Cancelled> {
        self.run(async move |store| store.cancel(job).await)
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

    fn replay(&self, lane: Name, letter: JobId, id: JobId) -> impl Answer<Replayed> {
        self.run(async move |store| store.replay(lane, letter, id).await)
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

    fn jobs(&self, query: JobQuery) -> impl Answer<JobPage> {
        self.run(async move |store| store.jobs(query).await)
    }

    fn lanes(&self) -> impl Answer<Vec<LaneView>> {
        self.run(async move |store| store.lanes().await)
    }

    fn upstreams(&self) -> impl Answer<Vec<UpstreamView>> {
        self.run(async move |store| store.upstreams().await)
    }

    fn tenants(&self, lane: Name, from: u32, max: usize) -> impl Answer<Vec<(u32, TenantView)>> {
        self.run(async move |store| store.tenants(lane, from, max).await)
    }

    fn dead_letter(&self, letter: JobId) -> impl Answer<Option<DeadLetterView>> {
        self.run(async move |store| store.dead_letter(letter).await)
    }

    fn dead_letters(&self, lane: Name, after: u64, max: usize) -> impl Answer<Vec<(u64, DeadLetterView)>> {
        self.run(async move |store| store.dead_letters(lane, after, max).await)
    }
}
