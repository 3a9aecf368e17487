//! Making journals, and copies of them to spoil.

use std::path::{Path, PathBuf};

use super::super::{Ack, FileJournal, JournalError};
use tempfile::TempDir;

/// What a journal handed to replay.
pub(super) type Chunks = Vec<(u64, Vec<u8>)>;

/// The bytes before each body; the tests have to know where frames begin to spoil them.
pub(super) const HEADER: usize = 32;

/// A directory in memory where there is one: the damage tests open some thousand logs, and the
/// fsyncs of a disk would add nothing to what they find.
pub(super) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

pub(super) fn open(dir: &Path, ack: Ack) -> Result<(FileJournal, Chunks), JournalError> {
    let mut chunks = Vec::new();
    let journal = FileJournal::open(dir, ack, |number, body| {
        chunks.push((number, body.to_vec()));
        Ok::<_, String>(())
    })?;
    Ok((journal, chunks))
}

/// A body that tells chunks apart and is long enough to hit with a flipped bit.
pub(super) fn body(number: u64) -> Vec<u8> {
    let len = 40 + (number as usize * 37) % 200;
    (0..len).map(|at| (number as usize * 31 + at * 7) as u8).collect()
}

pub(super) fn expected(numbers: std::ops::RangeInclusive<u64>) -> Chunks {
    numbers.map(|number| (number, body(number))).collect()
}

/// Appends chunks up to `last`, letting go of all but the newest `kept`.
pub(super) fn fill(journal: &mut FileJournal, last: u64, kept: u64) {
    while journal.last() < last {
        let number = journal.last() + 1;
        let keep_from = (number + 1).saturating_sub(kept);
        assert_eq!(journal.append(&body(number), keep_from).unwrap(), number);
    }
}

pub(super) fn segment(first: u64) -> PathBuf {
    PathBuf::from(format!("{first:020}.log"))
}

/// How many bytes the frames of some chunks take.
pub(super) fn frames_len(numbers: std::ops::Range<u64>) -> usize {
    numbers.map(|number| HEADER + body(number).len()).sum()
}

/// Divides the segment that begins with `first` before chunk `at`, which the journal does by
/// itself only after 32 MiB.
pub(super) fn split(dir: &Path, first: u64, at: u64) {
    let mut head = std::fs::read(dir.join(segment(first))).unwrap();
    let tail = head.split_off(frames_len(first..at));
    std::fs::write(dir.join(segment(first)), head).unwrap();
    std::fs::write(dir.join(segment(at)), tail).unwrap();
}

/// All files of a directory, to be written out again and again.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Image {
    pub(super) files: Vec<(PathBuf, Vec<u8>)>,
}

impl Image {
    pub(super) fn of(dir: &Path) -> Self {
        let mut files: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into(), std::fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        Self { files }
    }

    pub(super) fn write(&self) -> TempDir {
        let dir = scratch();
        for (name, bytes) in &self.files {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        dir
    }

    pub(super) fn file(&mut self, name: &Path) -> &mut Vec<u8> {
        self.files.iter_mut().find(|(found, _)| found == name).map(|(_, bytes)| bytes).unwrap()
    }
}
