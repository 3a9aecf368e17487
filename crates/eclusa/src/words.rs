//! Words that all parts of the program share.

use eclusa_core::gate::{GateView, PaceView, Reason};
use eclusa_core::{ServedBy, Time, Tokens};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A moment as ISO 8601 in UTC; `None` for "never".
pub fn iso(time: Time) -> Option<String> {
    let millis = i64::try_from(time.as_millis()).ok()?;
    jiff::Timestamp::from_millisecond(millis).ok().map(|time| format!("{time:.3}"))
}

/// What a gate counts, in whole tokens where that are tokens.
pub(crate) fn counted(view: &GateView, amount: i64) -> i64 {
    if view.reason == Reason::RateLimit { amount.div_euclid(Tokens::ONE.as_micro()) } else { amount }
}

/// The rate of a pace.
#[expect(clippy::cast_precision_loss, reason = "at most a thousand a second, in millionths")]
pub(crate) fn starts_per_second(pace: &PaceView) -> f64 {
    pace.rate_micro as f64 / 1_000_000.0
}

/// How a job was answered without a call of its own that succeeded.
pub(crate) const fn served(by: ServedBy) -> &'static str {
    match by {
        ServedBy::Cache => "cache",
        ServedBy::Coalesced => "coalesced",
        ServedBy::Stale(fallback) => fallback.as_str(),
    }
}

/// What happened in a second, on average over about the last minute.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct LaneRates {
    /// Jobs taken in.
    pub accepted: f64,
    /// Attempts begun.
    pub started: f64,
    /// Jobs that completed, by a call or by an answer that was there.
    pub completed: f64,
    /// Jobs that failed for good.
    pub failed: f64,
    /// Jobs that expired, were pushed out or were refused.
    pub dropped: f64,
    /// Requests that the process that is asked answered directly.
    pub answered: f64,
    /// How many seconds it is the average of: less than 60 while the process that answers is younger, and 0 as long as it
    /// knows nothing.
    pub seconds: f64,
}
