//! The suite on the bare engine, which is thrown away and rebuilt from its records before every verb: whatever a
//! scenario can see survives a restart. The same for an engine that was built from the first records and has followed the
//! others one chunk after the other.

#![expect(clippy::expect_used, reason = "all of this is test code")]

use std::sync::{Arc, Mutex};

use eclusa_conformance::ManualClock;
use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admit, Admitted, Advance, Advanced, AlertChanges, AlertsView, Answer, BucketPage, BucketQuery,
    BulkAnswer, BulkAsk, CancelAll, Cancelled, CancelledAll, Clock, CodeView, CompleteAnswer, Completion,
    Corrected, Correction, CountLetters, Credit, Credited, DeadLetterView, DiscardedLetters, Dispatch,
    Dispatched, Engine, EnqueueAnswer, Fire, Fired, HashKey, HistoryQuery, HistoryView, JobId, JobPage,
    JobQuery, JobView, LaneView, LeaseId, LetterCounts, LetterPage, LetterQuery, Name, NewJob, Observe,
    Observed, Poll, Polls, ProcessId, Registration, Replay, Replayed, Restorer, SettleAnswer, Settlement,
    Span, Spec, Store, Swept, TenantPage, TenantQuery, Time, UpstreamView, Wait, Watch, Why,
};

/// Records in memory, and no engine between verbs.
struct Rebuilt {
    spec: Spec,
    clock: Arc<ManualClock>,
    chunks: Mutex<Vec<Vec<u8>>>,
    /// Whether it is built after every chunk.
    follows: bool,
}

fn open(spec: &Spec, clock: Arc<ManualClock>) -> Rebuilt {
    Rebuilt { spec: spec.clone(), clock, chunks: Mutex::default(), follows: false }
}

fn open_following(spec: &Spec, clock: Arc<ManualClock>) -> Rebuilt {
    Rebuilt { follows: true, ..open(spec, clock) }
}

fn rebuild(spec: &Spec, chunks: &[Vec<u8>], follows: bool) -> Engine {
    let mut restorer = Restorer::default();
    for chunk in chunks {
        restorer.apply(chunk).expect("the engine reads what it wrote");
        if follows {
            restorer.build().expect("the records fit together");
        }
    }
    let epoch = restorer.next_epoch();
    let mut engine = restorer.finish(epoch).expect("the records fit together");
    let (process, spec) = (ProcessId::EMBEDDED, spec.clone().into());
    engine.register(Registration { process, stamp: 0, about: "".into(), spec }, Time::default());
    engine
}

impl Rebuilt {
    fn run<T: Send>(&self, verb: impl FnOnce(&mut Engine, Time) -> T) -> impl Answer<T> {
        let mut chunks = self.chunks.lock().expect("no verb panicked");
        let mut engine = rebuild(&self.spec, &chunks, self.follows);
        let now = engine.now(self.clock.now());
        let answer = verb(&mut engine, now);
        let mut chunk = Engine::begin_chunk();
        engine.save_changes(&mut chunk).expect("the state can be written");
        chunks.push(chunk);
        let again = rebuild(&self.spec, &chunks, self.follows).snapshot().expect("the state can be written");
        let state = engine.snapshot().expect("the state can be written");
        assert!(durable(&again) == durable(&state), "something was changed but not written");
        std::future::ready(Ok(answer))
    }
}

/// All records but two, each the only one of its kind: one holds the epoch, and every restart begins a new one; the other
/// says which minute is running, which is written with the next change.
fn durable(snapshot: &[Vec<u8>]) -> Vec<&Vec<u8>> {
    const META: u8 = 0;
    const RUNNING_MINUTE: u8 = 46;
    snapshot.iter().filter(|record| ![META, RUNNING_MINUTE].contains(&record[0])).collect()
}

impl Store for Rebuilt {
    fn enqueue(&self, jobs: Vec<NewJob>) -> impl Answer<EnqueueAnswer> {
        self.run(move |engine, now| engine.enqueue(jobs, now))
    }

    fn dispatch(&self, ask: Dispatch) -> impl Answer<Dispatched> {
        self.run(move |engine, now| engine.dispatch(&ask, now))
    }

    fn advance(&self, ask: Advance) -> impl Answer<Advanced> {
        self.run(move |engine, now| engine.advance(ask, now))
    }

    fn extend(&self, leases: Vec<LeaseId>, lease: Span) -> impl Answer<Vec<bool>> {
        self.run(move |engine, now| engine.extend(&leases, lease, now))
    }

    fn settle(&self, settlements: Vec<Settlement>) -> impl Answer<SettleAnswer> {
        self.run(move |engine, now| engine.settle(settlements, now))
    }

    fn complete(&self, completion: Completion) -> impl Answer<CompleteAnswer> {
        self.run(move |engine, now| engine.complete(completion, now))
    }

    fn poll(&self, ask: Poll) -> impl Answer<Polls> {
        self.run(move |engine, now| engine.poll(&ask, now))
    }

    fn cancel(&self, job: JobId) -> impl Answer<Cancelled> {
        self.run(move |engine, now| engine.cancel(job, now))
    }

    fn cancel_all(&self, ask: CancelAll) -> impl Answer<CancelledAll> {
        self.run(move |engine, now| engine.cancel_all(&ask, now))
    }

    fn fire(&self, ask: Fire) -> impl Answer<Fired> {
        self.run(move |engine, now| engine.fire(ask, now))
    }

    fn watch(&self, ask: Watch) -> impl Answer<AlertChanges> {
        self.run(move |engine, now| engine.watch(ask, now))
    }

    fn alerts(&self) -> impl Answer<AlertsView> {
        self.run(|engine, _| engine.alerts())
    }

    fn schedules(&self) -> impl Answer<Vec<(Name, Time)>> {
        self.run(|engine, _| engine.schedules())
    }

    fn observe(&self, ask: Observe) -> impl Answer<Observed> {
        self.run(move |engine, now| engine.observe(&ask, now))
    }

    fn history(&self, query: HistoryQuery) -> impl Answer<HistoryView> {
        self.run(move |engine, now| engine.history(&query, now))
    }

    fn codes(&self, upstream: Name) -> impl Answer<Option<Vec<CodeView>>> {
        self.run(move |engine, _| engine.codes(&upstream))
    }

    fn admit(&self, ask: Admit) -> impl Answer<Admitted> {
        self.run(move |engine, now| engine.admit(&ask, now))
    }

    fn record(&self, upstream: Name, result: CallResult) -> impl Answer<Option<UpstreamView>> {
        self.run(move |engine, now| engine.record(&upstream, result, now))
    }

    fn recover(&self, upstream: Name) -> impl Answer<Option<UpstreamView>> {
        self.run(move |engine, now| engine.recover(&upstream, now))
    }

    fn reset(&self, upstream: Name) -> impl Answer<Option<UpstreamView>> {
        self.run(move |engine, now| engine.reset(&upstream, now))
    }

    fn credit(&self, credits: Vec<Credit>) -> impl Answer<Vec<Credited>> {
        self.run(move |engine, now| engine.credit(&credits, now))
    }

    fn correct(&self, corrections: Vec<Correction>) -> impl Answer<Vec<Corrected>> {
        self.run(move |engine, now| engine.correct(&corrections, now))
    }

    fn hash_key(&self, offer: HashKey) -> impl Answer<HashKey> {
        self.run(move |engine, _| engine.hash_key(offer))
    }

    fn buckets(&self, query: BucketQuery) -> impl Answer<BucketPage> {
        self.run(move |engine, now| engine.buckets(&query, now))
    }

    fn replay(&self, ask: Replay) -> impl Answer<Replayed> {
        self.run(move |engine, now| engine.replay(ask, now))
    }

    fn bulk(&self, ask: BulkAsk) -> impl Answer<BulkAnswer> {
        self.run(move |engine, now| engine.bulk(ask, now))
    }

    fn discard_all(&self, query: LetterQuery) -> impl Answer<DiscardedLetters> {
        self.run(move |engine, _| engine.discard_all(&query))
    }

    fn count_letters(&self, ask: CountLetters) -> impl Answer<LetterCounts> {
        self.run(move |engine, _| engine.count_letters(&ask))
    }

    fn discard(&self, lane: Name, letter: JobId) -> impl Answer<bool> {
        self.run(move |engine, _| engine.discard(&lane, letter))
    }

    fn pause(&self, lane: Name, paused: bool) -> impl Answer<bool> {
        self.run(move |engine, now| engine.pause(&lane, paused, now))
    }

    fn sweep(&self) -> impl Answer<Swept> {
        self.run(Engine::sweep)
    }

    fn why(&self, job: JobId) -> impl Answer<Option<Why>> {
        self.run(move |engine, now| engine.why(job, now))
    }

    fn job(&self, job: JobId) -> impl Answer<Option<JobView>> {
        self.run(move |engine, _| engine.job(job))
    }

    fn wait(&self, ask: Wait) -> impl Answer<Option<JobView>> {
        self.job(ask.job)
    }

    fn jobs(&self, query: JobQuery) -> impl Answer<JobPage> {
        self.run(move |engine, _| engine.jobs(&query))
    }

    fn lanes(&self) -> impl Answer<Vec<LaneView>> {
        self.run(move |engine, now| engine.lanes(now))
    }

    fn upstreams(&self) -> impl Answer<Vec<UpstreamView>> {
        self.run(move |engine, now| engine.upstreams(now))
    }

    fn tenants(&self, query: TenantQuery) -> impl Answer<TenantPage> {
        self.run(move |engine, now| engine.tenants(&query, now))
    }

    fn dead_letter(&self, letter: JobId) -> impl Answer<Option<DeadLetterView>> {
        self.run(move |engine, _| engine.dead_letter(letter))
    }

    fn dead_letters(&self, query: LetterQuery) -> impl Answer<LetterPage> {
        self.run(move |engine, _| engine.dead_letters(&query))
    }
}

eclusa_conformance::suite!(crate::open);

mod following {
    eclusa_conformance::suite!(crate::open_following);
}
