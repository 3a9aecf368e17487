//! Observing a store: what changed since somebody last looked.

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
    /// The cursor of the last answer; `None` asks for everything as it is.
    pub seen: Option<ObserveCursor>,
    /// How long the store may hold the question until something changed. The engine always answers at once.
    pub wait: Span,
}

/// What an observer has seen. It means something only to the engine that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObserveCursor {
    /// The epoch of the engine.
    pub epoch: u64,
    /// When the engine began to keep transitions.
    pub began: Time,
    /// The number of the last transition that was told.
    pub number: u64,
    /// A digest of the state that was told last.
    pub state: u64,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// For the next question.
    pub cursor: ObserveCursor,
    /// What time it is in the store.
    pub now: Time,
    /// Whether transitions after `seen` are no longer known.
    pub gap: bool,
    /// What happened to jobs, in order. There may be more.
    pub jobs: Vec<JobTransition>,
    /// Everything else as it is; `None` if it has not changed.
    pub state: Option<ObservedState>,
}

impl Observed {
    /// Whether there is anything to tell.
    pub fn is_news(&self) -> bool {
        self.gap || !self.jobs.is_empty() || self.state.is_some()
    }
}

/// What is shown as a whole whenever some of it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedState {
    /// All lanes.
    pub lanes: Vec<LaneView>,
    /// All upstreams.
    pub upstreams: Vec<UpstreamView>,
    /// The alerts.
    pub alerts: AlertsView,
}

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobTransition {
    /// When.
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
