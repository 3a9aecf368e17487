//! Commands to the server and its replies.

use std::sync::Arc;

use eclusa_core::Span;

use crate::tenure::Chunk;
use crate::term::{Position, ProcessId, RunId, TermId, TermView};

/// One command, atomic on the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Command {
    /// Reads the term, the number of listeners of its owner, and the claims.
    Look,
    /// Subscribes to the questions of a term that this process is about to take.
    Listen(TermId),
    /// Takes a new term if nothing changed since the look.
    Take(Take),
    /// Reads the next page of the journal, to be applied in order.
    Read {
        /// The last chunk that was read; zero if none.
        after: Position,
    },
    /// Builds an engine from what was read, on another thread, or applies new chunks to the existing one. It does not
    /// go to the server, and is repeated until it is done.
    Build {
        /// The epoch of the leases that the engine issues; `None` while it only follows.
        epoch: Option<u64>,
    },
    /// Reads the last chunk of the journal.
    Tail,
    /// Appends a chunk, or only renews the term, and publishes answers.
    Append(Append),
    /// Waits until a replica has everything that this connection wrote. `Unanswered` if the connection was reopened
    /// since the last append: a server waits only for writes of the same connection.
    Confirm,
    /// Claims how much of the journal this process has, after the server may have lost data or while it reads ahead.
    /// The claim expires after a term.
    Claim(Claim),
    /// Names the successor while the term continues, so that the successor can read the journal ahead.
    Name {
        /// The term.
        term: TermId,
        /// The process that should take over.
        successor: ProcessId,
    },
    /// Releases the term.
    Release {
        /// The term.
        term: TermId,
        /// The process that should take over.
        successor: Option<ProcessId>,
    },
}

/// Takes over. Refused unless this process is subscribed to the new term's questions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Take {
    /// The term and beat that were seen; `None` if there was no term.
    pub saw: Option<(TermId, u64)>,
    /// The run that was seen.
    pub run: RunId,
    /// The new term.
    pub term: TermId,
    /// The new epoch is above this, above the stored one, and not below the server's time.
    pub epoch_above: u64,
    /// The term under which the taker wrote the state that it has; `None` without state. If the journal never had that
    /// term, its contents are replaced, and the terms that wrote them are no longer listed.
    pub own: Option<TermId>,
    /// Why the term may be taken; the server checks it again as far as it can.
    pub reason: TakeReason,
}

/// Why a term may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeReason {
    /// Its owner released it.
    Released,
    /// Its owner was not subscribed to its questions, twice.
    NobodyListens,
    /// Its owner was silent for a term.
    Silent,
    /// The server lost data, and processes with state had time to claim it. The taker's own claim must still exist,
    /// otherwise the server was emptied since.
    Settled,
    /// There was never a term, and no other connected process could know of one.
    First,
}

/// Appends to the journal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Append {
    /// The term.
    pub term: TermId,
    /// The epoch of the term.
    pub epoch: u64,
    /// The run of the server.
    pub run: RunId,
    /// The last chunk after this command: the chunk's number or, without a chunk, that of the previous one.
    pub number: u64,
    /// The chunk; `None` only renews the term.
    pub chunk: Option<Chunk>,
    /// Whether the journal has everything that the owner has.
    pub whole: bool,
    /// Answers to publish when the chunk is stored.
    pub answers: Arc<[Outgoing]>,
}

/// An answer to be sent to a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// The recipient.
    pub to: ProcessId,
    /// The message.
    pub message: Arc<[u8]>,
    /// [`Outbox::sent`](crate::Outbox::sent) after it.
    pub sent: u64,
}

/// How much of the journal a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The process.
    pub process: ProcessId,
    /// Its last acknowledged chunk or, while it reads ahead, the last chunk in its engine; zero without state.
    pub position: Position,
}

/// What a look shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Look {
    /// The current run of the server.
    pub run: RunId,
    /// How long that run has lasted.
    pub uptime: Span,
    /// The term, if there is one.
    pub term: Option<TermView>,
    /// The number of subscribers to the questions of that term.
    pub listeners: u64,
    /// The number of connected processes of the fleet, including this one.
    pub connected: u64,
    /// Recent claims.
    pub claims: Vec<Claim>,
}

/// What the server replied.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To `Look`.
    Looked(Look),
    /// To `Listen`.
    Listening,
    /// To `Take`: this process holds the term.
    Taken {
        /// Its epoch.
        epoch: u64,
        /// The last chunk of the journal.
        number: u64,
    },
    /// To `Take`: something changed since the look.
    NotTaken,
    /// To `Read`: the page will be applied. To `Build`, with zero and `end`: what was read cannot be used.
    Read {
        /// The last chunk of the page; the requested position if the page was empty or earlier pages are not applied
        /// yet.
        last: Position,
        /// Whether the journal ends there.
        end: bool,
    },
    /// To `Build`: whether the engine is ready.
    Built(bool),
    /// To `Tail`: number and checksum of the last chunk; `None` if there is none.
    Tail(Option<(u64, u64)>),
    /// To `Append`: it was stored.
    Appended {
        /// The number of subscribers to this owner's questions.
        listeners: u64,
        /// The indexes of answers that nobody received.
        unheard: Vec<usize>,
    },
    /// To `Append`, `Name` and `Release`: it was refused permanently.
    Refused(Refusal),
    /// To `Confirm`: whether a replica has everything.
    Confirmed(bool),
    /// To `Claim`: whether it renewed an earlier claim of this process.
    Claimed(bool),
    /// To `Name`.
    Named,
    /// To `Release`.
    Released,
}

/// Why an append is refused permanently. The server checks the run first, then whether there is a term, then the term,
/// then the number. The order matters: after the server went back to an older state, it shows an older term, and an
/// owner that took this as being superseded would drop the only copy of what the server lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The server was restarted.
    Regressed,
    /// The server has no term.
    Empty,
    /// Another process has taken over, on this run of the server.
    Fenced,
    /// The server's last chunk has this number, so it has lost chunks.
    Number(u64),
}

/// No conclusive reply: the command may have been run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unanswered;
