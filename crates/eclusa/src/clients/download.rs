//! Answers over HTTP/2, where one stream can stall while its connection does not.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::{Meter, TooSlow};
use crate::config::ClientBounds;
use crate::execute::http::BoxError;

/// Parts that are read ahead of the client, each at most as large as one read from an upstream.
const AHEAD: usize = 2;

/// A body that is read in a separate task, which gives up if the client does not read what has arrived.
pub(crate) struct Download {
    parts: mpsc::Receiver<DownloadPart>,
    ended: bool,
}

enum DownloadPart {
    Frame(Frame<Bytes>),
    Broken(BoxError),
    End,
}

impl Download {
    pub(crate) fn new<B>(body: B, bounds: ClientBounds) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + Unpin + 'static,
    {
        let (passed, parts) = mpsc::channel(AHEAD);
        let ended = body.is_end_stream();
        if !ended {
            tokio::spawn(pass(body, passed, Meter::new(bounds)));
        }
        Self { parts, ended }
    }
}

/// Passes a body on until its end, or until the client stops reading it.
async fn pass<B>(mut body: B, passed: mpsc::Sender<DownloadPart>, mut meter: Meter)
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    loop {
        let next = tokio::select! {
            next = body.frame() => next,
            () = passed.closed() => return,
        };
        let (part, size) = match next {
            None => (DownloadPart::End, 0),
            Some(Ok(frame)) => {
                let size = frame.data_ref().map_or(0, Bytes::len);
                (DownloadPart::Frame(frame), size)
            }
            Some(Err(error)) => (DownloadPart::Broken(error.into()), 0),
        };
        let last = !matches!(part, DownloadPart::Frame(_));
        tokio::select! {
            biased;
            room = passed.reserve() => {
                let Ok(room) = room else { return };
                meter.moved(size);
                room.send(part);
            }
            _ = poll_fn(|cx| meter.poll_waiting(cx)) => {
                tracing::info!("A client was cut off: it read its answer too slowly");
                return;
            }
        }
        if last {
            return;
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let part = ready!(self.parts.poll_recv(cx));
        self.ended = !matches!(part, Some(DownloadPart::Frame(_)));
        Poll::Ready(match part {
            Some(DownloadPart::Frame(frame)) => Some(Ok(frame)),
            Some(DownloadPart::Broken(error)) => Some(Err(error)),
            Some(DownloadPart::End) => None,
            // The task gave up.
            None => Some(Err(TooSlow.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
