//! Builds an engine from the chunks of a journal, on a separate thread: with very many jobs that takes longer than a
//! term, which the owning thread must renew meanwhile. A process that reads ahead has an engine before it owns
//! anything; a later snapshot replaces it as a whole.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use eclusa_core::{Engine, RestoreError, Restorer};
use eclusa_fleet::Position;
use thiserror::Error;

use crate::store::journal::redis::{ChunkError, Mark, decode};

/// Why a journal on Redis cannot be read.
#[derive(Debug, Error)]
pub(super) enum LoadError {
    #[error("chunk {number} {source}")]
    Chunk { number: u64, source: ChunkError },
    #[error("chunk {found} follows chunk {after}: the chunks between them are missing")]
    Hole { after: u64, found: u64 },
    #[error(transparent)]
    Records(#[from] RestoreError),
    #[error("the thread to read it could not be started: {0}")]
    Thread(#[from] io::Error),
    #[error("the thread that read it failed unexpectedly; see the log")]
    Failed,
}

/// How long the owning thread waits for the loader before it attends to its term again.
const WAIT: Duration = Duration::from_millis(5);

/// How many pages may wait to be applied: one is applied while the next is fetched.
const PAGES: usize = 1;

/// Chunks in order.
pub(super) type Page = Vec<(Position, Vec<u8>)>;

enum Task {
    Apply(Page),
    /// Builds an engine from what was applied.
    Build,
    Finish {
        epoch: u64,
    },
}

/// The result of a task; the last one returns an engine.
type Done = Result<Option<Box<Engine>>, LoadError>;

/// See the module.
pub(super) struct Loader {
    tasks: Sender<Task>,
    done: Receiver<Done>,
    /// The number of unfinished tasks.
    open: usize,
    /// Whether a build was requested and nothing was applied since.
    building: bool,
    finishing: bool,
    engine: Option<Box<Engine>>,
    last: Option<u64>,
}

impl Loader {
    /// Starts an empty loader. Its thread ends when it is dropped.
    pub(super) fn start() -> Result<Self, LoadError> {
        let ((tasks, given), (results, done)) = (channel(), channel());
        let thread = Builder::new().name("eclusa-load".into());
        thread.spawn(move || load(&given, &results))?;
        Ok(Self { tasks, done, open: 0, building: true, finishing: false, engine: None, last: None })
    }

    /// Whether the next page can be applied. Waits a little until it can.
    pub(super) fn has_room(&mut self) -> Result<bool, LoadError> {
        self.wait(PAGES)?;
        Ok(self.open <= PAGES)
    }

    /// Queues the next chunks to be applied.
    pub(super) fn apply(&mut self, page: Page) -> Result<(), LoadError> {
        for (Position { number, .. }, _) in &page {
            if let Some(after) = self.last.replace(*number)
                && *number != after + 1
            {
                return Err(LoadError::Hole { after, found: *number });
            }
        }
        self.building = false;
        self.submit(Task::Apply(page))
    }

    /// Whether the applied chunks are built into an engine. Waits a little for it. Chunks applied later only add to it.
    pub(super) fn build(&mut self) -> Result<bool, LoadError> {
        if !std::mem::replace(&mut self.building, true) {
            self.submit(Task::Build)?;
        }
        self.wait(0)?;
        Ok(self.open == 0)
    }

    /// Whether the engine is restored, with leases of this epoch. Waits a little for it.
    pub(super) fn finish(&mut self, epoch: u64) -> Result<bool, LoadError> {
        if !std::mem::replace(&mut self.finishing, true) {
            self.submit(Task::Finish { epoch })?;
        }
        self.wait(0)?;
        Ok(self.engine.is_some())
    }

    /// The engine, once it is finished.
    pub(super) fn into_engine(self) -> Option<Engine> {
        self.engine.map(|engine| *engine)
    }

    fn submit(&mut self, task: Task) -> Result<(), LoadError> {
        self.open += 1;
        if self.tasks.send(task).is_err() {
            // The thread has ended and reported why.
            self.wait(0)?;
            return Err(LoadError::Failed);
        }
        Ok(())
    }

    /// Waits a little until at most `most` tasks are open.
    fn wait(&mut self, most: usize) -> Result<(), LoadError> {
        while self.open > most {
            match self.done.recv_timeout(WAIT) {
                Ok(done) => {
                    self.open -= 1;
                    self.engine = done?;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(LoadError::Failed),
            }
        }
        Ok(())
    }
}

/// Runs tasks until one fails.
fn load(tasks: &Receiver<Task>, results: &Sender<Done>) {
    let mut chunks = ChunkApplier::default();
    while let Ok(task) = tasks.recv() {
        let done = match task {
            Task::Apply(page) => {
                page.iter().try_for_each(|(at, chunk)| chunks.apply(*at, chunk)).map(|()| None)
            }
            Task::Build => chunks.restorer.build().map(|()| None).map_err(LoadError::from),
            Task::Finish { epoch } => {
                let engine = std::mem::take(&mut chunks).restorer.finish(epoch);
                engine.map(|engine| Some(Box::new(engine))).map_err(LoadError::from)
            }
        };
        let failed = done.is_err();
        if results.send(done).is_err() || failed {
            return;
        }
    }
}

/// Applies chunks in order. A snapshot replaces everything before it when its end mark arrives; without an end mark it
/// is ignored.
#[derive(Default)]
struct ChunkApplier {
    restorer: Restorer,
    snapshot: Option<Restorer>,
}

impl ChunkApplier {
    fn apply(&mut self, position: Position, bytes: &[u8]) -> Result<(), LoadError> {
        let number = position.number;
        let chunk = decode(number, bytes).map_err(|source| LoadError::Chunk { number, source })?;
        match chunk.mark {
            Mark::None => {
                self.snapshot = None;
                self.restorer.apply(&chunk.records)?;
            }
            Mark::Begin => {
                let mut snapshot = Restorer::default();
                snapshot.apply(&chunk.records)?;
                self.snapshot = Some(snapshot);
            }
            // If the begin mark was cleaned away, everything older is gone too, so the snapshot was complete.
            Mark::Part => self.snapshot.as_mut().unwrap_or(&mut self.restorer).apply(&chunk.records)?,
            Mark::End => {
                if let Some(snapshot) = self.snapshot.take() {
                    self.restorer = snapshot;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use eclusa_core::gate::GateSpecs;
    use eclusa_core::{Chain, JobId, LaneSpec, Name, NewJob, Spec, Time, UpstreamSpec};

    use super::*;
    use crate::store::journal::redis::encode;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn engine() -> Engine {
        let upstream = UpstreamSpec::new(name("up"), GateSpecs::default());
        let lane = LaneSpec::new(name("work"), Chain::new(vec![name("up")]).unwrap());
        Engine::new(&Spec::new(vec![lane], vec![upstream]).unwrap())
    }

    fn enqueue(engine: &mut Engine, job: u128) -> Vec<u8> {
        engine.enqueue(vec![NewJob::new(JobId(job), name("work"), "acme", *b"x")], Time::from_millis(1));
        let mut records = Engine::begin_chunk();
        engine.save_changes(&mut records).unwrap();
        records
    }

    fn snapshot(engine: &Engine) -> Vec<u8> {
        let records = engine.snapshot().unwrap().concat();
        [Engine::begin_chunk(), records].concat()
    }

    fn chunk(number: u64, mark: Mark, records: &[u8]) -> (Position, Vec<u8>) {
        let at = Position { epoch: 1, number };
        (at, encode(at, mark, records).0)
    }

    /// A loader that has built an engine from the first chunk.
    fn ahead(first: (Position, Vec<u8>)) -> Loader {
        let mut loader = Loader::start().unwrap();
        loader.apply(vec![first]).unwrap();
        while !loader.build().unwrap() {}
        assert!(loader.engine.is_none(), "only the owner gets it");
        loader
    }

    fn finished(mut loader: Loader) -> Engine {
        while !loader.finish(1).unwrap() {}
        loader.into_engine().unwrap()
    }

    fn jobs(engine: &Engine) -> Vec<u128> {
        (1..9).filter(|id| engine.job(JobId(*id)).is_some()).collect()
    }

    #[test]
    fn an_engine_built_ahead_includes_chunks_applied_later() {
        let mut owner = engine();
        let mut loader = ahead(chunk(1, Mark::None, &enqueue(&mut owner, 1)));
        loader.apply(vec![chunk(2, Mark::None, &enqueue(&mut owner, 2))]).unwrap();
        while !loader.build().unwrap() {}
        loader.apply(vec![chunk(3, Mark::None, &enqueue(&mut owner, 3))]).unwrap();
        assert_eq!(jobs(&finished(loader)), [1, 2, 3]);
    }

    #[test]
    fn a_complete_snapshot_replaces_what_was_built() {
        for whole in [true, false] {
            let mut other = engine();
            enqueue(&mut other, 7);
            let mut loader = ahead(chunk(1, Mark::None, &enqueue(&mut engine(), 1)));
            loader.apply(vec![chunk(2, Mark::Begin, &snapshot(&other))]).unwrap();
            while !loader.build().unwrap() {}
            if whole {
                loader.apply(vec![chunk(3, Mark::End, &Engine::begin_chunk())]).unwrap();
                while !loader.build().unwrap() {}
                loader.apply(vec![chunk(4, Mark::None, &enqueue(&mut other, 8))]).unwrap();
            }
            assert_eq!(jobs(&finished(loader)), if whole { vec![7, 8] } else { vec![1] });
        }
    }

    #[test]
    fn a_chunk_that_does_not_fit_is_reported() {
        let mut loader = ahead(chunk(1, Mark::None, &enqueue(&mut engine(), 1)));
        assert!(matches!(loader.apply(vec![chunk(3, Mark::None, &[])]), Err(LoadError::Hole { .. })));
        let mut loader = ahead(chunk(1, Mark::None, &enqueue(&mut engine(), 1)));
        let (at, mut bytes) = chunk(2, Mark::None, &Engine::begin_chunk());
        bytes.push(0);
        loader.apply(vec![(at, bytes)]).unwrap();
        let failed = loop {
            match loader.build() {
                Ok(built) => assert!(!built),
                Err(error) => break error,
            }
        };
        assert!(matches!(failed, LoadError::Chunk { number: 2, .. }), "{failed}");
    }

    #[test]
    fn the_reason_is_reported_even_if_the_thread_is_gone() {
        let mut loader = Loader::start().unwrap();
        let (at, mut bytes) = chunk(1, Mark::None, &Engine::begin_chunk());
        bytes.push(0);
        loader.apply(vec![(at, bytes)]).unwrap();
        let failed = loop {
            if let Err(error) = loader.submit(Task::Build) {
                break error;
            }
        };
        assert!(matches!(failed, LoadError::Chunk { number: 1, .. }), "{failed}");
    }
}
