//! Streaming bodies, with bounds on size and on silence.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

use super::explain;
use crate::execute::CallEnd;

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request to an upstream.
pub(super) type SentBody = UnsyncBoxBody<Bytes, BoxError>;

/// The most bytes that are allocated in advance for a body of announced length.
const MAX_AHEAD: u64 = 64 * 1024;

/// Why an answer's body ended early.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BodyError {
    /// Nothing came for this long.
    #[error("the answer stopped: nothing came for {0:?}")]
    Idle(Duration),
    /// The connection broke.
    #[error("{0}")]
    Broken(String),
}

impl From<BodyError> for CallEnd {
    fn from(error: BodyError) -> Self {
        let text = error.to_string();
        match error {
            BodyError::Idle(_) => CallEnd::TimedOut(text),
            BodyError::Broken(_) => CallEnd::Broken(text),
        }
    }
}

fn broken(error: &hyper::Error) -> BodyError {
    BodyError::Broken(explain("the answer broke off", error))
}

/// The whole body, or `None` if it is larger than `max`. The rest is not read: dropping the body closes its connection
/// or stream.
pub(super) async fn collect(mut body: Incoming, max: usize) -> Result<Option<Vec<u8>>, BodyError> {
    let announced = body.size_hint().lower();
    if announced > max as u64 {
        return Ok(None);
    }
    let mut whole = Vec::with_capacity(usize::try_from(announced.min(MAX_AHEAD)).unwrap_or_default());
    while let Some(frame) = body.frame().await {
        // Other frames are trailers, which are not passed on.
        if let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() {
            if data.len() > max - whole.len() {
                return Ok(None);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(Some(whole))
}

/// An answer's body as it arrives. It fails when the upstream is silent for too long; a slow reader does not count as
/// silence.
#[derive(Debug)]
pub struct AnswerBody {
    body: Incoming,
    idle: Duration,
    /// Runs while waiting for the upstream. Created with the first wait: most answers need none.
    silence: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl AnswerBody {
    pub(super) const fn new(body: Incoming, idle: Duration) -> Self {
        Self { body, idle, silence: None, waiting: false }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(&error))));
        }
        let Self { idle, silence, waiting, .. } = &mut *self;
        let silence = silence.get_or_insert_with(|| Box::pin(sleep(*idle)));
        if !std::mem::replace(waiting, true) {
            silence.as_mut().reset(Instant::now() + *idle);
        }
        ready!(silence.as_mut().poll(cx));
        Poll::Ready(Some(Err(BodyError::Idle(self.idle))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The progress of the upload of a caller's body.
#[derive(Debug, Default)]
pub(super) struct UploadProgress {
    /// Notified when a part was taken, and when the wait for the caller begins.
    pub(super) changed: Notify,
    /// Whether the upload waits for the caller, which does not count as the upstream's silence.
    waiting: AtomicBool,
}

impl UploadProgress {
    pub(super) fn waits_for_caller(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A caller's body that reports the progress of its upload.
pub(super) struct Noted<B> {
    pub(super) body: B,
    pub(super) progress: Arc<UploadProgress>,
}

impl<B: Body + Unpin> Body for Noted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.progress.waiting.store(frame.is_pending(), Ordering::Relaxed);
        self.progress.changed.notify_one();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
