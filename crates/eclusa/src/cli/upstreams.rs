//! `eclusa upstreams`.

use clap::Subcommand;

use super::Exit;
use super::client::Client;
use super::output::{Format, or_dash, table, typed_all};
use crate::api::model::{Gate, Upstream};

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
        let row = |upstream: Upstream| {
            let numbers = [u64::from(upstream.in_flight), upstream.requests_last_minute];
            let gates = upstream.gates.iter().map(gate).collect::<Vec<_>>().join("; ");
            let [in_flight, last_minute] = numbers.map(|number| number.to_string());
            vec![upstream.name, in_flight, last_minute, gates]
        };
        let rows = typed_all(&items)?.into_iter().map(row).collect();
        Ok(table(&["UPSTREAM", "IN FLIGHT", "LAST MINUTE", "GATES"], rows))
    })
}

/// A gate in a few words: what it counts, of how much, and until when it is shut.
fn gate(gate: &Gate) -> String {
    let limit = gate.limit.map(|limit| format!("/{limit}")).unwrap_or_default();
    let shut = match (gate.open, &gate.until) {
        (true, _) => String::new(),
        (false, Some(until)) => format!(" shut until {until}"),
        (false, None) => " shut".to_owned(),
    };
    format!("{} {}{limit}{shut}", gate.reason, gate.level)
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
