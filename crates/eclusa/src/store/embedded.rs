//! The embedded store: the engine in memory, with every change journaled before its answer leaves.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::layout::{Question, Reply};
use eclusa_core::{
    Admit, Admitted, Clock, Engine, ProcessId, Registration, RestoreError, Restorer, Spec, StoreError, Time,
};
use thiserror::Error;

use super::Ack;
use super::aging::Aging;
use super::ask::store_by_asking;
use super::doorbell::Doorbell;
use super::journal::JournalError;
use super::journal::file::FileJournal;
use super::stage::Stage;
use super::writer::{Desk, Writer};
use crate::config::FORGET_WITHIN;

/// Why an embedded store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The records in the journal cannot be restored.
    #[error("the journal in {dir} cannot be used: {source}")]
    Records {
        /// The directory of the journal.
        dir: Box<Path>,
        /// What is wrong with the records.
        source: RestoreError,
    },
    /// The thread that writes the journal could not be started.
    #[error("the journal's writer could not be started: {0}")]
    Thread(std::io::Error),
}

/// A store for one process, in a directory or, for tests, in memory only.
pub struct EmbeddedStore {
    stage: Arc<Stage>,
    /// `None` in memory.
    writer: Option<(Writer, Arc<Desk>)>,
}

impl EmbeddedStore {
    /// A store that forgets everything when dropped (`memory:`).
    pub fn memory(spec: &Spec, clock: Arc<dyn Clock>) -> Self {
        Self { stage: Arc::new(Stage::new(Engine::new(spec), clock, None, None)), writer: None }
    }

    /// Opens or creates the store in `dir` and restores exactly the state it had.
    pub fn open(dir: &Path, ack: Ack, spec: &Spec, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        Self::open_forgetting(dir, ack, FORGET_WITHIN, spec, clock)
    }

    /// Like [`open`](Self::open), with the time after which expired data must be gone from the directory.
    pub fn open_forgetting(
        dir: &Path,
        ack: Ack,
        forget_within: Duration,
        spec: &Spec,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let mut restorer = Restorer::default();
        let journal = FileJournal::open(dir, ack, |_, chunk| restorer.apply(chunk))?;
        let unusable = |source| OpenError::Records { dir: dir.into(), source };
        let epoch = restorer.next_epoch();
        let mut engine = restorer.finish(epoch).map_err(unusable)?;
        let now = engine.now(clock.now());
        engine.register(registration(spec), now);
        let doorbell = Arc::new(Doorbell::default());
        let desk = Arc::new(Desk::new(journal, Aging::new(forget_within, clock.now())));
        let mut stage = Stage::new(engine, clock, Some(doorbell.clone()), None);
        if ack == Ack::Write {
            stage = stage.at(desk.clone());
        }
        let stage = Arc::new(stage);
        let writer = Writer::start(stage.clone(), desk.clone(), doorbell).map_err(OpenError::Thread)?;
        Ok(Self { stage, writer: Some((writer, desk)) })
    }

    /// Applies other rules from now on. Nothing that waits or runs is lost.
    pub async fn configure(&self, spec: &Spec) -> Result<(), StoreError> {
        let registration = registration(spec);
        self.stage.change(|engine, now| engine.register(registration, now)).await
    }

    /// The time by which the moments in answers are.
    pub fn now(&self) -> Time {
        self.stage.engine_now()
    }

    /// How many callers wait for the end of a job.
    pub fn waits(&self) -> u64 {
        self.stage.wakes.waits()
    }

    /// How long the journal is; `None` in memory.
    pub fn journal_bytes(&self) -> Option<u64> {
        self.writer.as_ref().map(|(_, desk)| desk.bytes())
    }

    /// How many times the store was opened.
    pub fn epoch(&self) -> u64 {
        self.stage.look(Engine::epoch)
    }

    /// The whole state, one record per thing: two stores are in the same state if these are equal.
    pub fn snapshot(&self) -> Vec<Vec<u8>> {
        self.stage.look(|engine| engine.snapshot().unwrap_or_default())
    }

    pub(super) async fn ask(&self, question: Question) -> Result<Reply, StoreError> {
        self.stage.ask(question).await
    }

    /// Admits at once. The answer may be used once the future is done; a caller that drops it earlier must release the
    /// lease.
    pub(crate) fn admit_soon(
        &self,
        ask: &Admit,
    ) -> Result<(Admitted, impl Future<Output = Result<(), StoreError>>), StoreError> {
        let (admitted, ticket) = self.stage.run(|engine, now| engine.admit(ask, now))?;
        self.stage.wakes.notify_ended(&admitted.ended);
        Ok((admitted, self.stage.durable(ticket)))
    }

    pub(super) fn ask_now(&self, question: Question) -> Result<Reply, StoreError> {
        self.stage.ask_now(question)
    }
}

store_by_asking!(EmbeddedStore);

fn registration(spec: &Spec) -> Registration {
    Registration { process: ProcessId::EMBEDDED, stamp: 0, about: "".into(), spec: Arc::new(spec.clone()) }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        if let Some((writer, _)) = self.writer.take() {
            writer.finish();
        }
    }
}
