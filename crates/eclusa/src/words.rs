//! Formats and names shared by all parts of the program.

use eclusa_core::gate::{GateView, PaceView, Reason};
use eclusa_core::{ServedBy, Time, Tokens};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A time as ISO 8601 in UTC; `None` for "never".
pub fn iso(time: Time) -> Option<String> {
    let millis = i64::try_from(time.as_millis()).ok()?;
    jiff::Timestamp::from_millisecond(millis).ok().map(|time| format!("{time:.3}"))
}

/// What a gate counts; micro-tokens are converted to whole tokens.
pub(crate) fn counted(view: &GateView, amount: i64) -> i64 {
    if view.reason == Reason::RateLimit { amount.div_euclid(Tokens::ONE.as_micro()) } else { amount }
}

/// The rate of a pace, in starts per second.
#[expect(clippy::cast_precision_loss, reason = "at most a thousand a second, in millionths")]
pub(crate) fn starts_per_second(pace: &PaceView) -> f64 {
    pace.rate_micro as f64 / 1_000_000.0
}

/// How a job was answered without a successful call of its own.
pub(crate) const fn served(by: ServedBy) -> &'static str {
    match by {
        ServedBy::Cache => "cache",
        ServedBy::Coalesced => "coalesced",
        ServedBy::Stale(fallback) => fallback.as_str(),
    }
}

/// How far the starts of jobs were from the estimates at intake.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuoteErrors {
    /// How many starts were compared.
    pub count: u64,
    /// Half of them were off by no more seconds, early or late.
    pub p50_sec: f64,
    /// Nineteen of twenty were off by no more seconds.
    pub p95_sec: f64,
}

/// Events per second, on average over about the last minute.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct LaneRates {
    /// Jobs accepted.
    pub accepted: f64,
    /// Attempts started.
    pub started: f64,
    /// Jobs completed, by a call or from an existing answer.
    pub completed: f64,
    /// Jobs that failed permanently.
    pub failed: f64,
    /// Jobs that expired, were evicted or were refused.
    pub dropped: f64,
    /// Direct requests answered by the responding process.
    pub answered: f64,
    /// The period of the average in seconds: less than 60 while the responding process is younger, and 0 while it knows
    /// nothing.
    pub seconds: f64,
}
