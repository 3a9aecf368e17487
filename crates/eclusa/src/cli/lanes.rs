//! `eclusa lanes`.

use std::cmp::Reverse;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::Exit;
use super::client::{Client, path};
use super::output::{Format, short, table, typed_all};
use super::pages::{Pages, SHOWN, limit};
use super::watch::{self, Listing, WatchArgs};
use crate::model::{Lane, TenantFairnessMetrics};

#[derive(Debug, Subcommand)]
pub(super) enum LanesCommand {
    /// List lanes with their queues
    Ls(WatchArgs),
    /// List the tenants of a lane with their fairness metrics
    Tenants {
        /// The lane
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lane: String,
        /// The most tenants to show; those with the most waiting jobs come first
        #[arg(long, default_value_t = SHOWN, value_parser = limit)]
        limit: usize,
    },
    /// Stop starting jobs of a lane; new jobs are still accepted
    Pause {
        /// The lane
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lane: String,
    },
    /// Start jobs of a paused lane again
    Resume {
        /// The lane
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lane: String,
    },
}

/// Runs a command on lanes.
pub(super) fn run(args: &LanesCommand, client: &Client, format: Format) -> Result<(), Exit> {
    let lane = match args {
        LanesCommand::Ls(watch) => {
            return watch::show(watch, format, || client.get("/v1/lanes").map(Listing::of), text);
        }
        LanesCommand::Tenants { lane, limit } => return tenants(client, lane, *limit, format),
        LanesCommand::Pause { lane } => client.post(&path(&["v1", "lanes", lane, "pause"]), None)?,
        LanesCommand::Resume { lane } => client.post(&path(&["v1", "lanes", lane, "resume"]), None)?,
    };
    format.one(&lane, || text(std::slice::from_ref(&lane)))
}

/// Reads all pages, because the tenants with the most waiting jobs may be on any page.
fn tenants(client: &Client, lane: &str, limit: usize, format: Format) -> Result<(), Exit> {
    let address = path(&["v1", "lanes", lane, "tenants"]);
    let mut pages = Pages::read(client, &address, &[], "tenants", usize::MAX)?;
    let most = |tenant: &Value| (tenant["queued"].as_u64(), tenant["totalProcessed"].as_u64());
    pages.items.sort_by_key(|tenant| Reverse(most(tenant)));
    pages.keep(limit);
    format.many(&pages.whole("tenants"), &pages.items, || tenants_text(&pages.items))?;
    pages.note_rest("tenants");
    Ok(())
}

fn tenants_text(tenants: &[Value]) -> Result<String, Exit> {
    let row = |tenant: TenantFairnessMetrics| {
        let last = tenant.last_processed_at.unwrap_or_else(|| "-".into());
        let numbers = [
            tenant.queued,
            tenant.processing,
            tenant.total_processed,
            tenant.consecutive_batch_count.into(),
            tenant.weight.into(),
        ];
        let fairness = [tenant.rounds_without_processing, tenant.current_priority];
        let next = if tenant.next { "next" } else { "-" };
        let columns =
            [tenant.company_id, next.to_owned()].into_iter().chain(numbers.map(|number| number.to_string()));
        columns.chain(fairness.map(|number| number.to_string())).chain([last]).collect()
    };
    let head = [
        "TENANT",
        "TURN",
        "QUEUED",
        "PROCESSING",
        "PROCESSED",
        "IN A ROW",
        "WEIGHT",
        "ROUNDS",
        "PRIORITY",
        "LAST",
    ];
    Ok(table(&head, typed_all(tenants)?.into_iter().map(row).collect()))
}

/// The longest lane name that is shown in full; a line then has 99 characters.
const NAME: usize = 18;

/// Lanes as a table; the JSON output has more.
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
        let rates = [lane.rates.accepted, lane.rates.completed];
        let columns = [shortened(&lane.name), state.into()].into_iter().chain(numbers.map(short));
        columns.chain(rates.map(|rate| format!("{rate:.1}"))).collect()
    };
    let head = [
        "LANE", "STATE", "HIGH", "NORMAL", "LOW", "PENDING", "ACTIVE", "DONE", "FAILED", "DEAD", "IN/S",
        "DONE/S",
    ];
    Ok(table(&head, typed_all(lanes)?.into_iter().map(row).collect()))
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME) {
        Some(_) => name.chars().take(NAME - 1).chain(['…']).collect(),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_list_fits_in_a_hundred_columns() {
        let most = 999_999_999;
        let totals = [
            "accepted",
            "started",
            "completed",
            "coalesced",
            "cacheHits",
            "fallbacks",
            "failed",
            "cancelled",
            "expired",
            "preempted",
            "refused",
            "deadLetters",
            "deadLettersTrimmed",
        ];
        let rates = ["accepted", "started", "completed", "failed", "dropped", "answered", "seconds"];
        let lane = json!({
            "name": "a-lane-with-a-very-long-name", "paused": false, "pending": most, "processing": most,
            "queued": { "high": most, "normal": most, "low": most }, "deadLetters": most, "waitingBytes": most,
            "finished": most, "answers": {}, "gates": [],
            "totals": totals.map(|name| (name.to_owned(), json!(most))).into_iter().collect::<serde_json::Map<_, _>>(),
            "rates": rates.map(|name| (name.to_owned(), json!(9999.94))).into_iter().collect::<serde_json::Map<_, _>>(),
        });
        let shown = text(&[lane]).unwrap();
        assert!(shown.contains("a-lane-with-a-ver…"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    }
}
