//! The high-water mark: the number of the last chunk that was promised durable.
//!
//! A log that lost its end looks like one whose last append was torn, so the end has to be recorded elsewhere. The mark
//! may lag behind what is durable, but never lead.
//!
//! The file has two slots on separate pages, written in turn, so a write that is torn by a power cut damages one slot
//! and leaves the other, which is one step older. The larger of the readable marks is the mark.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::error::{JournalError, io_error};
use super::{private, sync_dir};

pub(super) const NAME: &str = "high-water";
const UNFINISHED_NAME: &str = "high-water.new";

/// A slot opens with these and the version; then come mark and checksum, both big-endian.
const MAGIC: &[u8; 7] = b"ECLUSAH";
const VERSION: u8 = 1;
const SLOT_LEN: usize = MAGIC.len() + 1 + 8 + 8;

/// Slots do not share a page, so that no single write touches both.
const SLOT_OFFSETS: [u64; 2] = [0, 4096];

/// After how many raises the file is fsynced. An fsync for each would double the cost of an
/// append; this way, about once a second, a power cut can only make the mark too low.
const SYNC_EVERY: u32 = 1024;

pub(super) struct HighWater {
    file: File,
    path: PathBuf,
    mark: u64,
    /// The slot that the next write goes to: the one that does not hold the mark.
    next_slot: usize,
    /// How often the mark was raised since the file was last fsynced.
    unsynced: u32,
}

impl HighWater {
    /// Creates the file with mark 0. It appears under its name only once it is complete.
    pub(super) fn create(dir: &Path) -> Result<Self, JournalError> {
        let unfinished = dir.join(UNFINISHED_NAME);
        let path = dir.join(NAME);
        let file = private()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&unfinished)
            .map_err(io_error("create", &unfinished))?;
        // Writing both slots now allocates their blocks, so that no later write needs room.
        for offset in SLOT_OFFSETS {
            file.write_all_at(&encode(0), offset).map_err(io_error("write", &unfinished))?;
        }
        file.sync_all().map_err(io_error("fsync", &unfinished))?;
        std::fs::rename(&unfinished, &path).map_err(io_error("rename to", &path))?;
        sync_dir(dir)?;
        Ok(Self { file, path, mark: 0, next_slot: 0, unsynced: 0 })
    }

    /// The mark of an existing journal. `None` if there is no file, which is for the caller to judge.
    pub(super) fn find(dir: &Path) -> Result<Option<Self>, JournalError> {
        let path = dir.join(NAME);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("open", &path)(error)),
        };
        let [a, b] = SLOT_OFFSETS.map(|offset| read_slot(&file, offset, dir, &path));
        // A slot that cannot be read is `None`, which is the lesser of two.
        let (mark, next_slot) = match (a?, b?) {
            (a, b) if a > b => (a, 1),
            (_, b) => (b, 0),
        };
        let what = "damaged in both of its slots";
        let mark = mark.ok_or_else(|| JournalError::NoHighWater { dir: dir.to_owned(), what })?;
        Ok(Some(Self { file, path, mark, next_slot, unsynced: 0 }))
    }

    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    /// Raises the mark. It survives a crash of this process at once, and a power cut after at most [`SYNC_EVERY`]
    /// raises.
    pub(super) fn raise(&mut self, mark: u64) -> Result<(), JournalError> {
        if mark <= self.mark {
            return Ok(());
        }
        let offset = SLOT_OFFSETS[self.next_slot];
        self.file.write_all_at(&encode(mark), offset).map_err(io_error("write", &self.path))?;
        self.mark = mark;
        self.next_slot = 1 - self.next_slot;
        self.unsynced += 1;
        if self.unsynced >= SYNC_EVERY { self.sync() } else { Ok(()) }
    }

    /// Makes the current mark survive a power cut.
    pub(super) fn sync(&mut self) -> Result<(), JournalError> {
        if self.unsynced > 0 {
            self.file.sync_data().map_err(io_error("fsync", &self.path))?;
            self.unsynced = 0;
        }
        Ok(())
    }
}

fn encode(mark: u64) -> [u8; SLOT_LEN] {
    let mut slot = [0; SLOT_LEN];
    slot[..7].copy_from_slice(MAGIC);
    slot[7] = VERSION;
    slot[8..16].copy_from_slice(&mark.to_be_bytes());
    let sum = xxh3_64(&slot[..16]);
    slot[16..].copy_from_slice(&sum.to_be_bytes());
    slot
}

/// `None` for a slot that was torn or damaged.
fn read_slot(file: &File, offset: u64, dir: &Path, path: &Path) -> Result<Option<u64>, JournalError> {
    let mut slot = [0; SLOT_LEN];
    match file.read_exact_at(&mut slot, offset) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(io_error("read", path)(error)),
    }
    let (fields, sum) = slot.split_at(16);
    if sum != xxh3_64(fields).to_be_bytes() || !fields.starts_with(MAGIC) {
        return Ok(None);
    }
    // Here the checksum comes first: a newer release has to keep this slot layout, so that a damaged version byte can
    // be distinguished from a newer one and the other slot can still be used.
    if slot[7] > VERSION {
        return Err(JournalError::NewerVersion {
            what: "the high-water file".to_owned(),
            dir: dir.to_owned(),
            found: slot[7],
            known: VERSION,
        });
    }
    Ok(slot[8..16].first_chunk::<8>().map(|mark| u64::from_be_bytes(*mark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_matches_the_golden_file() {
        let hex = encode(42).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        assert_eq!(hex, include_str!("golden/high-water-slot.hex").trim());
    }

    fn mark_in(dir: &Path) -> Option<u64> {
        HighWater::find(dir).unwrap().map(|found| found.mark())
    }

    fn spoil(dir: &Path, offset: u64) {
        let file = OpenOptions::new().write(true).open(dir.join(NAME)).unwrap();
        file.write_all_at(&[0xff; SLOT_LEN], offset).unwrap();
    }

    #[test]
    fn the_last_mark_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        let mut high_water = HighWater::create(dir.path()).unwrap();
        for mark in 1..=9 {
            high_water.raise(mark).unwrap();
            assert_eq!(mark_in(dir.path()), Some(mark));
        }
    }

    #[test]
    fn a_torn_write_costs_one_step_at_most() {
        for torn in SLOT_OFFSETS {
            let dir = tempfile::tempdir().unwrap();
            let mut high_water = HighWater::create(dir.path()).unwrap();
            high_water.raise(41).unwrap();
            high_water.raise(42).unwrap();
            spoil(dir.path(), torn);
            assert!(mark_in(dir.path()) >= Some(41));
        }
    }

    #[test]
    fn the_slot_with_the_mark_is_not_the_next_to_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut high_water = HighWater::create(dir.path()).unwrap();
        for mark in 1..=5 {
            high_water.raise(mark).unwrap();
            let mut reopened = HighWater::find(dir.path()).unwrap().unwrap();
            let torn = SLOT_OFFSETS[reopened.next_slot];
            spoil(dir.path(), torn);
            assert_eq!(mark_in(dir.path()), Some(mark));
            reopened.sync().unwrap();
        }
    }

    #[test]
    fn two_damaged_slots_are_unreadable_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        HighWater::create(dir.path()).unwrap();
        SLOT_OFFSETS.into_iter().for_each(|offset| spoil(dir.path(), offset));
        assert!(matches!(HighWater::find(dir.path()), Err(JournalError::NoHighWater { .. })));
    }

    #[test]
    fn a_newer_slot_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        HighWater::create(dir.path()).unwrap();
        let mut slot = encode(1);
        slot[7] = 2;
        let sum = xxh3_64(&slot[..16]);
        slot[16..].copy_from_slice(&sum.to_be_bytes());
        let file = OpenOptions::new().write(true).open(dir.path().join(NAME)).unwrap();
        file.write_all_at(&slot, 0).unwrap();
        let found = HighWater::find(dir.path());
        assert!(matches!(found, Err(JournalError::NewerVersion { found: 2, .. })));
    }
}
