//! The one writer that takes staged changes to the journal, in groups.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use eclusa_core::{Engine, Mentions, StoreError, Time};
use tokio::sync::SetOnce;

use super::journal::{Journal, JournalError};

/// How often written chunks are taken to the disk when that is not done at once.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Below this the journal is not worth cleaning.
const MIN_CLEAN_BYTES: u64 = 64 << 20;

/// Bytes of old chunks looked through for each byte written.
const CLEAN_PER_BYTE: i64 = 2;

/// Tells all who wait for a group when it is durable, or that it will never be.
pub(super) type Durable = Arc<SetOnce<Result<(), StoreError>>>;

/// The engine and what of its changes is not in the journal yet.
pub(super) struct Stage {
    state: Mutex<State>,
    /// Something was staged, or the store is closing.
    staged: Condvar,
}

struct State {
    engine: Engine,
    journaled: bool,
    chunk: Vec<u8>,
    /// For those who wait for what is staged, or for what was being written when they looked.
    group: Option<Durable>,
    /// The group that is being written.
    writing: Option<Durable>,
    closing: bool,
    stopped: Option<Arc<str>>,
}

impl Stage {
    pub(super) fn new(engine: Engine, journaled: bool) -> Self {
        let state = State {
            engine,
            journaled,
            chunk: Engine::begin_chunk(),
            group: None,
            writing: None,
            closing: false,
            stopped: None,
        };
        Self { state: Mutex::new(state), staged: Condvar::new() }
    }

    /// A verb that panicked left the engine in an unknown state; going on would make that durable.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            let mut state = poisoned.into_inner();
            state.stopped.get_or_insert_with(|| "a rule failed unexpectedly; see the log".into());
            state
        })
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        look(&self.lock().engine)
    }

    /// Runs a verb. The answer may be told once the second part says so, or at once if there is none.
    pub(super) fn run<T>(
        &self,
        clock: Time,
        verb: impl FnOnce(&mut Engine, Time) -> T,
    ) -> Result<(T, Option<Durable>), StoreError> {
        let mut state = self.lock();
        if let Some(cause) = state.stopped.clone() {
            return Err(StoreError::Stopped { cause });
        }
        let now = state.engine.now(clock);
        let answer = verb(&mut state.engine, now);
        if !state.journaled {
            state.engine.forget_changes();
            return Ok((answer, None));
        }
        state.save()?;
        if state.writing.is_none() && !state.has_staged() {
            return Ok((answer, None));
        }
        // The writer sleeps only while nobody waits, so only the first need wake it: that is a call to the system.
        let asleep = state.writing.is_none() && state.group.is_none();
        let durable = state.group.get_or_insert_default().clone();
        drop(state);
        if asleep {
            self.staged.notify_one();
        }
        Ok((answer, Some(durable)))
    }
}

impl State {
    fn has_staged(&self) -> bool {
        self.chunk.len() > Engine::begin_chunk().len()
    }

    fn save(&mut self) -> Result<(), StoreError> {
        let State { engine, chunk, .. } = self;
        engine.save_changes(chunk).map_err(|error| self.stop(&error.to_string()))
    }

    /// Nothing more becomes durable: not the group that was being written, nor the one that waits.
    fn give_up(&mut self, cause: &str) {
        let stopped = self.stop(cause);
        let groups = [self.writing.take(), self.group.take()];
        groups.iter().flatten().for_each(|group| tell(group, Err(stopped.clone())));
    }

    fn stop(&mut self, cause: &str) -> StoreError {
        let cause = self.stopped.get_or_insert_with(|| cause.into()).clone();
        StoreError::Stopped { cause }
    }
}

fn tell(group: &SetOnce<Result<(), StoreError>>, how: Result<(), StoreError>) {
    // Told once: each group is taken from the stage by one, who tells it.
    let _ = group.set(how);
}

/// The thread that writes.
pub(super) struct Writer {
    thread: JoinHandle<()>,
}

impl Writer {
    pub(super) fn start(stage: Arc<Stage>, mut journal: Journal) -> io::Result<Self> {
        let work = move || {
            let written = catch_unwind(AssertUnwindSafe(|| write_groups(&stage, &mut journal)));
            let failed = match written {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the journal's writer failed unexpectedly; see the log".to_owned(),
            };
            stage.lock().give_up(&failed);
        };
        let thread = thread::Builder::new().name("eclusa-journal".into()).spawn(work)?;
        Ok(Self { thread })
    }

    /// Writes what is staged and ends.
    pub(super) fn finish(self, stage: &Stage) {
        stage.lock().closing = true;
        stage.staged.notify_one();
        drop(self.thread.join());
    }
}

/// Takes groups to the journal until the store is closed.
fn write_groups(stage: &Stage, journal: &mut Journal) -> Result<(), JournalError> {
    let mut synced = monotonic_now();
    let mut cleaning = Cleaning::default();
    loop {
        let keep_from = clean(stage, journal, &mut cleaning)?;
        let mut state = wait_for_work(stage);
        let closing = state.closing;
        let has_staged = state.has_staged();
        let chunk = std::mem::replace(&mut state.chunk, Engine::begin_chunk());
        cleaning.earn(&chunk);
        state.writing = Some(state.group.take().unwrap_or_default());
        drop(state);
        let mut written = if has_staged { journal.append(&chunk, keep_from).map(drop) } else { Ok(()) };
        if closing || monotonic_now() - synced >= SYNC_EVERY {
            written = written.and_then(|()| journal.sync());
            synced = monotonic_now();
        }
        let mut state = stage.lock();
        if let Err(error) = written {
            // Before anybody else can look: what the engine holds now will not be there after a restart.
            state.stop(&error.to_string());
            return Err(error);
        }
        let group = state.writing.take();
        drop(state);
        group.iter().for_each(|group| tell(group, Ok(())));
        if closing {
            return Ok(());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how often the disk is asked to sync is no rule of the engine")]
fn monotonic_now() -> Instant {
    Instant::now()
}

/// Waits until something is staged or asked for, the store closes, or it is time to sync.
fn wait_for_work(stage: &Stage) -> MutexGuard<'_, State> {
    let idle = |state: &mut State| !state.has_staged() && state.group.is_none() && !state.closing;
    let waited = stage.staged.wait_timeout_while(stage.lock(), SYNC_EVERY, idle);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// What cleaning has found out and may spend.
#[derive(Default)]
struct Cleaning {
    /// Bytes of old chunks that may be looked through. Earned by what callers write and not by what cleaning itself
    /// writes anew, so that it can never feed on itself.
    credit: i64,
    /// Bytes staged by cleaning that are not in the journal yet.
    staged: i64,
}

impl Cleaning {
    /// Counts a chunk that goes to the journal. What is not spent while there is nothing to clean is not saved up.
    fn earn(&mut self, chunk: &[u8]) {
        let by_callers = len(chunk) - std::mem::take(&mut self.staged);
        self.credit = self.credit.min(0) + CLEAN_PER_BYTE * by_callers;
    }
}

/// Stages what is still alive in the oldest chunks, so that they can go with the next one; says from which chunk on
/// the journal is then needed. Keeps the journal within a few times of what it would be if it held each thing once,
/// a little with every commit.
fn clean(stage: &Stage, journal: &Journal, cleaning: &mut Cleaning) -> Result<u64, JournalError> {
    let mut keep_from = journal.first();
    let bound = stage.look(Engine::footprint) * 4 + MIN_CLEAN_BYTES;
    while cleaning.credit > 0 && journal.bytes() > bound && keep_from <= journal.last() {
        let chunk = journal.read(keep_from)?;
        cleaning.credit -= len(&chunk);
        let mentions =
            Mentions::read(&chunk).map_err(|error| journal.damaged(keep_from, &error.to_string()))?;
        let mut state = stage.lock();
        if state.stopped.is_some() {
            break;
        }
        let before = len(&state.chunk);
        state.engine.refresh(&mentions);
        state.save().map_err(|error| journal.damaged(keep_from, &error.to_string()))?;
        cleaning.staged += len(&state.chunk) - before;
        keep_from += 1;
    }
    Ok(keep_from)
}

fn len(chunk: &[u8]) -> i64 {
    i64::try_from(chunk.len()).unwrap_or(i64::MAX)
}
