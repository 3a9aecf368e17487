//! Spans: one step in the processing of a request, and how long it took.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::retry::ExtraCodes;
use eclusa_core::{JobId, Name};
use tokio::time::Instant;

use super::queue::Queue;
use crate::clock::unix_nanos;
use crate::execute::CallEnd;
use crate::request::TraceContext;

/// The kind of a span; the values are those of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Attribute {
    Text(String),
    Number(u64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) trace: u128,
    pub(super) id: u64,
    /// `None` for the root of a trace that begins here.
    pub(super) parent: Option<u64>,
    pub(super) name: &'static str,
    pub(super) kind: SpanKind,
    /// Nanoseconds since the Unix epoch.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) error: Option<String>,
}

/// A span in progress. It ends when it is dropped.
pub(crate) struct OpenSpan {
    ended: Ended,
    flags: u8,
    began: Instant,
    /// Where it is sent at its end; `None` if the trace is not recorded here.
    queue: Option<Arc<Queue>>,
}

impl OpenSpan {
    pub(super) fn root(name: &'static str, kind: SpanKind, queue: Arc<Queue>) -> Self {
        let trace = fastrand::u128(1..);
        let mut span = Self::new(&TraceContext::root(trace, 0), name, kind, Some(queue));
        span.ended.parent = None;
        span
    }

    pub(super) fn new(
        parent: &TraceContext,
        name: &'static str,
        kind: SpanKind,
        queue: Option<Arc<Queue>>,
    ) -> Self {
        let from = if queue.is_some() { unix_nanos() } else { 0 };
        let ended = Ended {
            trace: parent.trace,
            id: fastrand::u64(1..),
            parent: Some(parent.span),
            name,
            kind,
            from,
            to: from,
            attributes: Vec::new(),
            error: None,
        };
        Self { ended, flags: parent.flags, began: Instant::now(), queue }
    }

    /// A child span.
    pub(crate) fn child(&self, name: &'static str, kind: SpanKind) -> Self {
        Self::new(&self.context(), name, kind, self.queue.clone())
    }

    /// The context for child spans. If nothing is recorded, the context received.
    pub(crate) fn context(&self) -> TraceContext {
        let Ended { trace, id, parent, .. } = self.ended;
        let span = parent.filter(|_| self.queue.is_none()).unwrap_or(id);
        TraceContext { trace, span, flags: self.flags }
    }

    /// The `traceparent` for the call that this span describes: always with a new span id.
    pub(crate) fn traceparent(&self) -> String {
        TraceContext { span: self.ended.id, ..self.context() }.to_string()
    }

    /// Sets an attribute, if the span is recorded.
    pub(crate) fn set<A: Into<Attribute>>(&mut self, name: &'static str, value: impl FnOnce() -> A) {
        if self.queue.is_some() {
            self.ended.attributes.push((name, value().into()));
        }
    }

    /// Sets the attributes of a job.
    pub(crate) fn of_job(&mut self, lane: &Name, job: JobId) {
        self.of_intake(lane, Some(job));
    }

    /// It is about a request to `lane` that this job answers, if any does.
    pub(crate) fn of_intake(&mut self, lane: &Name, job: Option<JobId>) {
        self.set("eclusa.lane", || lane.as_str());
        if let Some(job) = job {
            self.set("eclusa.job.id", || job.to_string());
        }
    }

    /// Sets the attributes of a call.
    pub(crate) fn of_call(&mut self, upstream: &Name, attempt: u32) {
        self.set("eclusa.upstream", || upstream.as_str());
        self.set("eclusa.attempt", || u64::from(attempt));
    }

    /// Sets the result of the call.
    pub(crate) fn of_end(&mut self, end: &CallEnd) {
        let status = match end {
            CallEnd::Answered(status) | CallEnd::TooLarge { status, .. } | CallEnd::Ses { status, .. } => {
                Some(*status)
            }
            _ => None,
        };
        if let Some(status) = status {
            self.set("http.response.status_code", || u64::from(status));
        }
        let judgement = end.judge(&ExtraCodes::default());
        if judgement.verdict.is_some() {
            self.fail(&judgement.reason);
        }
    }

    /// Marks the span as failed.
    pub(crate) fn fail(&mut self, why: &str) {
        if self.queue.is_some() {
            self.ended.error = Some(why.to_owned());
        }
    }

    /// Sets start and end, and ends the span. It starts no earlier than `least_ms` since the Unix epoch.
    pub(crate) fn lasted(mut self, (from, least_ms): (Instant, u64), to: Instant) {
        if self.queue.is_some() {
            let now = unix_nanos();
            let at = |instant: Instant| now.saturating_sub(nanos(Instant::now().duration_since(instant)));
            self.ended.to = at(to);
            self.ended.from = at(from).max(least_ms * 1_000_000).min(self.ended.to);
        }
    }

    /// Sets the start, in milliseconds since the Unix epoch, and the end, and ends the span.
    pub(crate) fn since(mut self, from_ms: u64, to: Instant) {
        if self.queue.is_some() {
            self.ended.to = unix_nanos().saturating_sub(nanos(Instant::now().duration_since(to)));
            // The clock of another machine may be ahead.
            self.ended.from = (from_ms * 1_000_000).min(self.ended.to);
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        if self.ended.to == self.ended.from {
            self.ended.to = self.ended.from + nanos(self.began.elapsed());
        }
        let ended = Ended {
            attributes: std::mem::take(&mut self.ended.attributes),
            error: self.ended.error.take(),
            ..self.ended
        };
        queue.put(ended);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
