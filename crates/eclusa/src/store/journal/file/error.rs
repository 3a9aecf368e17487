//! What can go wrong with a journal, in words an operator can act on.

use std::io;
use std::path::{Path, PathBuf};

/// Every message names the place and says what to do next, because its reader is usually looking at a server that does
/// not start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum JournalError {
    /// The operating system refused something.
    #[error(
        "could not {what} {}: {source}. Check that the disk is healthy and has room, and that this user may write there",
        path.display()
    )]
    Io { what: &'static str, path: PathBuf, source: io::Error },

    /// Another process, or another `Journal` in this one, has the directory.
    #[error(
        "the journal in {} is in use by another process. Stop that process, or give this one a separate directory",
        dir.display()
    )]
    Locked { dir: PathBuf },

    /// A file of the open journal was deleted or replaced.
    #[error(
        "{} was {what} while the journal was in use. Nothing more is accepted. Put the directory back as it was and start again",
        path.display()
    )]
    TakenAway { path: PathBuf, what: &'static str },

    /// Written by a later release, whose format this one does not know.
    #[error(
        "{what} in {} has format version {found}, but this release knows versions up to {known}. Start the newer release that wrote it, or restore a backup made by this one",
        dir.display()
    )]
    NewerVersion { what: String, dir: PathBuf, found: u8, known: u8 },

    /// Stored data cannot be read back as it was written.
    #[error(
        "the journal in {} is damaged: chunk {chunk} {what}. Nothing was guessed, skipped or changed. Restore the directory from a backup, or move it away to start empty",
        dir.display()
    )]
    Damaged { dir: PathBuf, chunk: u64, what: String },

    /// The log is intact, but ends before a chunk that was promised to be durable.
    #[error(
        "the journal in {} ends at chunk {found}, but chunk {promised} was promised durable, so its end was lost. Restore the directory from a backup, or move it away to start empty",
        dir.display()
    )]
    LessThanPromised { found: u64, promised: u64, dir: PathBuf },

    /// The log has chunks, but nothing says how many there should be.
    #[error(
        "the journal in {} cannot be checked for losses: its high-water file is {what}. Restore the whole directory, including that file, from a backup, or move it away to start empty",
        dir.display()
    )]
    NoHighWater { dir: PathBuf, what: &'static str },

    /// An earlier write failed, so the state of the tail on disk is unknown.
    #[error(
        "the journal in {} stopped after a failed write and accepts nothing more until it is opened again. The first failure was: {cause}",
        dir.display()
    )]
    Stopped { dir: PathBuf, cause: String },

    /// The owner's replay refused a chunk.
    #[error(
        "chunk {number} of the journal in {} was read back intact, but not understood: {source}. Start the release that wrote it, or restore the directory from a backup",
        dir.display()
    )]
    Replay { number: u64, dir: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },

    /// The caller asked for a chunk that was never written or was released.
    #[error(
        "chunk {number} is not in the journal, which holds {first} to {last}. This is a bug in the caller"
    )]
    NotHeld { number: u64, first: u64, last: u64 },

    /// The caller asked to release the very chunk it appends.
    #[error(
        "chunk {number} cannot be appended and released at once (keep_from is {keep_from}). This is a bug in the caller"
    )]
    KeepFromAhead { keep_from: u64, number: u64 },

    /// The chunk is over the bound.
    #[error("a chunk of {len} bytes is over the bound of {max} bytes. Split it")]
    ChunkTooLarge { len: usize, max: usize },
}

/// Shorthand for the most common error. `what` continues the text after "chunk 7".
pub(super) fn damaged(dir: &Path, chunk: u64, what: impl Into<String>) -> JournalError {
    JournalError::Damaged { dir: dir.to_owned(), chunk, what: what.into() }
}

/// Turns an `io::Error` into [`JournalError::Io`], for use in `map_err`.
pub(super) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError::Io { what, path: path.to_owned(), source }
}
