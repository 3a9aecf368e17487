//! The embedded store: the engine in memory, every change journaled before anybody hears of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::layout::{Question, Reply};
use eclusa_core::{
    Admit, Admitted, Clock, Engine, ProcessId, Registration, RestoreError, Restorer, Spec, StoreError,
};
use thiserror::Error;

use super::Ack;
use super::aging::Aging;
use super::ask::store_by_asking;
use super::doorbell::Doorbell;
use super::journal::JournalError;
use super::journal::file::Journal;
use super::stage::Stage;
use super::writer::{Desk, Writer};
use crate::config::FORGET_WITHIN;

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
    /// Absent in memory.
    writer: Option<Writer>,
}

impl EmbeddedStore {
    /// A store that forgets everything when dropped (`memory:`).
    pub fn memory(spec: &Spec, clock: Arc<dyn Clock>) -> Self {
        Self { stage: Arc::new(Stage::new(Engine::new(spec), clock, None, None)), writer: None }
    }

    /// Opens or creates the store in `dir` and brings back exactly the state it had.
    pub fn open(dir: &Path, ack: Ack, spec: &Spec, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        Self::open_forgetting(dir, ack, FORGET_WITHIN, spec, clock)
    }

    /// The same, and says how long after something expired it may still be in the directory.
    pub fn open_forgetting(
        dir: &Path,
        ack: Ack,
        forget_within: Duration,
        spec: &Spec,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let mut restorer = Restorer::default();
        let journal = Journal::open(dir, ack, |_, chunk| restorer.apply(chunk))?;
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
        let writer = Writer::start(stage.clone(), desk, doorbell).map_err(OpenError::Thread)?;
        Ok(Self { stage, writer: Some(writer) })
    }

    /// Goes by other rules from now on. Nothing that waits or runs is lost.
    pub async fn configure(&self, spec: &Spec) -> Result<(), StoreError> {
        let registration = registration(spec);
        self.stage.change(|engine, now| engine.register(registration, now)).await
    }

    /// How many callers wait for the end of a job.
    pub fn waits(&self) -> u64 {
        self.stage.wakes.waits()
    }

    /// How many times it was opened.
    pub fn epoch(&self) -> u64 {
        self.stage.look(Engine::epoch)
    }

    /// Everything there is, one record each: two stores are in the same state when these are equal.
    pub fn snapshot(&self) -> Vec<Vec<u8>> {
        self.stage.look(|engine| engine.snapshot().unwrap_or_default())
    }

    pub(super) async fn ask(&self, question: Question) -> Result<Reply, StoreError> {
        self.stage.ask(question).await
    }

    /// Asks for leave at once. The answer may be told once it is durable, and whoever drops it before must give it back.
    pub(crate) fn admit_soon(
        &self,
        ask: &Admit,
    ) -> Result<(Admitted, impl Future<Output = Result<(), StoreError>>), StoreError> {
        let (admitted, ticket) = self.stage.run(|engine, now| engine.admit(ask, now))?;
        self.stage.wakes.tell(&admitted.ended);
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
        if let Some(writer) = self.writer.take() {
            writer.finish();
        }
    }
}
