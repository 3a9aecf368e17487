//! Connections, with one timeout for everything before the first byte of a request: name lookup, TCP and TLS.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;

use super::body::BoxError;
use super::resolve::Resolver;

/// Makes connections, each within `limit`.
#[derive(Clone)]
pub(crate) struct Connector {
    inner: HttpsConnector<HttpConnector<Resolver>>,
    limit: Duration,
}

impl Connector {
    pub(crate) fn new(tls: rustls::ClientConfig, limit: Duration) -> Self {
        Self::by(Resolver::default(), tls, limit)
    }

    /// Connects only to addresses that `resolver` returns.
    pub(crate) fn by(resolver: Resolver, tls: rustls::ClientConfig, limit: Duration) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        Self { inner: builder.enable_all_versions().wrap_connector(tcp), limit }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.inner.call(to);
        let limit = self.limit;
        Box::pin(async move {
            match tokio::time::timeout(limit, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(format!("no connection within {limit:?}").into()),
            }
        })
    }
}
