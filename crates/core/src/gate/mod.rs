//! Gates: whatever can say "not now, try at T".
//!
//! Each gate is a rule (`…Spec`, valid by construction) and a small state. A denial is a value that knows its
//! reason and its time. [`Gates`] puts those of one lane or upstream together: one admission asks all of them
//! before it takes from any.

mod breaker;
mod bucket;
mod change;
mod cooldown;
mod forecast;
mod gates;
mod pace;
mod quota;
mod share;
mod spent;
mod starts;
mod tally;
mod window;

pub use breaker::{Breaker, BreakerSpec, BreakerState, BreakerView, HEALTHY_AFTER};
pub(crate) use bucket::HELD_BY_OTHERS;
pub use bucket::{Bucket, BucketSpec};
pub use change::{GateChange, GateChangeKind};
pub(crate) use change::{GateMarks, begins};
pub use cooldown::{Cooldown, CooldownSpec};
pub(crate) use gates::{Answer, Used};
pub use gates::{GateSpecs, GateView, Gates, Pass, PublicGates};
pub(crate) use pace::Batch;
pub use pace::{Adaptive, Pace, PaceSpec, PaceView};
pub use quota::{Quota, QuotaOf};
pub use share::Share;
pub(crate) use spent::Spent;
pub(crate) use tally::Tally;
pub use window::{Window, WindowSpec};

use crate::time::Time;

/// Why a job waits: a closed list, the same words in the API and as metric labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The lane is paused.
    Paused,
    /// The job was asked to start later.
    Scheduled,
    /// The job failed and waits for its next attempt.
    RetryBackoff,
    /// Other jobs are before it.
    Behind,
    /// The upstream takes one start per interval.
    Pace,
    /// A token bucket has too little.
    RateLimit,
    /// All places of the window are taken.
    Window,
    /// All slots are taken.
    Concurrency,
    /// The upstream cools down after errors.
    Cooldown,
    /// The breaker is open, or its probes are out.
    CircuitOpen,
    /// The upstream itself said to wait.
    UpstreamRetryAfter,
    /// An equal request is under way and will answer this one too.
    Coalesced,
    /// The upstream works on it and will call back.
    AwaitingWebhook,
    /// No process that is there has rules for the lane, or for any upstream that the job may use.
    RulesGone,
    /// Nothing stands in its way but a worker.
    NoWorker,
    /// The store cannot be reached.
    StoreUnavailable,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 16] = [
        Reason::Paused,
        Reason::Scheduled,
        Reason::RetryBackoff,
        Reason::Behind,
        Reason::Pace,
        Reason::RateLimit,
        Reason::Window,
        Reason::Concurrency,
        Reason::Cooldown,
        Reason::CircuitOpen,
        Reason::UpstreamRetryAfter,
        Reason::Coalesced,
        Reason::AwaitingWebhook,
        Reason::RulesGone,
        Reason::NoWorker,
        Reason::StoreUnavailable,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Paused => "paused",
            Reason::Scheduled => "scheduled",
            Reason::RetryBackoff => "retry_backoff",
            Reason::Behind => "behind",
            Reason::Pace => "pace",
            Reason::RateLimit => "rate_limit",
            Reason::Window => "window",
            Reason::Concurrency => "concurrency",
            Reason::Cooldown => "cooldown",
            Reason::CircuitOpen => "circuit_open",
            Reason::UpstreamRetryAfter => "upstream_retry_after",
            Reason::Coalesced => "coalesced",
            Reason::AwaitingWebhook => "awaiting_webhook",
            Reason::RulesGone => "rules_gone",
            Reason::NoWorker => "no_worker",
            Reason::StoreUnavailable => "store_unavailable",
        }
    }
}

/// A denial: not before `at`, because of `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotUntil {
    /// What says no.
    pub reason: Reason,
    /// When it may say yes; [`Time::NEVER`] if only an event can tell.
    pub at: Time,
}

impl NotUntil {
    /// Not before `at`, because of `reason`.
    pub const fn new(reason: Reason, at: Time) -> Self {
        Self { reason, at }
    }
}

/// What one call told about the upstream it went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallResult {
    /// It answered as wished.
    Success,
    /// It answered that the request itself is wrong: the upstream is well.
    Rejected,
    /// It said "too many requests".
    Throttled,
    /// It failed: a 5xx, a broken connection.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// The call was never made.
    NotSent,
    /// Nobody knows: its worker vanished. It may have been sent.
    Unknown,
    /// There was no connection: nothing was sent, and the upstream is not well.
    Unreachable,
}

impl CallResult {
    pub(crate) const fn is_error(self) -> bool {
        use CallResult::{Failed, Throttled, TimedOut, Unreachable};
        matches!(self, Throttled | Failed | TimedOut | Unreachable)
    }

    /// Whether it is certain that nothing was sent, so that the call takes nothing from buckets and windows.
    pub const fn is_unsent(self) -> bool {
        matches!(self, CallResult::NotSent | CallResult::Unreachable)
    }
}
