//! Journals: where chunks of records are kept.
//!
//! Opening and appending differ: a directory belongs to one process, whereas a shared server checks the owner's term with
//! every append, in the commands of the ownership protocol (`eclusa-fleet`).

pub(in crate::store) mod file;
pub(in crate::store) mod redis;

use eclusa_core::Mentions;

pub use file::JournalError;

/// A journal as cleaning sees it: chunks in order, of which the oldest can be removed.
pub(in crate::store) trait Journal {
    /// The position of a chunk. The default is before all chunks.
    type Position: Copy + Ord + Default;
    /// Why chunks cannot be read.
    type Error;

    /// The size of the journal.
    fn bytes(&self) -> u64;

    /// The position of the newest chunk.
    fn newest(&self) -> Option<Self::Position>;

    /// The position of the oldest chunk after `position`.
    fn after(&self, position: Self::Position) -> Option<Self::Position>;

    /// The oldest chunks after `position`: about `bytes` bytes, and at least one chunk if there is one.
    fn read_after(
        &mut self,
        position: Self::Position,
        bytes: u64,
    ) -> Result<Vec<ChunkSummary<Self::Position>>, Self::Error>;

    /// Ensures that the present chunks can be removed without those that are appended from now on.
    fn seal(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// What cleaning needs to know of a chunk.
pub(in crate::store) struct ChunkSummary<P> {
    pub(in crate::store) position: P,
    /// Its share of [`Journal::bytes`].
    pub(in crate::store) bytes: u64,
    pub(in crate::store) mentions: Mentions,
}
