//! W3C Trace Context: `traceparent` and `tracestate`, received, kept with a job and sent.

use std::fmt;

use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

use crate::clock::unix_nanos;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The vendor-specific part of a context.
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// Maximum bytes of a `tracestate` kept with a job; implementations must accept that many.
const MAX_STATE: usize = 512;

/// The only version with a known layout; of newer versions the same four fields are read.
const VERSION: &str = "00";
const SAMPLED: u8 = 1;
/// Known flags: sampled, and random trace id.
const KNOWN_FLAGS: u8 = 0b11;

/// A position in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// The trace.
    pub trace: u128,
    /// The parent of further spans.
    pub span: u64,
    /// `trace-flags`.
    pub flags: u8,
}

impl TraceContext {
    /// Parses a `traceparent`; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let mut next = |len: usize| {
            let lower_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
            parts.next().filter(|part| part.len() == len && part.as_bytes().iter().all(lower_hex))
        };
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        if version == "ff" || (version == VERSION && parts.next().is_some()) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()? & KNOWN_FLAGS;
        Some(Self { trace, span, flags })
    }

    /// The context that a request was sent with.
    pub(crate) fn sent(headers: &HeaderMap) -> Option<Self> {
        headers.get(TRACEPARENT).and_then(|value| Self::parse(value.to_str().ok()?))
    }

    /// Whether the caller records the trace.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The context of a new, sampled trace.
    pub(crate) fn root(trace: u128, span: u64) -> Self {
        Self { trace, span, flags: KNOWN_FLAGS }
    }
}

/// Formats a `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

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
    /// The trace of a job that is accepted under the span of `context`.
    pub(crate) fn under(context: TraceContext, state: Option<String>) -> Self {
        Self { context, state, taken_ms: unix_nanos() / 1_000_000 }
    }
}

/// Removes a `tracestate` without a valid `traceparent`: it says nothing about the trace that begins here.
pub(crate) fn remove_lone_state(headers: &mut HeaderMap) {
    if headers.contains_key(TRACESTATE) && TraceContext::sent(headers).is_none() {
        headers.remove(TRACESTATE);
    }
}

/// The `tracestate` of a request, if it is valid and comes with a valid `traceparent`.
pub(crate) fn trace_state(headers: &HeaderMap) -> Option<String> {
    TraceContext::sent(headers)?;
    let values: Option<Vec<&str>> =
        headers.get_all(TRACESTATE).iter().map(|value| value.to_str().ok()).collect();
    let state = values?.join(",");
    (!state.is_empty() && state.len() <= MAX_STATE).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let context = TraceContext::parse(GIVEN).unwrap();
        assert_eq!((context.span, context.is_sampled()), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.to_string(), GIVEN);
        let unsampled = TraceContext::parse(&GIVEN.replace("-01", "-00")).unwrap();
        assert!(!unsampled.is_sampled());
        let newer = GIVEN.replacen("00", "cc", 1) + "-more";
        assert_eq!(TraceContext::parse(&newer), Some(context));
        let unknown_flags = TraceContext::parse(&GIVEN.replace("-01", "-fd")).unwrap();
        assert_eq!(unknown_flags, context);
    }

    #[test]
    fn an_invalid_traceparent_is_ignored() {
        for bad in [
            "",
            "00-1-2-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }
}
