//! A tenant's client of the demo's server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Clock;
use eclusa_core::retry::ExtraCodes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};

use crate::config::{BaseUrl, HttpRules, Tls, UpstreamConfig, UpstreamKind};
use crate::execute::CallContext;
use crate::execute::http::HttpUpstream;
use crate::request::Request;

/// The type of a body.
const JSON: (HeaderName, HeaderValue) = (CONTENT_TYPE, HeaderValue::from_static("application/json"));

/// See the module.
pub(super) struct TenantClient {
    http: HttpUpstream,
    clock: Arc<dyn Clock>,
    tenant: &'static str,
}

impl TenantClient {
    /// `None` if the address cannot be called, which is a bug.
    pub(super) fn new(address: SocketAddr, tenant: &'static str, clock: &Arc<dyn Clock>) -> Option<Self> {
        let server = server(address);
        let http = HttpUpstream::new(&server, server.http()?).ok()?;
        Some(Self { http, clock: clock.clone(), tenant })
    }

    pub(super) async fn get(&self, path: &str, query: &str) {
        self.send("GET", path, query, "", &[self.tenant_header()]).await;
    }

    /// Sends JSON.
    pub(super) async fn post(&self, path: &str, body: &str) {
        self.send("POST", path, "", body, &[JSON, self.tenant_header()]).await;
    }

    /// Sends JSON to a call that is about all tenants.
    pub(super) async fn operate(&self, path: &str, body: &str) {
        self.send("POST", path, "", body, &[JSON]).await;
    }

    fn tenant_header(&self) -> (HeaderName, HeaderValue) {
        (HeaderName::from_static("eclusa-tenant"), HeaderValue::from_static(self.tenant))
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: &str,
        headers: &[(HeaderName, HeaderValue)],
    ) {
        let request = Request {
            method: method.into(),
            path: path.into(),
            query: (!query.is_empty()).then(|| query.into()),
            headers: Vec::new(),
            body: body.into(),
        };
        let key = format!("{}-{path}-{query}-{}", self.tenant, self.clock.now().as_millis());
        let context = CallContext { idempotency_key: &key, traceparent: None, headers, clock: &*self.clock };
        // Refusals by a full queue are part of the demo.
        self.http.call(&request, &context).await;
    }
}

/// The demo's server, as an upstream.
fn server(address: SocketAddr) -> UpstreamConfig {
    let authority = address.to_string().parse().unwrap_or(http::uri::Authority::from_static("127.0.0.1"));
    let rules = HttpRules {
        url: BaseUrl { scheme: http::uri::Scheme::HTTP, authority, prefix: String::new() },
        headers: Vec::new(),
        keys: Vec::new(),
        request: None,
        awaited: None,
        max_response: 1 << 20,
        policies: Vec::new(),
        reconcile: None,
    };
    UpstreamConfig {
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        codes: ExtraCodes::default(),
        tls: Tls::default(),
        kind: UpstreamKind::Http(Box::new(rules)),
    }
}
