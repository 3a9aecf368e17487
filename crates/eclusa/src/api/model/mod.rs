//! The JSON model of the API, in camelCase. The command line reads the same types.

mod alert;
mod codes;
mod dead_letter;
mod job;
mod lane;
mod shown;
mod status;
mod upstream;
pub(crate) mod vocabulary;
mod why;

pub use alert::{Alert, AlertMessage};
pub use codes::{CodeOutcome, UpstreamCodes};
pub use dead_letter::DeadLetter;
pub use job::{Accepted, Job, JobEvent, JobResult, LastFailure, LiveJob, TimelineEntry};
pub(crate) use lane::LaneFacts;
pub use lane::{Lane, LaneHold, LaneTotals, Levels, TenantFairnessMetrics};
pub use shown::ShownRequest;
pub(crate) use shown::{MASK, Shown, shown, unmasked};
pub use status::{Need, Remark, ServiceStatus};
pub use upstream::{Breaker, Latency, Pace, Upstream, UpstreamFailure, UpstreamKey};
pub(crate) use upstream::{breaker, upstreams};
pub use why::{Gate, WhyAnswer};

pub use crate::words::{LaneRates, QuoteErrors, iso};
