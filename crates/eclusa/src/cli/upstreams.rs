//! `eclusa upstreams`.

use clap::Subcommand;

use super::Exit;
use super::client::Client;
use super::output::{Format, or_dash, table, typed_all};
use crate::api::model::{Gate, Pace, Upstream};

#[derive(Debug, Subcommand)]
pub(super) enum Upstreams {
    /// List upstreams with the state of their gates
    Ls,
}

/// Runs a command on upstreams.
pub(super) fn run(ask: &Upstreams, client: &Client, format: Format) -> Result<(), Exit> {
    let Upstreams::Ls = ask;
    let upstreams = client.get("/v1/upstreams")?;
    let items = upstreams.as_array().cloned().unwrap_or_default();
    format.many(&upstreams, &items, || {
        let row = |name: String, in_flight: u32, last_minute: u64, gates: &[Gate], pace: Option<&Pace>| {
            let gates = gates.iter().map(|one| gate(one, pace)).collect::<Vec<_>>().join("; ");
            vec![name, in_flight.to_string(), last_minute.to_string(), gates]
        };
        let rows = typed_all(&items)?.into_iter().flat_map(|upstream: Upstream| {
            let Upstream { name, in_flight, requests_last_minute, gates, pace, keys } = upstream;
            let keys: Vec<_> = keys
                .into_iter()
                .map(|key| {
                    let name = format!("{name}/{}", key.name);
                    row(name, key.in_flight, key.requests_last_minute, &key.gates, None)
                })
                .collect();
            [row(name, in_flight, requests_last_minute, &gates, pace.as_ref())].into_iter().chain(keys)
        });
        let rows = rows.collect();
        Ok(table(&["UPSTREAM", "IN FLIGHT", "LAST MINUTE", "GATES"], rows))
    })
}

/// A gate in a few words: what it counts, of how much, what an adaptive pace learned, and until when it is shut.
fn gate(gate: &Gate, pace: Option<&Pace>) -> String {
    let limit = gate.limit.map(|limit| format!("/{limit}")).unwrap_or_default();
    let shut = match (gate.open, &gate.until) {
        (true, _) => String::new(),
        (false, Some(until)) => format!(" shut until {until}"),
        (false, None) => " shut".to_owned(),
    };
    let learned = pace.filter(|pace| pace.adaptive && gate.reason == "pace").map(learned).unwrap_or_default();
    format!("{} {}{limit}{learned}{shut}", gate.reason, gate.level)
}

/// Starts per second, and the latency that is taken for the floor.
fn learned(pace: &Pace) -> String {
    let floor = pace.floor_latency_ms.map(|ms| format!(", floor {ms} ms")).unwrap_or_default();
    format!(" ({:.2}/s{floor})", pace.rate)
}

/// Gates as a table, with their upstream.
pub(super) fn gates(gates: &[Gate]) -> String {
    let row = |gate: &Gate| {
        let limit = gate.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
        let state = if gate.open { "open" } else { "shut" };
        let upstream = or_dash(gate.upstream.as_deref());
        let until = or_dash(gate.until.as_deref());
        vec![upstream, gate.reason.clone(), state.into(), gate.level.to_string(), limit, until]
    };
    table(&["UPSTREAM", "GATE", "STATE", "LEVEL", "LIMIT", "UNTIL"], gates.iter().map(row).collect())
}
