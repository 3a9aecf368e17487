//! Writes groups of changes to a journal on disk: on a dedicated thread, or on that of the caller that began the group.
//!
//! If a group is acknowledged once it is written, writing it takes less time than waking another thread and being woken
//! by it, so callers do it themselves. Whatever may take longer is left to the thread: fsyncs, new segments, and groups
//! that arrive during another write.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use eclusa_core::{Mentions, StoreError};

use super::aging::Aging;
use super::cleaning::{Bound, Cleaner};
use super::doorbell::Doorbell;
use super::gate_log::{Decided, log_changes};
use super::group::{Group, resolve};
use super::journal::file::FileJournal;
use super::journal::{ChunkSummary, Journal};
use super::stage::Stage;

/// How often written chunks are fsynced when that is not done at once.
const SYNC_EVERY: Duration = Duration::from_secs(1);

const PANICKED: &str = "the journal's writer failed unexpectedly; see the log";

/// How much larger than the live data the journal may be: disk is cheap.
const BOUND: Bound = Bound { per_mille: 4_000, extra_bytes: 64 << 20, looked_per_byte: 2, at_once: 32 << 20 };

/// Where groups are written, by one thread at a time.
pub(super) struct Desk {
    work: Mutex<DeskWork>,
    /// The size of the journal.
    bytes: AtomicU64,
}

struct DeskWork {
    journal: FileJournal,
    cleaner: Cleaner<u64>,
}

impl Desk {
    pub(super) fn new(journal: FileJournal, aging: Aging<u64>) -> Self {
        let bytes = AtomicU64::new(journal.bytes());
        Self { work: Mutex::new(DeskWork { journal, cleaner: Cleaner::new(BOUND, aging) }), bytes }
    }

    /// Writes what is staged if that can be done at once; returns whether it was.
    pub(super) fn write_now(&self, stage: &Stage) -> bool {
        let Ok(mut work) = self.work.try_lock() else { return false };
        if work.journal.is_segment_full() {
            return false;
        }
        if let Err(error) = work.write_group(stage) {
            stage.stop(error);
        }
        self.bytes.store(work.journal.bytes(), Ordering::Relaxed);
        true
    }

    /// How long the journal is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl DeskWork {
    /// Writes what is staged to the journal; returns whether there was anything.
    fn write_group(&mut self, stage: &Stage) -> Result<bool, StoreError> {
        let keep_from = self.cleaner.clean(stage, &mut self.journal);
        let keep_from = keep_from.map_err(|error| stopped(&error.to_string()))?;
        let keep_from = keep_from.unwrap_or(self.journal.last() + 1);
        let Some(group) = stage.take_group()? else { return Ok(false) };
        let Group { records, mentions, durable, gates, .. } = group;
        let appended = catch_unwind(AssertUnwindSafe(|| self.append(&records, mentions, keep_from)));
        let appended = appended.unwrap_or_else(|_| Err(stopped(PANICKED)));
        match &appended {
            Ok(()) => stage.written(),
            // Before any other caller can look: the engine's state will not be there after a restart.
            Err(error) => stage.stop(error.clone()),
        }
        resolve(&durable, appended.clone());
        if appended.is_ok() {
            log_changes(&gates, Decided::Here);
        }
        appended.map(|()| true)
    }

    fn append(&mut self, records: &[u8], mentions: Mentions, keep_from: u64) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        let position =
            self.journal.append(records, keep_from).map_err(|error| stopped(&error.to_string()))?;
        self.cleaner.note(ChunkSummary { position, bytes: records.len() as u64, mentions });
        Ok(())
    }
}

/// The writing thread.
pub(super) struct Writer {
    thread: JoinHandle<()>,
    doorbell: Arc<Doorbell>,
    closing: Arc<AtomicBool>,
}

impl Writer {
    pub(super) fn start(stage: Arc<Stage>, desk: Arc<Desk>, doorbell: Arc<Doorbell>) -> io::Result<Self> {
        let closing = Arc::new(AtomicBool::new(false));
        let (bell, closes) = (doorbell.clone(), closing.clone());
        let work = move || {
            let written = catch_unwind(AssertUnwindSafe(|| write_groups(&stage, &desk, &bell, &closes)));
            if let Err(error) = written.unwrap_or_else(|_| Err(stopped(PANICKED))) {
                stage.stop(error);
            }
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

/// Writes groups to the journal until the store is closed.
fn write_groups(
    stage: &Stage,
    desk: &Desk,
    doorbell: &Doorbell,
    closing: &AtomicBool,
) -> Result<(), StoreError> {
    let mut synced = monotonic_now();
    loop {
        let closing = closing.load(Ordering::Acquire);
        // After a panic nothing more is written: the journal verifies itself when it is opened again.
        let mut work = desk.work.lock().map_err(|_| stopped(PANICKED))?;
        let DeskWork { journal, cleaner } = &mut *work;
        cleaner.age(stage, journal).map_err(|error| stopped(&error.to_string()))?;
        let idle = !work.write_group(stage)?;
        if closing || monotonic_now() - synced >= SYNC_EVERY {
            work.journal.sync().map_err(|error| stopped(&error.to_string()))?;
            synced = monotonic_now();
        }
        desk.bytes.store(work.journal.bytes(), Ordering::Relaxed);
        drop(work);
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

#[expect(clippy::disallowed_methods, reason = "how often the disk is synced is not a rule of the engine")]
fn monotonic_now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use eclusa_core::gate::GateSpecs;
    use eclusa_core::{Chain, Clock, Engine, JobId, LaneSpec, Name, NewJob, Spec, Time, UpstreamSpec};

    use super::*;
    use crate::config::{Ack, SHORTEST_FORGET_WITHIN};
    use crate::store::JournalError;

    /// In milliseconds.
    #[derive(Default)]
    struct ManualClock(AtomicU64);

    impl Clock for ManualClock {
        fn now(&self) -> Time {
            Time::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_pass_removes_its_last_chunks_even_if_nothing_in_them_is_alive_and_nobody_writes() {
        let dir = tempfile::tempdir().unwrap();
        let journal = FileJournal::open(dir.path(), Ack::Fsync, |_, _| Ok::<_, JournalError>(())).unwrap();
        let clock = Arc::new(ManualClock::default());
        let (lane, up) = (Name::new("work").unwrap(), Name::new("up").unwrap());
        let rules = LaneSpec::new(lane.clone(), Chain::new(vec![up.clone()]).unwrap());
        let spec = Spec::new(vec![rules], vec![UpstreamSpec::new(up, GateSpecs::default())]).unwrap();
        let stage = Stage::new(Engine::new(&spec), clock.clone(), Some(Arc::new(Doorbell::default())), None);
        let aging = Aging::new(SHORTEST_FORGET_WITHIN, clock.now());
        let mut desk = DeskWork { journal, cleaner: Cleaner::new(BOUND, aging) };
        let job = NewJob::new(JobId(1), lane, "acme", vec![b'x'; 1_000]);
        drop(stage.run(|engine, now| engine.enqueue(vec![job], now)).unwrap());
        assert!(desk.write_group(&stage).unwrap());
        for _ in 0..20 {
            desk.journal.append(&Engine::begin_chunk(), 0).unwrap();
        }
        let last = desk.journal.last();
        // One pass: it begins with the first look and takes one and a half seconds.
        for _ in 0..3 {
            clock.0.fetch_add(1_000, Ordering::Relaxed);
            desk.cleaner.age(&stage, &mut desk.journal).unwrap();
            desk.write_group(&stage).unwrap();
        }
        let first = desk.journal.after(0);
        assert!(first.is_none_or(|first| first > last), "{first:?} is still there, and {last} was the last");
        assert_eq!(stage.look(|engine| engine.lanes(Time::default())[0].queued.iter().sum::<u64>()), 1);
    }
}
