//! The demo's three tenants: one sends requests steadily, one a few at a time, one rarely.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Clock;
use tokio_util::sync::CancellationToken;

use super::client::TenantClient;

/// The traffic of a tenant: how many requests of each kind, and how often. Together they stay below the bureau's limit.
struct Traffic {
    tenant: &'static str,
    every: Duration,
    scores: u64,
    renders: u64,
}

const TRAFFIC: [Traffic; 3] = [
    Traffic { tenant: "acme", every: Duration::from_secs(4), scores: 1, renders: 2 },
    Traffic { tenant: "globex", every: Duration::from_secs(15), scores: 1, renders: 3 },
    Traffic { tenant: "initech", every: Duration::from_secs(10), scores: 1, renders: 1 },
];
/// The number of people that are asked about: small enough for some cache hits.
const PEOPLE: u64 = 400;

/// Sends to `address` until `stopped`.
pub(super) fn start(address: SocketAddr, clock: &Arc<dyn Clock>, stopped: &CancellationToken) {
    for traffic in &TRAFFIC {
        let Some(client) = TenantClient::new(address, traffic.tenant, clock) else { return };
        tokio::spawn(stopped.clone().run_until_cancelled_owned(send(client, traffic)));
    }
}

async fn send(client: TenantClient, traffic: &'static Traffic) {
    for round in 0_u64.. {
        for number in 0..traffic.scores {
            let person = (round * 31 + number * 7 + traffic.tenant.len() as u64) % PEOPLE;
            client.get("/proxy/score", &format!("person={person}")).await;
        }
        for number in 0..traffic.renders {
            client.get("/proxy/render/image", &format!("n={round}.{number}")).await;
        }
        tokio::time::sleep(traffic.every).await;
    }
}
