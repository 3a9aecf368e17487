//! Bodies of requests.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Meter;
use crate::config::ClientBounds;
use crate::execute::http::BoxError;

/// A request's body that fails with [`TooSlow`](super::TooSlow) if its client takes too long to send it.
pub(crate) struct Upload<B> {
    body: B,
    meter: Meter,
}

impl<B> Upload<B> {
    pub(crate) const fn new(body: B, bounds: ClientBounds) -> Self {
        Self { body, meter: Meter::new(bounds) }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for Upload<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            let size = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
            self.meter.moved(size);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let slow = ready!(self.meter.poll_waiting(cx));
        tracing::info!("A client was cut off: it sent its request too slowly");
        Poll::Ready(Some(Err(slow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
