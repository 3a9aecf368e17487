//! `eclusa lanes`.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::Exit;
use super::client::{Client, path};
use super::output::{Format, table, typed_all};
use crate::api::model::Lane;

#[derive(Debug, Subcommand)]
pub(super) enum Lanes {
    /// List lanes with what waits in them
    Ls,
    /// Stop starting jobs of a lane; jobs are still taken in
    Pause {
        /// The lane
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lane: String,
    },
    /// Start jobs of a lane again
    Resume {
        /// The lane
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lane: String,
    },
}

/// Runs a command on lanes.
pub(super) fn run(ask: &Lanes, client: &Client, format: Format) -> Result<(), Exit> {
    let lane = match ask {
        Lanes::Ls => {
            let lanes = client.get("/v1/lanes")?;
            let items = lanes.as_array().cloned().unwrap_or_default();
            return format.many(&lanes, &items, || text(&items));
        }
        Lanes::Pause { lane } => client.post(&path(&["v1", "lanes", lane, "pause"]), None)?,
        Lanes::Resume { lane } => client.post(&path(&["v1", "lanes", lane, "resume"]), None)?,
    };
    format.one(&lane, || text(std::slice::from_ref(&lane)))
}

fn text(lanes: &[Value]) -> Result<String, Exit> {
    let row = |lane: Lane| {
        let state = if lane.paused { "paused" } else { "running" };
        let numbers = [
            lane.queued.high,
            lane.queued.normal,
            lane.queued.low,
            lane.pending,
            lane.processing,
            lane.totals.completed,
            lane.totals.failed,
            lane.dead_letters,
        ];
        let rates = lane.rates;
        let rates = [rates.accepted, rates.started, rates.completed, rates.failed, rates.dropped];
        let columns = [lane.name, state.into()].into_iter().chain(numbers.map(|number| number.to_string()));
        columns.chain(rates.map(|rate| rate.to_string())).collect()
    };
    let counts = ["HIGH", "NORMAL", "LOW", "PENDING", "PROCESSING", "COMPLETED", "FAILED", "DEAD"];
    let rates = ["IN/S", "STARTED/S", "DONE/S", "FAILED/S", "DROPPED/S"];
    let head = [&["LANE", "STATE"][..], &counts, &rates].concat();
    Ok(table(&head, typed_all(lanes)?.into_iter().map(row).collect()))
}
