//! The lock on the directory.
//!
//! The lock is on two files: `lock`, and `high-water`, without which no journal can be opened. A process that finds
//! `lock` deleted and makes a new one still cannot open a journal that another process writes.

use std::fs::{File, Metadata, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::{JournalError, io_error};
use super::{high_water, private};

const NAME: &str = "lock";

/// Keeps other processes out of the directory while it lives.
pub(super) struct Lock {
    held: Vec<(PathBuf, File, Identity)>,
}

impl Lock {
    /// Locks the directory. Existing files are locked first, so that a refusal creates nothing.
    pub(super) fn take(dir: &Path) -> Result<Self, JournalError> {
        let mut lock = Self { held: Vec::new() };
        lock.hold_high_water(dir)?;
        let path = dir.join(NAME);
        let mut options = private();
        let file = options.write(true).create(true).truncate(false).open(&path);
        lock.hold(dir, path.clone(), file.map_err(io_error("open", &path))?)?;
        Ok(lock)
    }

    /// Locks the high-water file, unless there is none yet.
    pub(super) fn hold_high_water(&mut self, dir: &Path) -> Result<(), JournalError> {
        let path = dir.join(high_water::NAME);
        match File::options().write(true).open(&path) {
            Ok(file) => self.hold(dir, path, file),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io_error("open", &path)(error)),
        }
    }

    fn hold(&mut self, dir: &Path, path: PathBuf, file: File) -> Result<(), JournalError> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Locked { dir: dir.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
        }
        let identity = Identity::of(&file.metadata().map_err(io_error("look at", &path))?);
        self.held.push((path, file, identity));
        Ok(())
    }

    /// Checks that the directory still holds the locked files: deleted ones lock nothing.
    pub(super) fn check(&self) -> Result<(), JournalError> {
        self.held.iter().try_for_each(|(path, _, identity)| identity.check(path))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        for (_, file, _) in &self.held {
            // Closing the file is not enough: a child process that another thread is starting has a copy of it until
            // its exec and would hold the lock.
            let _ = file.unlock();
        }
    }
}

/// Identifies a file, whatever its name.
#[derive(PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Whether `path` still names it.
    pub(super) fn check(&self, path: &Path) -> Result<(), JournalError> {
        let what = match std::fs::metadata(path) {
            Ok(found) if Self::of(&found) == *self => return Ok(()),
            Ok(_) => "replaced",
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => "removed",
            Err(error) => return Err(io_error("look at", path)(error)),
        };
        Err(JournalError::TakenAway { path: path.to_owned(), what })
    }
}
