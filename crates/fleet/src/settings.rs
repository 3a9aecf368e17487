//! The settings of a process in the fleet.

use eclusa_core::Span;

use crate::term::ProcessId;

/// The settings of a process in the fleet.
#[derive(Debug, Clone, Hash)]
pub struct Settings {
    /// This process.
    pub process: ProcessId,
    /// How long an owner may be silent, and how long settling lasts.
    pub term: Span,
    /// How much longer than other processes this one waits before it takes over.
    pub patience: Span,
    /// The newest journal format that this process can read.
    pub format: u16,
    /// What "durable" means.
    pub ack: Ack,
    /// Must be unique: term ids are derived from it.
    pub seed: u128,
}

impl Settings {
    /// How often a term is renewed and looked at.
    pub(crate) fn probe(&self) -> Span {
        Span::from_millis((self.term.as_millis() / 4).max(1))
    }
}

/// When answers may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ack {
    /// With the append.
    Write,
    /// After the append's reply, for a server that syncs before it replies.
    Fsync,
    /// When a replica has the append.
    Replicate,
}
