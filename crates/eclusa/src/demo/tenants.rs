//! The demo's three tenants: one sends requests steadily, one in bursts, one rarely.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Clock;
use eclusa_core::retry::ExtraCodes;
use http::{HeaderName, HeaderValue};
use tokio_util::sync::CancellationToken;

use crate::config::{BaseUrl, HttpRules, Tls, Upstream, UpstreamKind};
use crate::execute::CallContext;
use crate::execute::http::HttpUpstream;
use crate::request::Request;

/// The traffic of a tenant: how many requests of each kind, and how often.
struct Traffic {
    tenant: &'static str,
    every: Duration,
    scores: u64,
    renders: u64,
}

const TRAFFIC: [Traffic; 3] = [
    Traffic { tenant: "acme", every: Duration::from_secs(2), scores: 1, renders: 1 },
    Traffic { tenant: "globex", every: Duration::from_secs(15), scores: 8, renders: 3 },
    Traffic { tenant: "initech", every: Duration::from_secs(6), scores: 1, renders: 1 },
];
/// The number of people that are asked about: small enough for some cache hits.
const PEOPLE: u64 = 400;

/// Sends to `address` until `stopped`.
pub(super) fn start(address: SocketAddr, clock: &Arc<dyn Clock>, stopped: &CancellationToken) {
    for traffic in &TRAFFIC {
        let server = server(address, traffic.tenant);
        let client = server.http().map(|rules| HttpUpstream::new(&server, rules));
        let Some(Ok(client)) = client else { return };
        tokio::spawn(stopped.clone().run_until_cancelled_owned(send(client, clock.clone(), traffic)));
    }
}

async fn send(client: HttpUpstream, clock: Arc<dyn Clock>, traffic: &'static Traffic) {
    for round in 0_u64.. {
        for number in 0..traffic.scores {
            let person = (round * 31 + number * 7 + traffic.tenant.len() as u64) % PEOPLE;
            call(&client, &*clock, traffic, "/proxy/score", &format!("person={person}")).await;
        }
        for number in 0..traffic.renders {
            call(&client, &*clock, traffic, "/proxy/render/image", &format!("n={round}.{number}")).await;
        }
        tokio::time::sleep(traffic.every).await;
    }
}

async fn call(client: &HttpUpstream, clock: &dyn Clock, traffic: &Traffic, path: &str, query: &str) {
    let request = Request {
        method: "GET".into(),
        path: path.into(),
        query: Some(query.into()),
        headers: Vec::new(),
        body: Vec::new(),
    };
    let key = format!("{}-{query}-{}", traffic.tenant, clock.now().as_millis());
    let context = CallContext { idempotency_key: &key, traceparent: None, headers: &[], clock };
    // Refusals by a full queue are part of the demo.
    client.call(&request, &context).await;
}

/// Eclusa itself, as an upstream of a tenant.
fn server(address: SocketAddr, tenant: &'static str) -> Upstream {
    let authority = address.to_string().parse().unwrap_or(http::uri::Authority::from_static("127.0.0.1"));
    let rules = HttpRules {
        url: BaseUrl { scheme: http::uri::Scheme::HTTP, authority, prefix: String::new() },
        headers: vec![(HeaderName::from_static("eclusa-tenant"), HeaderValue::from_static(tenant))],
        keys: Vec::new(),
        request: None,
        awaited: None,
        max_response: 1 << 20,
        policies: Vec::new(),
        reconcile: None,
    };
    Upstream {
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        codes: ExtraCodes::default(),
        tls: Tls::default(),
        kind: UpstreamKind::Http(Box::new(rules)),
    }
}
