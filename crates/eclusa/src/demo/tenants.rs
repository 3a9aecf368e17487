//! The demo's three tenants, who send requests all the time: one steadily, one in bursts, one seldom.

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

/// A tenant's habit: so many requests of each kind, so often.
struct Habit {
    tenant: &'static str,
    every: Duration,
    scores: u64,
    renders: u64,
}

const HABITS: [Habit; 3] = [
    Habit { tenant: "acme", every: Duration::from_secs(2), scores: 1, renders: 1 },
    Habit { tenant: "globex", every: Duration::from_secs(15), scores: 8, renders: 3 },
    Habit { tenant: "initech", every: Duration::from_secs(6), scores: 1, renders: 1 },
];
/// People whom the tenants ask about: few enough that some are asked about twice.
const PEOPLE: u64 = 400;

/// Begins to send to `address` until `stopped`.
pub(super) fn start(address: SocketAddr, clock: &Arc<dyn Clock>, stopped: &CancellationToken) {
    for habit in &HABITS {
        let server = server(address, habit.tenant);
        let client = server.http().map(|rules| HttpUpstream::new(&server, rules));
        let Some(Ok(client)) = client else { return };
        tokio::spawn(stopped.clone().run_until_cancelled_owned(send(client, clock.clone(), habit)));
    }
}

async fn send(client: HttpUpstream, clock: Arc<dyn Clock>, habit: &'static Habit) {
    for round in 0_u64.. {
        for number in 0..habit.scores {
            let person = (round * 31 + number * 7 + habit.tenant.len() as u64) % PEOPLE;
            call(&client, &*clock, habit, "/proxy/score", &format!("person={person}")).await;
        }
        for number in 0..habit.renders {
            call(&client, &*clock, habit, "/proxy/render/image", &format!("n={round}.{number}")).await;
        }
        tokio::time::sleep(habit.every).await;
    }
}

async fn call(client: &HttpUpstream, clock: &dyn Clock, habit: &Habit, path: &str, query: &str) {
    let request = Request {
        method: "GET".into(),
        path: path.into(),
        query: Some(query.into()),
        headers: Vec::new(),
        body: Vec::new(),
    };
    let key = format!("{}-{query}-{}", habit.tenant, clock.now().as_millis());
    let context = CallContext { idempotency_key: &key, traceparent: None, headers: &[], clock };
    // A full queue is part of the show.
    client.call(&request, &context).await;
}

/// Eclusa itself, as something that a tenant sends to.
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
