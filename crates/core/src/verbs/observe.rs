//! Observing a store: what changed since the last question.

use std::sync::Arc;

use crate::alert::AlertsView;
use crate::ids::{JobId, Name};
use crate::job::{DropReason, Level, Status};
use crate::time::{Span, Time};
use crate::timeline::EventKind;
use crate::views::{LaneView, UpstreamView};

/// Asks what changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observe {
    /// The cursor of the last answer; `None` asks for the whole state.
    pub seen: Option<ObserveCursor>,
    /// How long the store may hold the question until something changed. The engine always answers at once.
    pub wait: Span,
}

/// What an observer has seen. Valid only for the engine that returned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObserveCursor {
    /// The epoch of the engine.
    pub epoch: u64,
    /// When the engine began to keep transitions.
    pub began: Time,
    /// The number of the last transition returned.
    pub number: u64,
    /// A hash of the last state returned.
    pub state: u64,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// For the next question.
    pub cursor: ObserveCursor,
    /// The store's time.
    pub now: Time,
    /// Whether transitions after `seen` are no longer known.
    pub gap: bool,
    /// Job transitions, in order. There may be more.
    pub jobs: Vec<JobTransition>,
    /// The state of everything else; `None` if it has not changed.
    pub state: Option<ObservedState>,
}

impl Observed {
    /// Whether it contains anything new.
    pub fn is_news(&self) -> bool {
        self.gap || !self.jobs.is_empty() || self.state.is_some()
    }
}

/// State that is returned as a whole whenever a part of it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedState {
    /// All lanes.
    pub lanes: Vec<LaneView>,
    /// All upstreams.
    pub upstreams: Vec<UpstreamView>,
    /// The alerts.
    pub alerts: AlertsView,
}

/// A transition of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobTransition {
    /// When it happened.
    pub at: Time,
    /// The job.
    pub job: JobId,
    /// The id or idempotency key that its caller gave.
    pub key: Option<Arc<str>>,
    /// Its lane.
    pub lane: Name,
    /// Its tenant.
    pub tenant: Arc<str>,
    /// Its priority.
    pub level: Level,
    /// What happened.
    pub kind: EventKind<Name>,
    /// Its status after that.
    pub status: Status,
    /// Why it was dropped, if it was.
    pub dropped: Option<DropReason>,
}
