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
pub use client::{HttpUpstream, RequestHead, Streamed};
pub use hints::Hints;
pub use tls::TlsError;

use std::error::Error;
use std::fmt::Write;

/// The longest error text, in characters.
const MAX_REASON: usize = 300;

/// `what`, followed by the causes of `error`.
pub(in crate::execute) fn explain(what: &str, error: &(dyn Error + 'static)) -> String {
    let mut text = what.to_owned();
    let mut last = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        next = cause.source();
        let said = cause.to_string();
        // Wrappers often repeat the text of what they wrap.
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
