//! Connections on which clients read answers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Meter;
use crate::config::ClientBounds;

/// The number of requests on a connection. Each request restarts the client's time to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests(Arc<AtomicUsize>);

impl Requests {
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A client's connection, which breaks if the client reads too slowly.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    stream: TcpStream,
    meter: Meter,
    requests: Requests,
    measured: usize,
}

impl ClientConnection {
    pub(crate) fn new(stream: TcpStream, bounds: ClientBounds, requests: Requests) -> Self {
        Self { stream, meter: Meter::new(bounds), requests, measured: 0 }
    }

    /// Returns the result of a write, or an error if the client has had unread bytes for too long.
    fn measure(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(written) => {
                self.meter.moved(*written.as_ref().unwrap_or(&0));
                Poll::Ready(written)
            }
            Poll::Pending => {
                let requests = self.requests.0.load(Ordering::Relaxed);
                if requests != self.measured {
                    (self.measured, self.meter.total) = (requests, Duration::ZERO);
                }
                let slow = ready!(self.meter.poll_waiting(cx));
                tracing::info!("A client was cut off: it read its answer too slowly");
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, slow)))
            }
        }
    }
}

impl AsyncRead for ClientConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.measure(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.measure(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
