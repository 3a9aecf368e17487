//! `eclusa upstreams`.

use eclusa_core::CALLBACKS;
use std::fmt::Write;

use clap::Subcommand;
use serde_json::Value;

use super::Exit;
use super::client::{Client, escaped};
use super::gates::gate;
use super::output::{Format, or_dash, table, typed_all};
use super::watch::{self, Listing, WatchArgs};
use crate::model::{CodeOutcome, Upstream, UpstreamCodes};

#[derive(Debug, Subcommand)]
pub(super) enum UpstreamsCommand {
    /// List upstreams with the state of their gates
    Ls(WatchArgs),
    /// Show how often retries succeeded after each code, and suggest config changes
    Codes {
        /// The upstream; all if not given
        name: Option<String>,
    },
}

/// Runs a command on upstreams.
pub(super) fn run(args: &UpstreamsCommand, client: &Client, format: Format) -> Result<(), Exit> {
    match args {
        UpstreamsCommand::Ls(watch) => {
            watch::show(watch, format, || client.get("/v1/upstreams").map(Listing::of), text)
        }
        UpstreamsCommand::Codes { name } => codes(name.as_deref(), client, format),
    }
}

fn text(upstreams: &[Value]) -> Result<String, Exit> {
    let row = |name: String, in_flight: u32, last_minute: u64, gates: Vec<String>| {
        let gates = gates.join("; ");
        vec![name, in_flight.to_string(), last_minute.to_string(), gates]
    };
    let rows = typed_all(upstreams)?.into_iter().flat_map(|upstream: Upstream| {
        let Upstream { name, in_flight, requests_last_minute, gates, breaker, pace, keys, .. } = upstream;
        let gates = gates.iter().map(|one| gate(one, breaker.as_deref(), pace.as_ref())).collect();
        let keys: Vec<_> = keys
            .into_iter()
            .map(|key| {
                let name = format!("{name}/{}", key.name);
                let gates = key.gates.iter().map(|one| gate(one, None, None)).collect();
                row(name, key.in_flight, key.requests_last_minute, gates)
            })
            .collect();
        [row(name, in_flight, requests_last_minute, gates)].into_iter().chain(keys)
    });
    Ok(table(&["UPSTREAM", "IN FLIGHT", "LAST MINUTE", "GATES"], rows.collect()))
}

fn codes(name: Option<&str>, client: &Client, format: Format) -> Result<(), Exit> {
    let names = if let Some(name) = name {
        vec![name.to_owned()]
    } else {
        let all = client.get("/v1/upstreams")?;
        let all: Vec<Upstream> = typed_all(&all.as_array().cloned().unwrap_or_default())?;
        all.into_iter().map(|upstream| upstream.name).filter(|name| name != CALLBACKS).collect()
    };
    let get = |name: &String| client.get(&format!("/v1/upstreams/{}/codes", escaped(name)));
    let items = names.iter().map(get).collect::<Result<Vec<_>, _>>()?;
    format.many(&Value::Array(items.clone()), &items, || {
        let mut rows = Vec::new();
        let mut proposals = String::new();
        for upstream in typed_all::<UpstreamCodes>(&items)? {
            rows.extend(upstream.codes.iter().map(|code| code_row(&upstream.upstream, code)));
            if let Some(toml) = upstream.toml {
                let _ = write!(proposals, "\n[upstreams.{}]\n{toml}", upstream.upstream);
            }
        }
        let head = ["UPSTREAM", "CODE", "CLASS", "BY", "SEEN", "RETRIED", "CURED", "SHARE", "PROPOSED"];
        Ok(table(&head, rows) + &proposals)
    })
}

fn code_row(upstream: &str, code: &CodeOutcome) -> Vec<String> {
    let share = code.cure_share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0));
    vec![
        upstream.to_owned(),
        code.code.clone(),
        code.class.clone(),
        code.classified_by.clone(),
        code.seen.to_string(),
        code.retried.to_string(),
        code.cured.to_string(),
        share,
        or_dash(code.proposed.as_deref()),
    ]
}
