//! How jobs end, for logs and metrics.

use std::sync::Arc;

use crate::ids::{JobId, Name};
use crate::job::{DropReason, Failure, JobView, Level, Status};
use crate::time::Time;

/// A job that ended: enough for a log line and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The job.
    pub job: JobId,
    /// Its lane.
    pub lane: Name,
    /// The tenant it belongs to.
    pub tenant: Arc<str>,
    /// Its priority.
    pub level: Level,
    /// Number of attempts started.
    pub attempts: u32,
    /// When it was created.
    pub created_at: Time,
    /// How it ended.
    pub end: End,
    /// The upstream whose open breaker kept the job from being sent until it expired.
    pub avoided: Option<Name>,
    /// The whole job, if its lane does not keep finished jobs: it cannot be read any more.
    pub forgotten: Option<Box<JobView>>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Its own call succeeded.
    Completed,
    /// It was completed without a successful call of its own.
    Served(ServedBy),
    /// It failed permanently.
    Failed {
        /// Why the last attempt failed.
        failure: Failure,
        /// Whether a dead letter was written for it; a failed replay has one already.
        dead_letter: bool,
    },
    /// It was dropped before it was sent.
    Dropped(DropReason),
    /// It was cancelled.
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

/// How a job was completed without a successful call of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServedBy {
    /// By a fresh cache entry.
    Cache,
    /// By the call of an equal job.
    Coalesced,
    /// By a stale cache entry, because there was nothing newer.
    Stale(Fallback),
}

/// Why a stale answer was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Every breaker of the chain is open.
    CircuitOpen,
    /// The call was not answered in time.
    Timeout,
    /// The upstream answered with an error.
    Error,
    /// The connection failed or broke.
    Connection,
}

impl Fallback {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::CircuitOpen, Self::Timeout, Self::Error, Self::Connection];

    /// The label of `proxy_fallbacks_total`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fallback::CircuitOpen => "breaker_aberto",
            Fallback::Timeout => "timeout",
            Fallback::Error => "erro_5xx",
            Fallback::Connection => "erro_conexao",
        }
    }
}
