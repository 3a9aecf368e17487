//! The HTTP server: bounded in connections, header size and the time a client may take.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::clients::{Connection, Requests};
use crate::rules::CurrentRules;

/// The most bytes of a request's head.
const MAX_HEAD: usize = 64 * 1024;
/// How long a client may take to send a request's head, and how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests under way on one HTTP/2 connection.
const MAX_STREAMS: u32 = 200;
/// How long to pause when the system has no more sockets.
const BREATHER: Duration = Duration::from_millis(50);

/// Lets `service` answer until `stopping`, then until all requests under way are answered or `deadline` says that is enough.
pub(crate) async fn serve(
    listener: TcpListener,
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
        let (service, requests) = (service.clone(), Requests::default());
        let stream = Connection::new(stream, rules.get().config.server.client, requests.clone());
        let service = service_fn(move |request: http::Request<Incoming>| {
            requests.count();
            service.clone().answer(request, peer)
        });
        let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let connection = connections.watch(connection.into_owned());
        tokio::spawn(async move {
            // A client that breaks the connection is its own affair.
            let _ = connection.await;
            drop(slot);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(deadline, connections.shutdown()).await;
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

/// The next connection that there is room for. Those beyond wait in the system's own queue.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, Option<OwnedSemaphorePermit>) {
    let slot = slots.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Small answers must not wait for the next.
                let _ = stream.set_nodelay(true);
                return (stream, peer, slot);
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    tracing::warn!(error = %error, "A connection could not be accepted");
                    tokio::time::sleep(BREATHER).await;
                }
            }
        }
    }
}
