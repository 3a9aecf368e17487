//! Workers that make their own calls: they acquire permits, report the results, and share limits and breakers.

mod acquire;
mod invalid;
mod leases;
mod shared;
mod workers;

use serde_json::{Value, json};

use super::program::{self, Program};

/// A program with one upstream, `up`, which only the workers call. No lease expires during the test.
async fn start(rules: &str) -> Program {
    let config =
        format!("[workers]\nlease = \"10m\"\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n{rules}\n");
    Program::start(&config, &[]).await
}

pub(crate) async fn acquire(program: &Program, upstream: &str, body: &Value) -> program::Answer {
    program.post(&format!("/v1/limits/{upstream}/acquire"), body).await
}

/// Acquires a permit that must be granted; returns its lease.
async fn lease(program: &Program) -> String {
    let answer = acquire(program, "up", &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["leaseId"].as_str().unwrap().to_owned()
}

async fn settle(program: &Program, lease: &str, body: &Value) -> program::Answer {
    program.post(&format!("/v1/limits/leases/{lease}/settle"), body).await
}

/// Settles a lease that must exist.
async fn ends(program: &Program, lease: &str, status: &Value) {
    let answer = settle(program, lease, &json!({ "status": status })).await;
    assert_eq!((answer.status, answer.json()), (200, json!({ "settled": true })));
}

async fn in_flight(program: &Program) -> Value {
    program.get("/v1/upstreams/up").await.json()["inFlight"].take()
}

pub(crate) async fn breaker(program: &Program, upstream: &str) -> Value {
    program.get(&format!("/v1/breakers/{upstream}")).await.json()
}

/// Reports something to a breaker; returns its state.
pub(crate) async fn report(program: &Program, upstream: &str, verb: &str) -> Value {
    let answer = program.post(&format!("/v1/breakers/{upstream}/{verb}"), &Value::Null).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}
