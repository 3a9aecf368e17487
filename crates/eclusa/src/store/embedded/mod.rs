//! The embedded store: the engine in memory, every change journaled before anybody hears of it.
//!
//! Verbs run on the engine one after the other, at once. What they changed is staged, and one writer takes whatever
//! was staged meanwhile to the journal as one chunk; answers leave when their chunk is there. Reads wait likewise for
//! what they have seen, so nothing is told that a crash could take back.

mod journal;
mod writer;

use std::path::Path;
use std::sync::Arc;

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admit, Admitted, Advance, Advanced, Answer, Cancelled, Clock, DeadLetterView, Dispatch, Dispatched,
    Engine, EnqueueAnswer, JobId, JobPage, JobQuery, JobView, LaneView, LeaseId, Name, NewJob, Replayed,
    RestoreError, Restorer, SettleAnswer, Settlement, Span, Spec, Store, StoreError, Swept, TenantView, Time,
    UpstreamView, Why,
};
pub use journal::JournalError;
use thiserror::Error;

use self::journal::Journal;
use self::writer::{Stage, Writer};
use super::Ack;

/// Why an embedded store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What the journal holds cannot be understood.
    #[error("the journal in {dir} cannot be used: {source}")]
    Records {
        /// Where it is.
        dir: Box<Path>,
        /// What is wrong with it.
        source: RestoreError,
    },
    /// The thread that writes the journal could not be started.
    #[error("the journal's writer could not be started: {0}")]
    Thread(std::io::Error),
}

/// A store for one process, in a directory or, for tests, in memory only.
pub struct EmbeddedStore {
    stage: Arc<Stage>,
    clock: Arc<dyn Clock>,
    /// Absent in memory.
    writer: Option<Writer>,
}

impl EmbeddedStore {
    /// A store that forgets everything when dropped (`memory:`).
    pub fn memory(spec: &Spec, clock: Arc<dyn Clock>) -> Self {
        Self { stage: Arc::new(Stage::new(Engine::new(spec), false)), clock, writer: None }
    }

    /// Opens or creates the store in `dir` and brings back exactly the state it had.
    pub fn open(dir: &Path, ack: Ack, spec: &Spec, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let mut restorer = Restorer::default();
        let journal = Journal::open(dir, ack, |_, chunk| restorer.apply(chunk))?;
        let unusable = |source| OpenError::Records { dir: dir.into(), source };
        let engine = restorer.finish(spec).map_err(unusable)?;
        let stage = Arc::new(Stage::new(engine, true));
        let writer = Writer::start(stage.clone(), journal).map_err(OpenError::Thread)?;
        Ok(Self { stage, clock, writer: Some(writer) })
    }

    /// Everything there is, one record each: two stores are in the same state when these are equal.
    pub fn snapshot(&self) -> Vec<Vec<u8>> {
        self.stage.look(|engine| engine.snapshot().unwrap_or_default())
    }

    async fn run<T: Send>(&self, verb: impl FnOnce(&mut Engine, Time) -> T + Send) -> Result<T, StoreError> {
        let (answer, durable) = self.stage.run(self.clock.now(), verb)?;
        if let Some(durable) = durable {
            durable.wait().await.clone()?;
        }
        Ok(answer)
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.finish(&self.stage);
        }
    }
}

impl Store for EmbeddedStore {
    fn enqueue(&self, jobs: Vec<NewJob>) -> impl Answer<EnqueueAnswer> {
        self.run(|engine, now| engine.enqueue(jobs, now))
    }

    fn dispatch(&self, ask: Dispatch) -> impl Answer<Dispatched> {
        self.run(move |engine, now| engine.dispatch(&ask, now))
    }

    fn advance(&self, ask: Advance) -> impl Answer<Advanced> {
        self.run(|engine, now| engine.advance(ask, now))
    }

    fn extend(&self, leases: Vec<LeaseId>, lease: Span) -> impl Answer<Vec<bool>> {
        self.run(move |engine, now| engine.extend(&leases, lease, now))
    }

    fn settle(&self, settlements: Vec<Settlement>) -> impl Answer<SettleAnswer> {
        self.run(|engine, now| engine.settle(settlements, now))
    }

    fn cancel(&self, job: JobId) -> impl Answer<Cancelled> {
        self.run(move |engine, now| engine.cancel(job, now))
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

    fn replay(&self, lane: Name, letter: JobId, id: JobId) -> impl Answer<Replayed> {
        self.run(move |engine, now| engine.replay(&lane, letter, id, now))
    }

    fn discard(&self, lane: Name, letter: JobId) -> impl Answer<bool> {
        self.run(move |engine, _| engine.discard(&lane, letter))
    }

    fn pause(&self, lane: Name, paused: bool) -> impl Answer<bool> {
        self.run(move |engine, _| engine.pause(&lane, paused))
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

    fn jobs(&self, query: JobQuery) -> impl Answer<JobPage> {
        self.run(move |engine, _| engine.jobs(&query))
    }

    fn lanes(&self) -> impl Answer<Vec<LaneView>> {
        self.run(|engine, now| engine.lanes(now))
    }

    fn upstreams(&self) -> impl Answer<Vec<UpstreamView>> {
        self.run(|engine, now| engine.upstreams(now))
    }

    fn tenants(&self, lane: Name, from: u32, max: usize) -> impl Answer<Vec<(u32, TenantView)>> {
        self.run(move |engine, _| engine.tenants(&lane, from, max))
    }

    fn dead_letter(&self, letter: JobId) -> impl Answer<Option<DeadLetterView>> {
        self.run(move |engine, _| engine.dead_letter(letter))
    }

    fn dead_letters(&self, lane: Name, after: u64, max: usize) -> impl Answer<Vec<(u64, DeadLetterView)>> {
        self.run(move |engine, _| engine.dead_letters(&lane, after, max))
    }
}
