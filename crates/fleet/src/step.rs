//! What the state machine asks its driver to do, and the events it reports.

use eclusa_core::Time;

use crate::command::{Command, Outgoing};
use crate::tenure::Chunk;
use crate::term::{Position, TermId, TermView};

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Send this command and pass back the reply.
    Send(Command),
    /// Nothing to do until this time, unless something is staged or requested.
    Idle(Time),
}

/// The results of verbs since the last batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Their changes, if any.
    pub chunk: Option<Chunk>,
    /// Answers that may be sent when the chunk is durable; without a chunk, after the next fenced round trip.
    pub answers: Vec<Outgoing>,
}

/// Provides the work of the state machine.
pub type Work<'a> = &'a mut dyn FnMut(Wanted) -> Option<Batch>;

/// The kind of work the state machine asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// The results of verbs since the last batch, with their changes as chunk `number`.
    Changes {
        /// The number of the chunk.
        number: u64,
    },
    /// The next part of a snapshot, as chunk `number`; `None` after the last part. All earlier answers depend on it.
    Snapshot {
        /// The number of the chunk.
        number: u64,
        /// Whether to start a new snapshot.
        first: bool,
    },
}

/// What happened to this process's ownership.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// It is the successor of an owner that stops, and reads the journal ahead: prepare an empty engine.
    ReadsAhead,
    /// Its engine is built and follows what the owner appends: it could take over at once.
    Ready,
    /// What was read ahead is not needed.
    ReadInVain,
    /// It has taken a term and reads the journal. Repeated if the journal must be read again.
    Loading {
        /// The epoch of the term.
        epoch: u64,
        /// What was read ahead and is still valid; if zero, prepare an empty engine.
        after: Position,
    },
    /// It is the owner: verbs may run on what was read, or on its own state.
    Owns {
        /// The term.
        term: TermId,
        /// Its epoch.
        epoch: u64,
    },
    /// The first `batches` batches are durable (by [`Ack`](crate::Ack)) and fenced. Batches that were not before `Lost`
    /// never become durable.
    Durable {
        /// The number of batches, counted since the process started.
        batches: u64,
    },
    /// Nobody received these answers.
    Unheard(Vec<Outgoing>),
    /// It is not subscribed to the questions of its term: subscribe again. An owner that stays unsubscribed for a term
    /// releases it.
    Deaf,
    /// It is unknown whether it is still the owner: no verb may be answered until `Owns` or `Lost`.
    InDoubt,
    /// It is no longer the owner. Keep the state until `Superseded` says whether it is still needed.
    Lost,
    /// The new owner is known.
    Superseded {
        /// Whether acknowledged chunks of this process are missing from the journal.
        missing: bool,
    },
    /// Another process is the owner, as of this look.
    Follows(TermView),
    /// It has released its term.
    Released,
}
