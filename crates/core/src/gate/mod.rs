//! Gates: everything that can say "not now, try at T".
//!
//! Each gate is a rule (`…Spec`, valid by construction) and a small state. A denial is a value with a reason and a
//! time. [`Gates`] combines the gates of one lane or upstream: an admission checks all of them before it takes from
//! any.

mod breaker;
mod bucket;
mod change;
mod cooldown;
mod forecast;
mod gates;
mod last_minute;
mod pace;
mod quota;
mod share;
mod starts;
mod tally;
mod window;

pub use breaker::{Breaker, BreakerSpec, BreakerState, BreakerView, HEALTHY_AFTER};
pub(crate) use bucket::HELD_BY_OTHERS;
pub use bucket::{Bucket, BucketSpec};
pub use change::{GateChange, GateChangeKind};
pub(crate) use change::{GateMarks, begins};
pub use cooldown::{Cooldown, CooldownSpec};
pub use gates::{GateSpecs, GateView, Gates, Pass, PublicGates};
pub(crate) use gates::{RequestEnd, Used};
pub(crate) use last_minute::LastMinute;
pub(crate) use pace::Batch;
pub use pace::{Adaptive, Pace, PaceSpec, PaceView};
pub use quota::{Quota, QuotaOf};
pub use share::Share;
pub(crate) use tally::Tally;
pub use window::{Window, WindowSpec};

use crate::time::Time;

/// Why a job waits: a closed list, with the same names in the API and as metric labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The lane is paused.
    Paused,
    /// The job is scheduled for later.
    Scheduled,
    /// The job failed and waits for its next attempt.
    RetryBackoff,
    /// Other jobs are ahead of it.
    Behind,
    /// The upstream allows one start per interval.
    Pace,
    /// A token bucket has too few tokens.
    RateLimit,
    /// All places of the window are taken.
    Window,
    /// All slots are taken.
    Concurrency,
    /// The upstream rests after errors.
    Cooldown,
    /// The breaker is open, or half open with all its probes running.
    CircuitOpen,
    /// The upstream sent a Retry-After.
    UpstreamRetryAfter,
    /// An equal request is running and will answer this one too.
    Coalesced,
    /// The upstream works on it and will call back.
    AwaitingWebhook,
    /// No live process has rules for the lane, or for any upstream that the job may use.
    RulesGone,
    /// It only waits for a free worker.
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

    /// Its name in the API and in metrics.
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
    /// What denies.
    pub reason: Reason,
    /// When it may admit; [`Time::NEVER`] if that depends on an event.
    pub at: Time,
}

impl NotUntil {
    /// Creates a denial until `at`.
    pub const fn new(reason: Reason, at: Time) -> Self {
        Self { reason, at }
    }
}

/// What a call showed about the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallResult {
    /// The call succeeded.
    Success,
    /// The upstream rejected the request itself: the upstream is healthy.
    Rejected,
    /// The upstream answered "too many requests".
    Throttled,
    /// It failed: a 5xx, a broken connection.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// The call was never made.
    NotSent,
    /// Unknown, because the worker vanished. The call may have been sent.
    Unknown,
    /// No connection: nothing was sent, and the upstream is not healthy.
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
