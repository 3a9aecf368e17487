//! The JSON of the API, in camelCase: what callers send, and what they get. The command line, callbacks and the log use the same
//! types.

mod alert;
mod codes;
mod dead_letter;
mod history;
mod job;
pub(crate) mod job_request;
mod lane;
pub(crate) mod message;
pub(crate) mod object;
mod sentence;
mod shown;
mod status;
mod upstream;
pub(crate) mod vocabulary;
mod why;

pub use alert::{Alert, AlertMessage};
pub use codes::{CodeOutcome, UpstreamCodes};
pub use dead_letter::DeadLetter;
pub use history::{History, HistoryPoint, LanePoint, Transition, UpstreamPoint, Waited};
pub use job::{Accepted, Job, JobEvent, JobResult, LastFailure, LiveJob, PastWait, TimelineEntry};
pub use job_request::{HttpRequest, JobRequest};
pub(crate) use lane::LaneFacts;
pub use lane::{Lane, LaneHold, LaneTotals, Levels, TenantFairnessMetrics};
pub use message::{Message, MessageAttachment, OneOrMany};
pub use shown::ShownRequest;
pub(crate) use shown::{MASK, Shown, shown, unmasked};
pub use status::{Need, Remark, ServiceStatus};
pub use upstream::{Breaker, Latency, Pace, Upstream, UpstreamFailure, UpstreamKey};
pub(crate) use upstream::{breaker, breaker_or_closed, upstreams};
pub use why::{Gate, WhyAnswer};

pub use crate::words::{LaneRates, QuoteErrors, iso};
