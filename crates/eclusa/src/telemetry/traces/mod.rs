//! Traces: the caller's trace context is kept and forwarded, and spans are sent to a collector if one is configured.
//!
//! Without either, a request costs one header lookup.

mod context;
mod export;
mod otlp;
mod queue;
mod span;

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

pub(crate) use context::TraceContext;
pub(crate) use export::Exporter;
pub(crate) use span::{OpenSpan, SpanKind};

use self::queue::Queue;
use super::Metrics;
use crate::clock::unix_nanos;
use crate::config::TracesConfig;
use crate::execute::http::TlsError;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The vendor-specific part of a context.
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// Maximum bytes of a `tracestate` kept with a job; implementations must accept that many.
const MAX_STATE: usize = 512;
const MILLION: u32 = 1_000_000;

/// The trace that a job belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTrace {
    /// The parent of the job's spans.
    pub context: TraceContext,
    /// `tracestate`, if the job's own headers do not contain it.
    pub state: Option<String>,
    /// When the job was accepted, in milliseconds since the Unix epoch.
    pub taken_ms: u64,
}

impl JobTrace {
    /// The trace of a job that is accepted under `span`.
    pub(crate) fn under(span: &OpenSpan, state: Option<String>) -> Self {
        Self { context: span.context(), state, taken_ms: unix_nanos() / 1_000_000 }
    }
}

/// Begins spans.
#[derive(Default)]
pub(crate) struct Traces {
    /// Where spans are sent, and how many of a million new traces are recorded.
    recording: Option<(Arc<Queue>, u32)>,
}

impl Traces {
    /// Configures tracing; also returns the exporter.
    pub(crate) fn new(
        rules: Option<&TracesConfig>,
        instance: u64,
        metrics: &Arc<Metrics>,
    ) -> Result<(Self, Option<Exporter>), TlsError> {
        let Some(rules) = rules else { return Ok((Self::default(), None)) };
        let (queue, waiting) = Queue::new(metrics.clone());
        let exporter = Exporter::new(rules, instance, waiting, metrics.clone())?;
        Ok((Self { recording: Some((queue, rules.sample_micros)) }, Some(exporter)))
    }

    /// The span of a request, if it belongs to a trace: the caller's, or a new one.
    pub(crate) fn request(&self, headers: &HeaderMap) -> Option<Box<OpenSpan>> {
        let sent = sent_context(headers);
        let (name, kind) = ("intake", SpanKind::Server);
        match (sent, &self.recording) {
            (Some(parent), _) => Some(Box::new(OpenSpan::new(&parent, name, kind, self.queue_of(&parent)))),
            (None, Some((queue, sample))) if fastrand::u32(..MILLION) < *sample => {
                Some(Box::new(OpenSpan::root(name, kind, queue.clone())))
            }
            (None, _) => None,
        }
    }

    /// A span whose parent has ended, maybe in another process.
    pub(crate) fn below(&self, parent: &TraceContext, name: &'static str, kind: SpanKind) -> OpenSpan {
        OpenSpan::new(parent, name, kind, self.queue_of(parent))
    }

    fn queue_of(&self, context: &TraceContext) -> Option<Arc<Queue>> {
        let (queue, _) = self.recording.as_ref().filter(|_| context.is_sampled())?;
        Some(queue.clone())
    }
}

/// The context that a request was sent with.
fn sent_context(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get(TRACEPARENT).and_then(|value| TraceContext::parse(value.to_str().ok()?))
}

/// Removes a `tracestate` without a valid `traceparent`: it says nothing about the trace that begins here.
pub(crate) fn remove_lone_state(headers: &mut HeaderMap) {
    if headers.contains_key(TRACESTATE) && sent_context(headers).is_none() {
        headers.remove(TRACESTATE);
    }
}

/// The `tracestate` of a request, if it is valid and comes with a valid `traceparent`.
pub(crate) fn trace_state(headers: &HeaderMap) -> Option<String> {
    sent_context(headers)?;
    let values: Option<Vec<&str>> =
        headers.get_all(TRACESTATE).iter().map(|value| value.to_str().ok()).collect();
    let state = values?.join(",");
    (!state.is_empty() && state.len() <= MAX_STATE).then_some(state)
}
