//! Calls to upstreams that speak HTTP.
//!
//! A call ends in exactly one [`CallEnd`], which says whether the upstream can have acted on it. Nothing is followed,
//! unpacked or sent twice here: what to do after a failure is decided by the rules of the lane.

mod body;
mod client;
pub(crate) mod connect;
pub mod headers;
mod hints;
mod judge;
pub mod target;
pub(crate) mod tls;

pub use body::{AnswerBody, BodyError};
pub use client::{Head, HttpUpstream, Streamed};
pub use hints::Hints;
pub use judge::Judgement;
pub(crate) use judge::is_reusable;
pub use tls::TlsError;

use std::error::Error;
use std::fmt::Write;

use eclusa_core::Clock;

use crate::request::Response;

/// What is known about a call besides its request.
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    /// Sent as `Idempotency-Key`, so that the upstream can tell a repeated call: the caller's key, else the job's id.
    pub idempotency_key: &'a str,
    /// Sent in place of the caller's `traceparent`, if there is one.
    pub traceparent: Option<&'a str>,
    /// For answers that name a moment, such as `Retry-After` with a date.
    pub clock: &'a dyn Clock,
}

/// A call that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// How.
    pub end: CallEnd,
    /// What the upstream told about its limits.
    pub hints: Hints,
}

/// How a call ended. The texts hold nothing of the request or the answer, and so no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// With a whole answer, whatever its status.
    Answered(Response),
    /// The answer is larger than is accepted; reading it was stopped.
    TooLarge {
        /// Its status.
        status: u16,
        /// What would have been accepted, in bytes.
        max: usize,
    },
    /// There was no connection: nothing can have happened.
    NotSent(String),
    /// The request itself cannot be sent, to nobody and never.
    Invalid(String),
    /// Sent, or perhaps sent, but no whole answer in time.
    TimedOut(String),
    /// Sent, or perhaps sent, but the answer broke off or was not HTTP.
    Broken(String),
}

/// The longest text about an error.
const MAX_REASON: usize = 300;

/// `what`, and the causes of `error` behind it.
fn explain(what: &str, error: &(dyn Error + 'static)) -> String {
    let mut text = what.to_owned();
    let mut last = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        next = cause.source();
        let said = cause.to_string();
        // Wrappers often say again what they wrap.
        if !said.is_empty() && !last.contains(&said) {
            let _ = write!(text, ": {said}");
            last = said;
        }
    }
    if let Some((end, _)) = text.char_indices().nth(MAX_REASON) {
        text.truncate(end);
    }
    text
}
