//! What the API says, as JSON in camelCase. The command line reads the same types.

mod dead_letter;
mod job;
mod lane;
mod upstream;
mod why;

pub use dead_letter::DeadLetter;
pub(crate) use job::served;
pub use job::{Accepted, Job, JobResult, LastFailure, TimelineEntry};
pub use lane::{Lane, LaneRates, LaneTotals, Levels, TenantFairnessMetrics};
pub(crate) use upstream::breaker;
pub use upstream::{Breaker, Upstream};
pub(crate) use why::counted;
pub use why::{Gate, WhyAnswer};

use eclusa_core::Time;

/// A moment as ISO 8601 in UTC; `None` for "never".
pub fn iso(time: Time) -> Option<String> {
    let millis = i64::try_from(time.as_millis()).ok()?;
    jiff::Timestamp::from_millisecond(millis).ok().map(|time| format!("{time:.3}"))
}
