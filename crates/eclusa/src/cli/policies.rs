//! `eclusa policies`.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};

use super::Exit;
use super::client::{Client, path, with_query};
use super::output::{Format, or_dash, table, typed_all};
use super::pages::{Pages, SHOWN, limit};
use super::watch::{self, Listing, WatchArgs};
use crate::api::policies::BucketState;

#[derive(Debug, Subcommand)]
pub(super) enum PoliciesCommand {
    /// List balances, the emptiest first
    Ls {
        /// Only this scope: the value, or its hash
        #[arg(long)]
        scope: Option<String>,
        /// The most balances to show
        #[arg(long, default_value_t = SHOWN, value_parser = limit)]
        limit: usize,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Show the balance of a policy, or of its scopes
    Get {
        /// The policy
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        policy: String,
        /// Only this scope: the value, or its hash
        #[arg(long)]
        scope: Option<String>,
    },
    /// Report an event that credits tokens
    Credit {
        /// The event, as named in the policies
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        event: String,
        /// The correlation id of the call
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        correlation_id: String,
    },
}

/// Runs a command on policies.
pub(super) fn run(args: &PoliciesCommand, client: &Client, format: Format) -> Result<(), Exit> {
    match args {
        PoliciesCommand::Ls { scope, limit, watch } => {
            let filter = [("scope", scope.as_deref())];
            let read = || {
                let mut pages = Pages::read(client, "/v1/policies", &filter, "policies", *limit)?;
                pages.items.sort_by_key(left);
                Ok(Listing::pages(pages, "policies", "balances"))
            };
            watch::show(watch, format, read, text)
        }
        PoliciesCommand::Get { policy, scope } => {
            let at = path(&["v1", "policies", policy]);
            let found = client.get(&with_query(&at, &[("scope", scope.as_deref())]))?;
            let mut items = match found.get("policies") {
                Some(Value::Array(items)) => items.clone(),
                _ => vec![found.clone()],
            };
            items.sort_by_key(left);
            format.one(&found, || text(&items))
        }
        PoliciesCommand::Credit { event, correlation_id } => {
            let body = json!({ "event": event, "correlationId": correlation_id });
            let credited = client.post("/v1/policies/credits", Some(&body))?;
            format.one(&credited, || {
                let again = if credited["repeated"] == true { ", already counted" } else { "" };
                Ok(format!("credited {}{again}\n", credited["credited"]))
            })
        }
    }
}

/// The fill level of a bucket, in millionths.
fn left(item: &Value) -> i128 {
    let number = |name: &str| i128::from(item[name].as_i64().unwrap_or_default());
    number("availableTokens") * 1_000_000 / number("capacity").max(1)
}

fn text(items: &[Value]) -> Result<String, Exit> {
    let row = |state: BucketState| {
        let full_in = seconds_to_full(&state).map_or_else(|| "-".to_owned(), readable);
        let refill = format!("{}/{}", state.refill_tokens, readable(state.refill_period_sec));
        let level = format!("{}/{}", state.available_tokens, state.capacity);
        let class = or_dash(state.class.as_deref());
        let empty_in = state.empty_in_sec.map_or_else(|| "-".to_owned(), readable);
        let closed = or_dash(state.closed_until.as_deref());
        vec![state.name, class, state.scope, level, refill, full_in, empty_in, closed]
    };
    let rows = typed_all(items)?.into_iter().map(row).collect();
    let columns = ["POLICY", "CLASS", "SCOPE", "TOKENS", "REFILL", "FULL IN", "EMPTY IN", "CLOSED UNTIL"];
    Ok(table(&columns, rows))
}

/// Seconds until the bucket is full if nothing is taken; `None` if it is full.
fn seconds_to_full(state: &BucketState) -> Option<u64> {
    let missing =
        u64::try_from(state.capacity - state.available_tokens).ok().filter(|missing| *missing > 0)?;
    let seconds = missing.saturating_mul(state.refill_period_sec);
    Some(seconds.div_ceil(u64::from(state.refill_tokens.max(1))))
}

fn readable(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds.div_ceil(60)),
        7_200..=172_799 => format!("{}h", seconds.div_ceil(3_600)),
        _ => format!("{}d", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(available: i64, capacity: i64, refill: (u32, u64)) -> Value {
        json!({ "name": "P", "upstream": "u", "availableTokens": available, "capacity": capacity,
            "refillTokens": refill.0, "refillPeriodSec": refill.1, "scope": "upstream", "class": null })
    }

    #[test]
    fn the_emptiest_comes_first_with_its_times_to_full_and_to_empty() {
        let mut items =
            vec![state(50, 100, (2, 60)), state(-20, 100, (2, 60)), state(200, 200, (40, 86_400))];
        items[0]["emptyInSec"] = 90.into();
        items[1]["emptyInSec"] = 0.into();
        items.sort_by_key(left);
        let shown = text(&items).unwrap();
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1][3..7], ["-20/100", "2/60s", "60m", "0s"]);
        assert_eq!(rows[2][3..7], ["50/100", "2/60s", "25m", "90s"]);
        assert_eq!(rows[3][3..7], ["200/200", "40/24h", "-", "-"]);
    }
}
