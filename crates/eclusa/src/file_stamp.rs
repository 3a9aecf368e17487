//! Tells whether a file was changed or replaced.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// One state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    /// When the file was last written: seconds and nanoseconds.
    pub(crate) modified: (i64, i64),
}

impl From<&Metadata> for FileStamp {
    fn from(file: &Metadata) -> Self {
        Self { inode: file.ino(), bytes: file.size(), modified: (file.mtime(), file.mtime_nsec()) }
    }
}
