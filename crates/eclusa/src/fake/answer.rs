//! The scripted answers of a fake upstream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::sync::watch;

/// Holds answers back until it is opened.
#[derive(Debug, Clone)]
pub struct Latch {
    open: Arc<watch::Sender<bool>>,
}

impl Default for Latch {
    fn default() -> Self {
        Self { open: Arc::new(watch::channel(false).0) }
    }
}

impl Latch {
    /// Releases the answers that are held back, and all later ones.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn opened(&self) {
        // The sender lives in `self`.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

/// A scripted answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub(super) head: AnswerStart,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Bytes,
    pub(super) ending: Ending,
    pub(super) latch: Option<Latch>,
    pub(super) delay: Duration,
}

/// How an answer starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerStart {
    Status(StatusCode),
    /// It never starts.
    Hang,
    /// The connection is reset instead.
    Reset,
    /// It is not HTTP.
    Garbage,
}

/// How the body of an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// This many more bytes follow, without a Content-Length.
    Endless(u64),
    /// Content-Length announces more, but the connection is closed.
    Truncated,
    /// Content-Length announces more, but the connection is reset.
    Reset,
    /// Content-Length announces more, but nothing follows.
    Hang,
}

impl Answer {
    /// An empty answer with this status; 500 if the status is invalid.
    pub fn status(status: u16) -> Self {
        Self::new(AnswerStart::Status(
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        ))
    }

    /// The request is read and never answered.
    pub fn hang() -> Self {
        Self::new(AnswerStart::Hang)
    }

    /// The request is read, then the connection is reset.
    pub fn reset() -> Self {
        Self::new(AnswerStart::Reset)
    }

    /// Something that is not HTTP.
    pub fn garbage() -> Self {
        Self::new(AnswerStart::Garbage)
    }

    /// 200 and a body of `bytes` bytes, without a Content-Length.
    pub fn endless(bytes: u64) -> Self {
        Self { ending: Ending::Endless(bytes), ..Self::status(200) }
    }

    /// 200 and half a body; then the connection is closed.
    pub fn truncated() -> Self {
        Self { ending: Ending::Truncated, ..Self::status(200).body("half") }
    }

    /// Resets the connection after the body.
    #[must_use]
    pub fn then_reset(self) -> Self {
        Self { ending: Ending::Reset, ..self }
    }

    /// Sends nothing more after the body, and keeps the connection open.
    #[must_use]
    pub fn then_hang(self) -> Self {
        Self { ending: Ending::Hang, ..self }
    }

    /// Adds a header; an invalid one is ignored.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            self.headers.push((name, value));
        }
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// Holds the answer back until the latch is opened.
    #[must_use]
    pub fn after(self, latch: &Latch) -> Self {
        Self { latch: Some(latch.clone()), ..self }
    }

    /// Delays the answer.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn new(head: AnswerStart) -> Self {
        let (headers, body, delay) = Default::default();
        Self { head, headers, body, ending: Ending::Whole, latch: None, delay }
    }
}
