//! Eclusa's guarantees, tested from outside: one real process, killed and stopped in every way.

mod crash;
mod ending;
mod limits;
mod order;
mod others;
mod secrets;
mod stopping;

use std::sync::Arc;

use eclusa::fake::FakeUpstream;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::program::Program;

/// One lane `work` to the upstream `up`, each with additional rules.
fn config(upstream: &FakeUpstream, of_lane: &str, of_upstream: &str) -> String {
    format!(
        "[lanes.work]\nchain = [\"up\"]\n{of_lane}\n\
         [upstreams.up]\nurl = \"{}\"\n{of_upstream}\n",
        upstream.url()
    )
}

/// A config with a short lease, for tests that wait until the job of a killed process is recovered.
fn with_short_leases(upstream: &FakeUpstream, of_lane: &str, of_upstream: &str) -> String {
    format!("[workers]\nlease = \"1s\"\n{}", config(upstream, of_lane, of_upstream))
}

/// A job with a unique request.
fn job(number: usize) -> Value {
    json!({ "request": { "path": format!("/{number}") } })
}

/// Enqueues `count` jobs; returns their ids.
async fn enqueue(program: &Program, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(program.enqueue("work", &job(number)).await);
    }
    ids
}

/// Starts the program again in the same directory.
async fn again(dir: Arc<TempDir>) -> Program {
    let config = std::fs::read_to_string(dir.path().join("eclusa.toml")).unwrap();
    Program::start_in(dir, &config, &[]).await
}

/// The paths the upstream saw, in order.
fn paths(upstream: &FakeUpstream) -> Vec<String> {
    upstream.requests().into_iter().map(|seen| seen.path).collect()
}

/// The lane's totals.
async fn totals(program: &Program) -> Value {
    program.get("/v1/lanes/work").await.json()["totals"].clone()
}
