//! Traces: the caller's trace context is kept and forwarded, and spans are sent to a collector if one is configured.
//!
//! Without either, a request costs one header lookup.

mod export;
mod otlp;
mod queue;
mod span;

use std::sync::Arc;

use http::HeaderMap;

pub(crate) use export::Exporter;
pub(crate) use span::{OpenSpan, SpanKind};

use self::queue::Queue;
use super::Metrics;
use crate::config::TracesConfig;
use crate::execute::http::TlsError;
use crate::request::TraceContext;

const MILLION: u32 = 1_000_000;

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
        let sent = TraceContext::sent(headers);
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
