//! How a process takes part.

use eclusa_core::Span;

use crate::term::ProcessId;

/// How a process takes part.
#[derive(Debug, Clone, Hash)]
pub struct Settings {
    /// Which process this is.
    pub process: ProcessId,
    /// How long an owner may be silent, and how long the settling lasts.
    pub term: Span,
    /// How much longer than others this process waits before it takes over.
    pub patience: Span,
    /// The newest journal format that it can read.
    pub format: u16,
    /// What "durable" means.
    pub ack: Ack,
    /// Unique: the ids of its terms are made from it.
    pub seed: u128,
}

impl Settings {
    /// How often a term is renewed and looked at.
    pub(crate) fn probe(&self) -> Span {
        Span::from_millis((self.term.as_millis() / 4).max(1))
    }
}

/// When answers may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ack {
    /// With the append.
    Write,
    /// After the append's reply, for a server that syncs before it replies.
    Fsync,
    /// When a replica has the append.
    Replicate,
}
