//! What can be answered.

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
    /// Lets go what is held back, and all that comes later.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn opened(&self) {
        // The sender lives in `self`.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

/// An answer to be given.
#[derive(Debug, Clone)]
pub struct Answer {
    pub(super) head: Head,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Bytes,
    pub(super) ending: Ending,
    pub(super) latch: Option<Latch>,
    pub(super) delay: Duration,
}

/// How an answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Status(StatusCode),
    /// It never does.
    Hang,
    /// The connection is reset instead.
    Reset,
    /// It is not HTTP.
    Garbage,
}

/// How its body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// So many more bytes come after it, without their number being announced.
    Endless(u64),
    /// More was announced, but the connection is closed.
    Truncated,
    /// More was announced, but the connection is reset.
    Reset,
    /// More was announced, but nothing comes.
    Hang,
}

impl Answer {
    /// An empty answer with this status; 500 if it is none.
    pub fn status(status: u16) -> Self {
        Self::new(Head::Status(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)))
    }

    /// The request is read and never answered.
    pub fn hang() -> Self {
        Self::new(Head::Hang)
    }

    /// The request is read, then the connection is reset.
    pub fn reset() -> Self {
        Self::new(Head::Reset)
    }

    /// Something that is not HTTP.
    pub fn garbage() -> Self {
        Self::new(Head::Garbage)
    }

    /// 200 and so many bytes, without their number being announced.
    pub fn endless(bytes: u64) -> Self {
        Self { ending: Ending::Endless(bytes), ..Self::status(200) }
    }

    /// 200 and half a body, then the connection is closed.
    pub fn truncated() -> Self {
        Self { ending: Ending::Truncated, ..Self::status(200).body("half") }
    }

    /// The same, but reset after the body given so far.
    #[must_use]
    pub fn then_reset(self) -> Self {
        Self { ending: Ending::Reset, ..self }
    }

    /// The same, but silent after the body given so far.
    #[must_use]
    pub fn then_hang(self) -> Self {
        Self { ending: Ending::Hang, ..self }
    }

    /// With a header more, if it is one.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            self.headers.push((name, value));
        }
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// Held back until the latch is opened.
    #[must_use]
    pub fn after(self, latch: &Latch) -> Self {
        Self { latch: Some(latch.clone()), ..self }
    }

    /// Held back for so long.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn new(head: Head) -> Self {
        let (headers, body, delay) = Default::default();
        Self { head, headers, body, ending: Ending::Whole, latch: None, delay }
    }
}
