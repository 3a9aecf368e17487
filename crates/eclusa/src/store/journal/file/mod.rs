//! The durable log under the embedded store: opaque chunks, numbered 1, 2, 3, and so on.
//!
//! The owner appends at the tail and releases the oldest chunks at the head. What the journal promises:
//!
//! - An acknowledged chunk comes back at the next opening, or the opening fails. It is never
//!   silently missing, whatever was cut off or flipped on disk meanwhile: chunks carry checksums
//!   and the number of the oldest chunk that must exist along with them, and a high-water mark kept
//!   outside the log says where it has to end.
//! - The owner chooses what "acknowledged" means, see [`Ack`].
//! - A failed write is final. The tail of the file is then in an unknown state, and a retried
//!   fsync may claim success for pages that the kernel already dropped, so nothing more is accepted
//!   until the journal was opened, and thereby verified, again. The chunk whose append failed
//!   may or may not be there then.
//! - A refused opening has changed nothing.
//! - A journal whose directory, lock or newest segment is removed or replaced stops with the next
//!   fsync, which with [`Ack::Write`] comes within a second, and no second process can open it before.
//!
//! One directory holds `lock`, `high-water` and the segments, `<number of the first chunk>.log`.

mod error;
mod frame;
mod high_water;
mod lock;
mod recovery;
mod segment;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use eclusa_core::Mentions;

pub use error::JournalError;
use error::io_error;

use high_water::HighWater;
use lock::{Identity, Lock};
use segment::{SEGMENT_BYTES, Segment};

use super::{ChunkSummary, Journal};
use crate::store::Ack;

/// The largest chunk that is accepted, in bytes.
pub(super) const MAX_CHUNK_BYTES: usize = 1 << 30;

/// An open journal. One per directory, across all processes.
pub(in crate::store) struct FileJournal {
    /// The segments before the active one, oldest first. They are complete and fsynced.
    sealed: Vec<Segment>,
    active: Segment,
    /// The file of the active segment, in append mode.
    file: File,
    high_water: HighWater,
    ack: Ack,
    /// The oldest chunk held; one past `last` when there is none.
    first: u64,
    /// The newest chunk held; 0 when there was never one.
    last: u64,
    /// The first failure, after which nothing more is accepted.
    stopped: Option<String>,
    dir: PathBuf,
    /// The last field, so that it outlives all that it guards.
    lock: Lock,
}

impl FileJournal {
    /// Opens the journal in `dir`, or creates it, and hands every chunk in order to `replay`.
    ///
    /// Chunks are verified as they are handed out: when this fails, discard what was replayed.
    /// When it succeeds, all that was replayed is durable, whatever the last owner was promised.
    pub(in crate::store) fn open<E>(
        dir: &Path,
        ack: Ack,
        replay: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Self, JournalError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        create_dir(dir)?;
        let mut lock = Lock::take(dir)?;
        let mut segments = Segment::list(dir)?;
        let high_water = match HighWater::find(dir)? {
            Some(high_water) => high_water,
            // It is created before the first segment, so a creation was cut short.
            None if segments.iter().all(|only| only.first == 1 && only.len == 0) => {
                let high_water = HighWater::create(dir)?;
                lock.hold_high_water(dir)?;
                high_water
            }
            None => return Err(JournalError::NoHighWater { dir: dir.to_owned(), what: "missing" }),
        };
        let extent = recovery::find_extent(dir, &segments, high_water.mark(), ack)?;
        recovery::replay(dir, &mut segments, &extent, replay)?;
        let (active, file) = match segments.pop() {
            Some(newest) => reopen(newest)?,
            None => Segment::create(dir, 1)?,
        };
        let mut journal = Self {
            sealed: segments,
            active,
            file,
            high_water,
            ack,
            first: extent.first,
            last: extent.last,
            stopped: None,
            dir: dir.to_owned(),
            lock,
        };
        // The process before may have died between an append and its fsync, or between the
        // creation of a segment and the fsync of the directory.
        sync_dir(dir)?;
        journal.sync()?;
        Ok(journal)
    }

    /// Appends one chunk and atomically releases all chunks before `keep_from`. Returns the chunk's number. After a
    /// failure the journal accepts nothing more.
    pub(in crate::store) fn append(&mut self, chunk: &[u8], keep_from: u64) -> Result<u64, JournalError> {
        self.check_running()?;
        let number = self.last + 1;
        if keep_from > number {
            return Err(JournalError::KeepFromAhead { keep_from, number });
        }
        if chunk.len() > MAX_CHUNK_BYTES {
            return Err(JournalError::ChunkTooLarge { len: chunk.len(), max: MAX_CHUNK_BYTES });
        }
        // Chunks that are gone cannot be kept: an older keep_from has no effect.
        let first = keep_from.max(self.first);
        let written = self.write(&frame::encode(number, first, chunk), number, first);
        // Checked afterwards, so that a chunk on disk is known to be in the directory.
        let written = written.and_then(|()| if self.ack == Ack::Fsync { self.check_place() } else { Ok(()) });
        self.stop_on_error(written)?;
        Ok(number)
    }

    /// Reads one chunk back, verified.
    pub(in crate::store) fn read(&self, number: u64) -> Result<Vec<u8>, JournalError> {
        if number < self.first || number > self.last {
            return Err(JournalError::NotHeld { number, first: self.first, last: self.last });
        }
        let sealed = self.sealed.iter().find(|segment| number < segment.next());
        sealed.unwrap_or(&self.active).read(&self.dir, number)
    }

    /// The newest chunk held; 0 when there was never one.
    pub(in crate::store) fn last(&self) -> u64 {
        self.last
    }

    /// Whether the next chunk may begin a new segment, which takes time: the full one is fsynced.
    pub(in crate::store) fn is_segment_full(&self) -> bool {
        self.active.len > SEGMENT_BYTES - SEGMENT_BYTES / 32
    }

    /// Fsyncs all that was appended and promises it. The owner calls this each second with
    /// [`Ack::Write`], and at shutdown.
    pub(in crate::store) fn sync(&mut self) -> Result<(), JournalError> {
        self.check_running()?;
        let synced = self.sync_and_promise().and_then(|()| self.check_place());
        self.stop_on_error(synced)
    }

    fn write(&mut self, frame: &[u8], number: u64, first: u64) -> Result<(), JournalError> {
        if self.active.len > 0 && self.active.len + frame.len() as u64 > SEGMENT_BYTES {
            self.rotate()?;
        }
        self.file.write_all(frame).map_err(io_error("append to", &self.active.path))?;
        if self.ack == Ack::Fsync {
            self.file.sync_data().map_err(io_error("fsync", &self.active.path))?;
            self.high_water.raise(number)?;
        }
        self.active.grow(frame.len());
        self.first = first;
        self.last = number;
        if self.ack == Ack::Fsync { self.remove_old() } else { Ok(()) }
    }

    /// Begins a new segment. The full one is fsynced whatever the mode: only the newest segment
    /// may end in a torn append.
    fn rotate(&mut self) -> Result<(), JournalError> {
        self.sync_and_promise()?;
        let (segment, file) = Segment::create(&self.dir, self.last + 1)?;
        self.file = file;
        self.sealed.push(std::mem::replace(&mut self.active, segment));
        Ok(())
    }

    /// The order matters: a mark that survives a power cut in which its chunk was lost would make an intact log look
    /// damaged.
    fn sync_and_promise(&mut self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(io_error("fsync", &self.active.path))?;
        self.high_water.raise(self.last)?;
        self.high_water.sync()?;
        self.remove_old()
    }

    /// Removes the segments of which no chunk is held. Must be called only when the newest chunk is durable: if a power
    /// cut removed it, the one before it would need these segments again.
    fn remove_old(&mut self) -> Result<(), JournalError> {
        while let Some(oldest) = self.sealed.first().filter(|oldest| oldest.next() <= self.first) {
            std::fs::remove_file(&oldest.path).map_err(io_error("remove", &oldest.path))?;
            self.sealed.remove(0);
        }
        Ok(())
    }

    /// Checks that the directory still holds this journal: removed files can still be written to, but are lost.
    fn check_place(&self) -> Result<(), JournalError> {
        self.lock.check()?;
        let active = self.file.metadata().map_err(io_error("look at", &self.active.path))?;
        Identity::of(&active).check(&self.active.path)
    }

    fn check_running(&self) -> Result<(), JournalError> {
        match &self.stopped {
            None => Ok(()),
            Some(cause) => Err(JournalError::Stopped { dir: self.dir.clone(), cause: cause.clone() }),
        }
    }

    fn stop_on_error(&mut self, result: Result<(), JournalError>) -> Result<(), JournalError> {
        result.inspect_err(|error| self.stopped = Some(error.to_string()))
    }
}

impl Journal for FileJournal {
    type Position = u64;
    type Error = JournalError;

    /// The total size of the segments on disk. Released chunks count until their segment is removed.
    fn bytes(&self) -> u64 {
        self.active.len + self.sealed.iter().map(|segment| segment.len).sum::<u64>()
    }

    fn newest(&self) -> Option<u64> {
        (self.last >= self.first).then_some(self.last)
    }

    fn after(&self, position: u64) -> Option<u64> {
        let next = self.first.max(position + 1);
        (next <= self.last).then_some(next)
    }

    fn read_after(&mut self, position: u64, bytes: u64) -> Result<Vec<ChunkSummary<u64>>, JournalError> {
        let (mut chunks, mut last, mut read) = (Vec::new(), position, 0);
        while let Some(number) = self.after(last).filter(|_| chunks.is_empty() || read < bytes) {
            let chunk = self.read(number)?;
            let mentions = Mentions::read(&chunk);
            let mentions = mentions.map_err(|error| error::damaged(&self.dir, number, error.to_string()))?;
            chunks.push(ChunkSummary { position: number, bytes: chunk.len() as u64, mentions });
            (last, read) = (number, read + chunk.len() as u64);
        }
        Ok(chunks)
    }

    /// Makes the next chunk begin a new segment: segments are removed whole.
    fn seal(&mut self) -> Result<(), JournalError> {
        self.check_running()?;
        if self.active.len == 0 {
            return Ok(());
        }
        let rotated = self.rotate();
        self.stop_on_error(rotated)
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        if self.stopped.is_none() {
            // A failure cannot be reported any more, and only makes the mark too low.
            let _ = self.high_water.sync();
        }
    }
}

/// Opens the newest segment for appending, without the torn append that may follow its end.
fn reopen(newest: Segment) -> Result<(Segment, File), JournalError> {
    let path = &newest.path;
    let file = File::options().append(true).open(path).map_err(io_error("open", path))?;
    if file.metadata().map_err(io_error("look at", path))?.len() > newest.len {
        file.set_len(newest.len).and_then(|()| file.sync_all()).map_err(io_error("cut", path))?;
    }
    Ok((newest, file))
}

/// Options for new files, which only the user of this process may read: they hold the payloads of jobs.
fn private() -> OpenOptions {
    let mut options = File::options();
    options.mode(0o600);
    options
}

/// Creates the directory and those above it, for this user only, and makes their names durable.
fn create_dir(dir: &Path) -> Result<(), JournalError> {
    let absolute = std::path::absolute(dir).map_err(io_error("find", dir))?;
    let missing: Vec<&Path> = absolute.ancestors().take_while(|path| !path.exists()).collect();
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.map_err(io_error("create the directory", dir))?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_dir)
}

/// Makes renames and new files in `dir` survive a power cut.
fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("fsync", dir))
}
