//! Telemetry: metrics, logs and traces.

mod answers;
mod endings;
mod exposition;
mod log_writer;
mod logs;
mod metrics;
mod policies;
mod process;
mod quoted;
mod rates;
mod refusals;
mod snapshot;
pub(crate) mod traces;

pub(crate) use answers::AnswerMeter;
pub(crate) use endings::{log_alert, log_end, log_retry};
pub(crate) use exposition::Exposition;
pub(crate) use logs::{flush, print, start};
pub(crate) use metrics::Metrics;
pub(crate) use policies::policy_levels;
pub(crate) use rates::{EVERY, Rates};
pub(crate) use refusals::{RefusedRequest, log_refusal};
pub(crate) use snapshot::Snapshot;
