//! The term: what the server knows about the owner.

use std::fmt;
use std::sync::Arc;

/// Identifies a process of the fleet; chosen at random when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Identifies one tenure of one owner. Random, because epochs can repeat after the server lost data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TermId(pub u128);

impl fmt::Display for TermId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TermId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TermId({self})")
    }
}

/// One run of the server (`run_id`): another one may have lost data.
pub type RunId = Arc<str>;

/// A position in the journal, ordered by epoch, then by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The epoch of the term that appended the chunk.
    pub epoch: u64,
    /// The number of the chunk.
    pub number: u64,
}

/// The term as the server keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TermView {
    /// The term whose appends count.
    pub term: TermId,
    /// Orders terms; part of every chunk's id.
    pub epoch: u64,
    /// The server's run when the term was taken.
    pub run: RunId,
    /// The last chunk.
    pub number: u64,
    /// Goes up with every append and renewal: an owner whose beat does not change is silent.
    pub beat: u64,
    /// The oldest format version that can read the journal.
    pub reader: u16,
    /// The last terms, oldest first, each with the last chunk when it began.
    pub from: Vec<(TermId, u64)>,
    /// The owner.
    pub owner: ProcessId,
    /// The owner has not yet written everything it has: the server lost data before this term, and no other process has
    /// all of it.
    pub repairing: bool,
    /// The owner has released the term.
    pub released: bool,
    /// The successor chosen by the owner.
    pub successor: Option<ProcessId>,
}
