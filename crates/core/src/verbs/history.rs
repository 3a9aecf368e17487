//! Reading the history: what happened in each minute of the last day.

use std::fmt;

use super::Report;
use crate::durations::Quantiles;
use crate::gate::{CallResult, GateChangeKind};
use crate::ids::Name;
use crate::time::Time;

/// The most minutes that are kept and can be asked for: a day.
pub const MAX_MINUTES: u32 = 1_440;

/// Asks what happened in the last minutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Of what.
    pub of: HistoryOf,
    /// The number of minutes, with the running one: 1 to [`MAX_MINUTES`].
    pub minutes: u32,
}

/// What a history is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryOf {
    /// All lanes together.
    AllLanes,
    /// These lanes together. The answer has quantiles only for a single lane, because they cannot be added up.
    Lanes(Vec<Name>),
    /// An upstream, with its keys.
    Upstream(Name),
}

/// One point per minute without gaps. The last one is of the running minute. What is unknown has no events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryView {
    /// Of lanes.
    Lanes {
        /// When the first minute began.
        from: Time,
        /// The oldest first.
        points: Vec<LanePoint>,
    },
    /// Of an upstream.
    Upstream {
        /// When the first minute began.
        from: Time,
        /// The oldest first.
        points: Vec<UpstreamPoint>,
        /// Transitions of its gates since then, the oldest first.
        transitions: Vec<GateTransition>,
    },
}

/// A minute of one or several lanes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LanePoint {
    /// Jobs accepted.
    pub accepted: u64,
    /// Attempts started.
    pub started: u64,
    /// Jobs completed, by a call or from an existing answer.
    pub completed: u64,
    /// Jobs that failed permanently.
    pub failed: u64,
    /// Jobs that expired, were evicted or were refused.
    pub dropped: u64,
    /// Requests of direct lanes that ended.
    pub requests: u64,
    /// How many of these failed.
    pub failed_requests: u64,
    /// Jobs that waited at the end of the minute; `None` if no process ran then.
    pub waiting: Option<u64>,
    /// Jobs that were processed at the end of the minute; `None` if no process ran then.
    pub processing: Option<u64>,
    /// How long jobs waited that started for the first time; those that were submitted with a delay are left out.
    pub wait: Option<Quantiles>,
}

impl LanePoint {
    /// Adds another lane in the same minute. Quantiles cannot be added up, so there are none.
    pub(crate) fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.started += other.started;
        self.completed += other.completed;
        self.failed += other.failed;
        self.dropped += other.dropped;
        self.requests += other.requests;
        self.failed_requests += other.failed_requests;
        self.waiting = self.waiting.zip(other.waiting).map(|(one, other)| one + other);
        self.processing = self.processing.zip(other.processing).map(|(one, other)| one + other);
        self.wait = None;
    }
}

/// A minute of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamPoint {
    /// Calls that ended.
    pub calls: u64,
    /// How many of these failed: the upstream was throttling, broken or not reachable.
    pub errors: u64,
    /// Calls by how they ended, the most frequent first.
    pub statuses: Vec<(CallStatus, u64)>,
    /// How long calls took until their answers began.
    pub latency: Option<Quantiles>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// With this HTTP status or SMTP reply code.
    Status(u16),
    /// It succeeded; the status is not known.
    Ok,
    /// The request was rejected; the status is not known.
    Rejected,
    /// It failed; the status is not known.
    Failed,
    /// There was no answer in time.
    TimedOut,
    /// There was no connection.
    Unreachable,
    /// It was not reported how.
    Unknown,
    /// With a status that was too rare to be counted separately.
    Other,
}

impl CallStatus {
    pub(crate) const fn of(report: &Report) -> Self {
        match (report.status, report.result) {
            (Some(status), _) => CallStatus::Status(status),
            (None, CallResult::Throttled) => CallStatus::Status(429),
            (None, CallResult::Success) => CallStatus::Ok,
            (None, CallResult::Rejected) => CallStatus::Rejected,
            (None, CallResult::Failed) => CallStatus::Failed,
            (None, CallResult::TimedOut) => CallStatus::TimedOut,
            (None, CallResult::Unreachable) => CallStatus::Unreachable,
            (None, CallResult::Unknown | CallResult::NotSent) => CallStatus::Unknown,
        }
    }
}

impl fmt::Display for CallStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallStatus::Status(status) => return write!(f, "{status}"),
            CallStatus::Ok => "ok",
            CallStatus::Rejected => "rejected",
            CallStatus::Failed => "failed",
            CallStatus::TimedOut => "timeout",
            CallStatus::Unreachable => "unreachable",
            CallStatus::Unknown => "unknown",
            CallStatus::Other => "other",
        })
    }
}

/// A gate closed because of errors, or opened again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateTransition {
    /// When the gate changed.
    pub at: Time,
    /// The upstream, or one of its keys.
    pub upstream: Name,
    /// What changed.
    pub kind: GateChangeKind,
}
