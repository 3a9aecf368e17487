//! How jobs end, as told to whoever logs and counts.

use std::sync::Arc;

use crate::ids::{JobId, Name};
use crate::job::{DropReason, Failure, JobView, Level, Status};
use crate::time::Time;

/// A job that ended: enough for a log line and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Which job.
    pub job: JobId,
    /// Of which lane.
    pub lane: Name,
    /// Whose.
    pub tenant: Arc<str>,
    /// How urgent it was.
    pub level: Level,
    /// Attempts begun.
    pub attempts: u32,
    /// When it came in.
    pub created_at: Time,
    /// How it ended.
    pub end: End,
    /// The upstream that it would have been sent to, had its breaker not been open until the job expired.
    pub avoided: Option<Name>,
    /// All of it, where its lane forgot it as it ended: nobody can read it any more.
    pub forgotten: Option<Box<JobView>>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Its own call succeeded.
    Completed,
    /// It was completed without a call of its own that succeeded.
    Served(ServedBy),
    /// It failed for good.
    Failed {
        /// Why the last attempt failed.
        failure: Failure,
        /// Whether a dead letter was written for it; a replay that fails has one already.
        dead_letter: bool,
    },
    /// It was given up before it was sent.
    Dropped(DropReason),
    /// Somebody cancelled it.
    Cancelled,
}

impl End {
    /// The final status of the job.
    pub const fn status(&self) -> Status {
        match self {
            End::Completed | End::Served(_) => Status::Completed,
            End::Failed { .. } => Status::Failed,
            End::Dropped(_) => Status::Dropped,
            End::Cancelled => Status::Cancelled,
        }
    }
}

/// How a job was completed without a call of its own that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServedBy {
    /// A fresh entry of the cache.
    Cache,
    /// The call of an equal job.
    Coalesced,
    /// An old entry of the cache, because nothing newer could be had.
    Stale(Fallback),
}

/// Why an old answer had to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Every breaker of the chain is open.
    CircuitOpen,
    /// The call was not answered in time.
    Timeout,
    /// The upstream answered with an error.
    Error,
    /// There was no connection, or it broke.
    Connection,
}

impl Fallback {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::CircuitOpen, Self::Timeout, Self::Error, Self::Connection];

    /// The word for it, a label of `proxy_fallbacks_total`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fallback::CircuitOpen => "breaker_aberto",
            Fallback::Timeout => "timeout",
            Fallback::Error => "erro_5xx",
            Fallback::Connection => "erro_conexao",
        }
    }
}
