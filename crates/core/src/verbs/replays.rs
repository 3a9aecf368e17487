//! What is asked of replays of dead letters, and what is told of them.

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
    /// The job that replays it.
    pub id: JobId,
    /// What is sent instead of what the letter holds: payload, chain, holds and correlation of this job. The rest of it is
    /// not looked at.
    pub edit: Option<Box<NewJob>>,
}

/// What became of a wish to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// This job does it now, and these had to make room for it.
    As(JobId, Vec<Ended>),
    /// There is no such dead letter.
    Unknown,
    /// The lane is full.
    QueueFull,
    /// The id that was to be the replay's is another job's.
    IdTaken,
    /// Something about it cannot be, and the letter is still there.
    Invalid(SpecError),
}

/// A dead letter that was enqueued again without anybody asking for this one.
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

/// Asks to begin, show or stop the replay of many dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkAsk {
    /// Replays all letters that fit and are there now. The same id again is the same replay again.
    Begin {
        /// Chosen by the caller.
        id: JobId,
        /// Which letters.
        filter: LetterFilter,
    },
    /// Shows one.
    Show(JobId),
    /// Shows all that are remembered, the newest first.
    List,
    /// Starts no more of its letters. Those already in their lanes go on.
    Stop(JobId),
}

/// What is told of bulk replays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkAnswer {
    /// Those asked for; none if there is no such one.
    Replays(Vec<BulkView>),
    /// So many are under way that no other can begin.
    TooMany,
}

/// The replay of many dead letters, as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkView {
    /// Its identity.
    pub id: JobId,
    /// Which letters it replays.
    pub filter: LetterFilter,
    /// Where it is.
    pub status: BulkStatus,
    /// Letters that fitted when it began, as far as they are counted.
    pub total: u64,
    /// Letters that were sent with success, and are gone.
    pub replayed: u64,
    /// Letters that failed again, or could not be enqueued, and are still there.
    pub failed: u64,
    /// Letters that wait in their lane or are being sent.
    pub running: u64,
    /// Letters that are still to be enqueued.
    pub remaining: u64,
    /// When it began.
    pub began: Time,
    /// When the last of its letters was sent, or it was stopped.
    pub ended: Option<Time>,
}

/// Where a bulk replay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkStatus {
    /// The letters are counted; none is sent yet.
    Counting,
    /// Letters are enqueued as their lanes have room.
    Running,
    /// All were sent, or are gone.
    Done,
    /// Somebody stopped it.
    Stopped,
}

impl BulkStatus {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            BulkStatus::Counting => "counting",
            BulkStatus::Running => "running",
            BulkStatus::Done => "done",
            BulkStatus::Stopped => "stopped",
        }
    }
}
