//! Arguments and answers about replays of dead letters.

use crate::ended::Ended;
use crate::error::SpecError;
use crate::ids::{JobId, Name};
use crate::job::NewJob;
use crate::time::Time;
use crate::verbs::LetterFilter;

/// Asks to enqueue a dead letter again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The lane of the letter.
    pub lane: Name,
    /// The job that failed.
    pub letter: JobId,
    /// The id of the job that will replay it.
    pub id: JobId,
    /// Replaces payload, chain, holds and correlation of the letter. The other fields of this job are ignored.
    pub edit: Option<Box<NewJob>>,
}

/// The result of a replay request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// This job replays it; the listed jobs were evicted to make room.
    As(JobId, Vec<Ended>),
    /// There is no such dead letter.
    Unknown,
    /// The lane is full.
    QueueFull,
    /// The id chosen for the replay belongs to another job.
    IdTaken,
    /// The replay is invalid; the letter was kept.
    Invalid(SpecError),
}

/// A dead letter that a bulk replay or the redrive enqueued again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedLetter {
    /// The lane.
    pub lane: Name,
    /// The job that failed.
    pub letter: JobId,
    /// The job that replays it.
    pub job: JobId,
    /// The bulk replay that did it; `None` if the lane's redrive did.
    pub bulk: Option<JobId>,
}

/// Asks to start, show or stop a bulk replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkAsk {
    /// Replays all letters that match now. Repeating an id returns the same replay.
    Begin {
        /// Chosen by the caller.
        id: JobId,
        /// Which letters.
        filter: LetterFilter,
    },
    /// Shows one.
    Show(JobId),
    /// Shows all that are kept, newest first.
    List,
    /// Starts no more of its letters. Jobs already in their lanes continue.
    Stop(JobId),
}

/// The answer to a [`BulkAsk`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkAnswer {
    /// The requested replays; empty if the id is unknown.
    Replays(Vec<BulkView>),
    /// Too many are running; no other can start.
    TooMany,
}

/// A bulk replay as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkView {
    /// Its identity.
    pub id: JobId,
    /// Which letters it replays.
    pub filter: LetterFilter,
    /// Its progress.
    pub status: BulkStatus,
    /// Letters that matched when it began, as far as they are counted.
    pub total: u64,
    /// Letters that were sent successfully and removed.
    pub replayed: u64,
    /// Letters that failed again or could not be enqueued; they are kept.
    pub failed: u64,
    /// Letters that wait in their lane or are being sent.
    pub running: u64,
    /// Letters not enqueued yet.
    pub remaining: u64,
    /// When it began.
    pub began: Time,
    /// When the last of its letters was sent, or it was stopped.
    pub ended: Option<Time>,
}

/// The progress of a bulk replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkStatus {
    /// The letters are being counted; none is sent yet.
    Counting,
    /// Letters are enqueued as their lanes have room.
    Running,
    /// All letters were sent or removed.
    Done,
    /// It was stopped by request.
    Stopped,
}

impl BulkStatus {
    /// Its name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            BulkStatus::Counting => "counting",
            BulkStatus::Running => "running",
            BulkStatus::Done => "done",
            BulkStatus::Stopped => "stopped",
        }
    }
}
