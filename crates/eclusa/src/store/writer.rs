//! The one thread that takes groups of changes to a journal on disk.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use eclusa_core::{Engine, Mentions, StoreError};

use super::cleaning::{Bound, Cleaning};
use super::doorbell::Doorbell;
use super::journal::JournalError;
use super::journal::file::Journal;
use super::stage::{Stage, tell};

/// How often written chunks are taken to the disk when that is not done at once.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// How much longer than the data that lives the journal may be: disk is cheap.
const BOUND: Bound = Bound { per_mille: 4_000, extra_bytes: 64 << 20, looked_per_byte: 2 };

/// The thread that writes.
pub(super) struct Writer {
    thread: JoinHandle<()>,
    doorbell: Arc<Doorbell>,
    closing: Arc<AtomicBool>,
}

impl Writer {
    pub(super) fn start(
        stage: Arc<Stage>,
        mut journal: Journal,
        doorbell: Arc<Doorbell>,
    ) -> io::Result<Self> {
        let closing = Arc::new(AtomicBool::new(false));
        let (bell, closes) = (doorbell.clone(), closing.clone());
        let work = move || {
            let written =
                catch_unwind(AssertUnwindSafe(|| write_groups(&stage, &mut journal, &bell, &closes)));
            let failed = match written {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(_) => stopped("the journal's writer failed unexpectedly; see the log"),
            };
            stage.stop(failed);
        };
        let thread = thread::Builder::new().name("eclusa-journal".into()).spawn(work)?;
        Ok(Self { thread, doorbell, closing })
    }

    /// Writes what is staged and ends.
    pub(super) fn finish(self) {
        self.closing.store(true, Ordering::Release);
        self.doorbell.ring();
        drop(self.thread.join());
    }
}

/// Takes groups to the journal until the store is closed.
fn write_groups(
    stage: &Stage,
    journal: &mut Journal,
    doorbell: &Doorbell,
    closing: &AtomicBool,
) -> Result<(), StoreError> {
    let mut synced = monotonic_now();
    let mut cleaning = Cleaning::default();
    loop {
        let closing = closing.load(Ordering::Acquire);
        let keep_from = clean(stage, journal, &mut cleaning).map_err(|error| stopped(&error.to_string()))?;
        let group = stage.take_group()?;
        let idle = group.is_none();
        let mut written = Ok(());
        if let Some(group) = &group
            && !group.records.is_empty()
        {
            cleaning.earn(group.records.len());
            written = journal.append(&group.records, keep_from).map(drop);
        }
        if closing || monotonic_now() - synced >= SYNC_EVERY {
            written = written.and_then(|()| journal.sync());
            synced = monotonic_now();
        }
        if let Err(error) = written {
            // Before anybody else can look: what the engine holds now will not be there after a restart.
            let error = stopped(&error.to_string());
            stage.stop(error.clone());
            group.iter().for_each(|group| tell(&group.durable, Err(error.clone())));
            return Err(error);
        }
        stage.written();
        group.iter().for_each(|group| tell(&group.durable, Ok(())));
        if closing && idle {
            return Ok(());
        }
        if idle {
            doorbell.sleep(SYNC_EVERY);
        }
    }
}

fn stopped(cause: &str) -> StoreError {
    StoreError::Stopped { cause: cause.into() }
}

#[expect(clippy::disallowed_methods, reason = "how often the disk is asked to sync is no rule of the engine")]
fn monotonic_now() -> Instant {
    Instant::now()
}

/// Stages what is still alive in the oldest chunks, so that they can go with the next one; says from which chunk on
/// the journal is then needed.
fn clean(stage: &Stage, journal: &Journal, cleaning: &mut Cleaning) -> Result<u64, JournalError> {
    let mut keep_from = journal.first();
    let live = stage.look(Engine::footprint);
    while cleaning.is_due(journal.bytes(), live, &BOUND) && keep_from <= journal.last() {
        let chunk = journal.read(keep_from)?;
        cleaning.spend(chunk.len(), &BOUND);
        let mentions =
            Mentions::read(&chunk).map_err(|error| journal.damaged(keep_from, &error.to_string()))?;
        stage.refresh(&mentions);
        keep_from += 1;
    }
    Ok(keep_from)
}
