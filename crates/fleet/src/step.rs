//! What the machine asks its driver to do, and what it tells it.

use eclusa_core::Time;

use crate::command::{Command, Outgoing};
use crate::tenure::Chunk;
use crate::term::{Position, TermId, TermView};

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Send this and tell the reply.
    Send(Command),
    /// Nothing until then, unless something is staged or asked for.
    Idle(Time),
}

/// What verbs did since the last batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    /// What they changed, if anything.
    pub chunk: Option<Chunk>,
    /// Answers that may leave when that is durable; without a chunk, after the next fenced round trip.
    pub answers: Vec<Outgoing>,
}

/// Where the machine gets its work from.
pub type Work<'a> = &'a mut dyn FnMut(Wanted) -> Option<Batch>;

/// Work that the machine asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// What verbs did since the last batch; what they changed as chunk `number`.
    Changes {
        /// The number of the chunk.
        number: u64,
    },
    /// The next part of everything there is, as chunk `number`; nothing when the last part was given. All answers given
    /// before depend on it.
    Snapshot {
        /// The number of the chunk.
        number: u64,
        /// Whether to begin anew.
        first: bool,
    },
}

/// What happened to this process's ownership.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// It is to follow an owner that stops, and reads the journal ahead: prepare an empty engine.
    ReadsAhead,
    /// It has made an engine of the journal, which follows what the owner appends: it could take over at once.
    Ready,
    /// What was read ahead is not needed.
    ReadInVain,
    /// It has taken a term and reads the journal. Told again if it must be read anew.
    Loading {
        /// The epoch of the term.
        epoch: u64,
        /// What was read ahead and is still right; at zero prepare an empty engine.
        after: Position,
    },
    /// It owns: verbs may run on what was read, or on what it kept.
    Owns {
        /// The term.
        term: TermId,
        /// Its epoch.
        epoch: u64,
    },
    /// The first so many batches that were handed out are as durable as was asked for, and fenced. Batches that were not
    /// when `Lost` was told never are.
    Durable {
        /// How many, counted since the process started.
        batches: u64,
    },
    /// Nobody received these answers.
    Unheard(Vec<Outgoing>),
    /// It is not subscribed to the questions of the term it holds: subscribe again. An owner that stays deaf for a term releases it.
    Deaf,
    /// It is not known whether it still owns: no verb may be answered until `Owns` or `Lost`.
    InDoubt,
    /// It owns no more. Keep the state until `Superseded` says whether it is still needed.
    Lost,
    /// The new owner is known. `missing`: acknowledged chunks of this process are not in the journal.
    Superseded {
        /// Whether something acknowledged is missing.
        missing: bool,
    },
    /// Another process owns, as of this look.
    Follows(TermView),
    /// It has released its term.
    Released,
}
