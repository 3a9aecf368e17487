//! What is sent to the server and what it replies.

use std::sync::Arc;

use eclusa_core::Span;

use crate::tenure::Chunk;
use crate::term::{Position, ProcessId, RunId, TermId, TermView};

/// One command, atomic on the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Command {
    /// Reads the term, who listens to its owner, and the claims.
    Look,
    /// Subscribes to the questions of a term that this process is about to take.
    Listen(TermId),
    /// Takes a new term if nothing changed since it was looked at.
    Take(Take),
    /// Reads the next page of the journal, to be applied in order.
    Read {
        /// The last chunk that was read; zero for none.
        after: Position,
    },
    /// Makes an engine of what was read, beside this thread, or has the one there is follow. Not for the server; sent again
    /// until it is done.
    Build {
        /// The epoch of the leases that it gives; `None` while it only follows.
        epoch: Option<u64>,
    },
    /// Reads the last chunk of the journal.
    Tail,
    /// Appends a chunk, or only renews the term, and publishes answers.
    Append(Append),
    /// Waits until a replica has all that this connection wrote. `Unanswered` if the connection was made anew since the
    /// last append: a server waits only for what the same connection wrote.
    Confirm,
    /// Says how much of the journal this process has, while the server's data is in doubt or it reads ahead. The server
    /// forgets it after a term.
    Claim(Claim),
    /// Says who is to follow while the term goes on, so that it can read the journal ahead.
    Name {
        /// The term.
        term: TermId,
        /// Who is to take over first.
        successor: ProcessId,
    },
    /// Ends the term in order.
    Release {
        /// The term.
        term: TermId,
        /// Who is to take over first.
        successor: Option<ProcessId>,
    },
}

/// Takes over. Refused unless this process listens to the new term's questions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Take {
    /// The term and beat that were seen; `None` if there was no term.
    pub saw: Option<(TermId, u64)>,
    /// The run that was seen.
    pub run: RunId,
    /// The new term.
    pub term: TermId,
    /// The new epoch is above this, above the stored one and not below the server's time.
    pub epoch_above: u64,
    /// Why it may be taken; checked again by the server as far as it can.
    pub reason: TakeReason,
}

/// Why a term may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeReason {
    /// Its owner stopped in order.
    Released,
    /// Nobody listened to its owner, twice.
    NobodyListens,
    /// Its owner was silent for a term.
    Silent,
    /// The server lost data, and whoever has state had time to claim it. The taker's own claim must still be there, else
    /// the server was emptied since.
    Settled,
    /// There was never a term, and no other process is connected that could know of one.
    First,
}

/// Appends to the journal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Append {
    /// Under this term.
    pub term: TermId,
    /// The epoch of the term.
    pub epoch: u64,
    /// On this run of the server.
    pub run: RunId,
    /// The last chunk after this command: the chunk's own number or, without a chunk, that of the last one.
    pub number: u64,
    /// The chunk; `None` only renews the term.
    pub chunk: Option<Chunk>,
    /// Whether the journal has all that the owner has.
    pub whole: bool,
    /// Answers to publish when the chunk is stored.
    pub answers: Arc<[Outgoing]>,
}

/// An answer on its way to a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// To whom.
    pub to: ProcessId,
    /// The message.
    pub message: Arc<[u8]>,
}

/// How much of the journal a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Which process.
    pub process: ProcessId,
    /// Its last acknowledged chunk, or the last one that a process which reads ahead has in its engine; zero without state.
    pub position: Position,
}

/// What a look shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Look {
    /// The run of the server that was asked.
    pub run: RunId,
    /// How long that run has lasted.
    pub uptime: Span,
    /// The term, if there is one.
    pub term: Option<TermView>,
    /// How many listen to the questions of that term.
    pub listeners: u64,
    /// How many processes of the fleet are connected, this one included.
    pub connected: u64,
    /// What was claimed lately.
    pub claims: Vec<Claim>,
}

/// What the server replied.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To `Look`.
    Looked(Look),
    /// To `Listen`.
    Listening,
    /// To `Take`: the term is this process's.
    Taken {
        /// Its epoch.
        epoch: u64,
        /// The last chunk of the journal.
        number: u64,
    },
    /// To `Take`: something changed since the look.
    NotTaken,
    /// To `Read`: the page will be applied. To `Build`, with zero and the end: what was read cannot be used.
    Read {
        /// The last chunk of the page; what was asked for if it was empty, or if earlier pages are not applied yet.
        last: Position,
        /// Whether the journal ends there.
        end: bool,
    },
    /// To `Build`: whether the engine is there.
    Built(bool),
    /// To `Tail`: number and checksum of the last chunk; `None` if there is none.
    Tail(Option<(u64, u64)>),
    /// To `Append`: it is stored.
    Appended {
        /// How many listen to this owner's questions.
        listeners: u64,
        /// The places of answers that nobody received.
        unheard: Vec<usize>,
    },
    /// To `Append`, `Name` and `Release`: it is not, and never will be.
    Refused(Refusal),
    /// To `Confirm`: whether a replica has everything.
    Confirmed(bool),
    /// To `Claim`.
    Claimed,
    /// To `Name`.
    Named,
    /// To `Release`.
    Released,
}

/// Why an append is refused for good. The server checks the run first, then whether there is a term, then the term, then
/// the number: after it went back to an older state, the term that it shows is an older one, and an owner that took this
/// for being superseded would drop the only copy of what the server lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The server runs anew.
    Regressed,
    /// The server has no term.
    Empty,
    /// Another process has taken over, on this run of the server.
    Fenced,
    /// The server's last chunk is this one, so it has lost chunks.
    Number(u64),
}

/// No reply, or one that says nothing final: the command may have been run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unanswered;
