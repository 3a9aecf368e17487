//! The beginning of a request body, read before any permit is taken.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use super::super::extract::{no_room, unread};
use super::super::problem::{Kind, Problem};
use crate::clients::{Upload, Uploads};
use crate::config::ServerConfig;
use crate::execute::http::BoxError;

/// Bodies up to this size are buffered whole, so that another upstream can be tried.
pub(super) const HELD: usize = 64 * 1024;

/// The part of a body that was read.
pub(super) enum Held {
    /// The whole body.
    Whole(Bytes),
    /// Its beginning; the rest is streamed.
    Begun(Begun),
}

/// Reads a body until it ends or exceeds `keep` bytes. A slow client blocks nothing meanwhile.
pub(super) async fn hold(
    headers: &HeaderMap,
    body: Incoming,
    server: &ServerConfig,
    keep: usize,
    uploads: &Uploads,
) -> Result<Held, Problem> {
    if body.is_end_stream() {
        return Ok(Held::Whole(Bytes::new()));
    }
    let max = server.max_body;
    let announced = headers.get(http::header::CONTENT_LENGTH);
    let announced: Option<usize> = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length| length > max) {
        let detail = format!("The body has more than {max} bytes (server.max_body)");
        return Err(Problem::new(Kind::TooLarge, detail));
    }
    let mut rest = Limited::new(Upload::new(body, server.client), max);
    let mut begun = uploads.begin(server.max_bodies);
    while begun.len() <= keep {
        let Some(frame) = rest.frame().await else { return Ok(Held::Whole(begun.finish())) };
        // Other frames are trailers, which are not forwarded.
        let Ok(part) = frame.map_err(|error| unread(&*error, max))?.into_data() else { continue };
        begun.add(part).map_err(no_room)?;
    }
    Ok(Held::Begun(Begun { held: begun.finish(), rest }))
}

/// A body whose beginning is buffered.
pub(super) struct Begun {
    held: Bytes,
    rest: Limited<Upload<Incoming>>,
}

impl Body for Begun {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.held.is_empty() {
            return Pin::new(&mut self.rest).poll_frame(cx);
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.held)))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (held, rest) = (self.held.len() as u64, self.rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(held + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(held + upper);
        }
        hint
    }
}
