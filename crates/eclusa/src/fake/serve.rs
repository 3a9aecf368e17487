//! The server behind a fake upstream.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use eclusa_core::Clock;
use futures_util::stream::{self, Stream, StreamExt};
use http::header::CONTENT_LENGTH;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::answer::{Answer, AnswerStart, Ending};
use super::{FakeServer, ReceivedRequest};
use crate::SystemClock;

/// The largest request body that is read.
const MAX_BODY: usize = 64 * 1024 * 1024;
/// The chunk in which long bodies are sent.
const PART: &[u8] = &[b'x'; 64 * 1024];

/// Why a connection is aborted.
type Abandon = Box<dyn std::error::Error + Send + Sync>;
type ScriptedBody = UnsyncBoxBody<Bytes, Abandon>;

pub(super) async fn run(listener: TcpListener, shared: Arc<FakeServer>) {
    // Dropped with the server, which aborts all connections.
    let mut connections = JoinSet::new();
    let mut number = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    tokio::task::yield_now().await;
                    continue;
                };
                number += 1;
                connections.spawn(connection(stream, number, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, number: u64, shared: Arc<FakeServer>) {
    // Declared first, so dropped last: when the receiver is gone, the connection is closed.
    let mut generation = shared.generation.subscribe();
    let Ok((stream, wire)) = with_wire(stream) else { return };
    let service = service_fn(|request| handle(request, number, Arc::clone(&shared), Arc::clone(&wire)));
    let server = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        _ = server.serve_connection(TokioIo::new(stream), service) => {}
        _ = generation.changed() => {}
    }
}

/// A second handle on a connection, for what an HTTP server does not do.
struct Wire(TcpStream);

fn with_wire(stream: TcpStream) -> io::Result<(TcpStream, Arc<Wire>)> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    let wire = TcpStream::from_std(stream.try_clone()?)?;
    Ok((TcpStream::from_std(stream)?, Arc::new(Wire(wire))))
}

impl Wire {
    /// Makes closing the connection send a reset.
    fn reset(&self) -> Abandon {
        self.0.set_zero_linger().err().unwrap_or_else(|| io::Error::other("scripted reset")).into()
    }

    async fn garbage(&self) -> Abandon {
        let _ = self.0.writable().await;
        let sent = self.0.try_write(b"\x16\x03 this is not HTTP\r\n\r\n");
        sent.err().unwrap_or_else(|| io::Error::other("scripted garbage")).into()
    }
}

async fn handle(
    request: Request<Incoming>,
    connection: u64,
    shared: Arc<FakeServer>,
    wire: Arc<Wire>,
) -> Result<Response<ScriptedBody>, Abandon> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let answer = shared.answer(&ReceivedRequest {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        version: head.version,
        headers: head.headers,
        body,
        at: SystemClock.now(),
        connection,
    });
    if let Some(latch) = &answer.latch {
        latch.opened().await;
    }
    tokio::time::sleep(answer.delay).await;
    match answer.head {
        AnswerStart::Status(status) => Ok(respond(status, answer, wire)),
        AnswerStart::Hang => std::future::pending().await,
        AnswerStart::Reset => Err(wire.reset()),
        AnswerStart::Garbage => Err(wire.garbage().await),
    }
}

fn respond(status: StatusCode, answer: Answer, wire: Arc<Wire>) -> Response<ScriptedBody> {
    let length = answer.body.len();
    let announced = match answer.ending {
        Ending::Whole => Some(length),
        Ending::Endless(_) => None,
        Ending::Truncated | Ending::Reset | Ending::Hang => Some(2 * length + 1),
    };
    let mut response =
        Response::new(BodyExt::boxed_unsync(StreamBody::new(parts(answer.body, answer.ending, wire))));
    *response.status_mut() = status;
    // These statuses have no body.
    let has_length = status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
    if let Some(announced) = announced.filter(|_| has_length) {
        response.headers_mut().insert(CONTENT_LENGTH, announced.into());
    }
    for (name, value) in answer.headers {
        response.headers_mut().append(name, value);
    }
    response
}

fn parts(
    body: Bytes,
    ending: Ending,
    wire: Arc<Wire>,
) -> impl Stream<Item = Result<Frame<Bytes>, Abandon>> + Send {
    let begin = (!body.is_empty()).then(|| Ok(Frame::data(body)));
    let end = stream::unfold(ending, move |ending| {
        let wire = Arc::clone(&wire);
        async move {
            // Let the body so far be sent first.
            tokio::task::yield_now().await;
            match ending {
                Ending::Whole | Ending::Endless(0) => None,
                Ending::Endless(left) => {
                    let size = PART.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let part = Frame::data(Bytes::from_static(&PART[..size]));
                    Some((Ok(part), Ending::Endless(left - size as u64)))
                }
                Ending::Truncated => Some((Err("scripted end".into()), Ending::Whole)),
                Ending::Reset => Some((Err(wire.reset()), Ending::Whole)),
                Ending::Hang => std::future::pending().await,
            }
        }
    });
    stream::iter(begin).chain(end)
}
