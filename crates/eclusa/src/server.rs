//! The HTTP server, with limits on connections, header size and client time.

mod certificate;
mod threads;

pub(crate) use certificate::Certificate;
pub(crate) use threads::Threads;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::clients::{ClientConnection, Requests};
use crate::config::ClientBounds;
use crate::rules::CurrentRules;

/// Maximum bytes of a request head.
const MAX_HEAD: usize = 64 * 1024;
/// How long a client may take to send a request head, and how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 200;
/// Pause after a connection could not be accepted, as when the system has no more sockets.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Serves connections until `stopping`, then until all requests in progress are answered, at most for `deadline`. HTTPS
/// with `tls`, else HTTP; HTTP/2 with either.
pub(crate) async fn serve(
    (listener, tls): (TcpListener, Option<TlsAcceptor>),
    threads: Arc<Threads>,
    service: Arc<api::Service>,
    rules: Arc<CurrentRules>,
    stopping: CancellationToken,
    deadline: Duration,
) {
    let slots = Arc::new(Semaphore::new(rules.get().config.server.max_connections));
    let (server, connections) = (builder(), GracefulShutdown::new());
    loop {
        let (stream, peer, slot) = tokio::select! {
            () = stopping.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let conversation = Conversation {
            service: service.clone(),
            client: rules.get().config.server.client,
            peer,
            server: server.clone(),
            watcher: connections.watcher(),
            tls: tls.clone(),
            stopping: stopping.clone(),
        };
        threads.next().spawn(async move {
            conversation.hold(stream).await;
            drop(slot);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(deadline, connections.shutdown()).await;
}

/// A connection with a client, from its first byte to its last.
struct Conversation {
    service: Arc<api::Service>,
    client: ClientBounds,
    peer: SocketAddr,
    server: Builder<TokioExecutor>,
    watcher: Watcher,
    tls: Option<TlsAcceptor>,
    stopping: CancellationToken,
}

impl Conversation {
    /// Answers requests until the connection ends. The stream belongs to the runtime of the thread that calls this.
    async fn hold(self, stream: std::net::TcpStream) {
        let Self { service, client, peer, server, watcher, tls, stopping } = self;
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        let requests = Requests::default();
        let stream = ClientConnection::new(stream, client, requests.clone());
        let silent = first_request_overdue(requests.clone());
        let service = service_fn(move |request: http::Request<Incoming>| {
            requests.count();
            service.clone().answer(request, peer)
        });
        let conversation = async move {
            match tls {
                None => serve_connection(&server, stream, service, watcher).await,
                Some(tls) => {
                    let shaken = stopping.run_until_cancelled(tls_handshake(&tls, stream)).await;
                    if let Some(stream) = shaken.flatten() {
                        serve_connection(&server, stream, service, watcher).await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = conversation => {}
            () = silent => {}
        }
    }
}

/// Returns when the client has sent no request for too long. Only the first request is waited for: until the HTTP
/// version is known, nothing else limits the time.
async fn first_request_overdue(requests: Requests) {
    tokio::time::sleep(HEAD_TIMEOUT).await;
    if requests.any() {
        std::future::pending::<()>().await;
    }
}

/// Serves the requests of one connection until it ends.
async fn serve_connection<I, S>(server: &Builder<TokioExecutor>, stream: I, service: S, watcher: Watcher)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<http::Request<Incoming>, Response = Response, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
{
    let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
    // A client may break its connection at any time.
    let _ = watcher.watch(connection.into_owned()).await;
}

/// The connection inside TLS; `None` if the handshake fails.
async fn tls_handshake(
    tls: &TlsAcceptor,
    stream: ClientConnection,
) -> Option<tokio_rustls::server::TlsStream<ClientConnection>> {
    let problem = match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not finished within {HANDSHAKE_TIMEOUT:?}"),
    };
    tracing::debug!(error = problem, "A TLS handshake failed");
    None
}

fn builder() -> Builder<TokioExecutor> {
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .keep_alive_interval(HEAD_TIMEOUT);
    server
}

/// Accepts the next connection when there is room. Further ones wait in the system's backlog.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (std::net::TcpStream, SocketAddr, Option<OwnedSemaphorePermit>) {
    let slot = slots.clone().acquire_owned().await.ok();
    loop {
        // It is taken off this runtime: it lives on that of another thread.
        match listener.accept().await.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                // Small responses must not be delayed.
                let _ = stream.set_nodelay(true);
                return (stream, peer, slot);
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    tracing::warn!(error = %error, "A connection could not be accepted");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_no_request_is_disconnected() {
        let given_up =
            tokio::time::timeout(2 * HEAD_TIMEOUT, first_request_overdue(Requests::default())).await;
        assert!(given_up.is_ok());
        let requests = Requests::default();
        requests.count();
        assert!(tokio::time::timeout(2 * HEAD_TIMEOUT, first_request_overdue(requests)).await.is_err());
    }
}
