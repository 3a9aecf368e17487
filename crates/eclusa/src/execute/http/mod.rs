//! Calls to upstreams that speak HTTP.
//!
//! A call ends in exactly one [`CallEnd`](super::CallEnd), which says whether the upstream can have acted on it.

mod body;
pub(super) mod client;
pub(crate) mod connect;
pub mod headers;
mod hints;
pub(crate) mod resolve;
pub mod shape;
pub mod target;
pub(crate) mod tls;

pub use body::{AnswerBody, BodyError, BoxError};
pub use client::{Head, HttpUpstream, Streamed};
pub use hints::Hints;
pub use tls::TlsError;

use std::error::Error;
use std::fmt::Write;

/// The longest text about an error.
const MAX_REASON: usize = 300;

/// `what`, and the causes of `error` behind it.
pub(in crate::execute) fn explain(what: &str, error: &(dyn Error + 'static)) -> String {
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
