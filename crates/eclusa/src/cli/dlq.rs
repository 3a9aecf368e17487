//! `eclusa dlq`: jobs that failed for good.

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Exit;
use super::client::{Client, path, with_query};
use super::output::{Format, fields, or_dash, readable, section, table, typed, typed_all};
use super::pages::{Pages, SHOWN};
use super::replay::{self, Replay};
use crate::api::model::DeadLetter;

#[derive(Debug, Subcommand)]
pub(super) enum Dlq {
    /// List dead letters, oldest first
    Ls {
        #[command(flatten)]
        filter: Filter,
        /// How many to show at most
        #[arg(long, value_name = "N", default_value_t = SHOWN)]
        limit: usize,
    },
    /// Show a dead letter with what was to be sent
    Get {
        /// The job that failed
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// Enqueue dead letters again; each goes when its replay succeeds
    Replay(Replay),
    /// Count dead letters
    Stats {
        /// What to count by
        #[arg(long, default_value = "code", value_parser = PossibleValuesParser::new(["code", "tenant", "lane"]))]
        by: String,
    },
}

#[derive(Debug, Args)]
pub(super) struct Filter {
    /// Only of this lane
    #[arg(long)]
    pub(super) lane: Option<String>,
    /// Only of this tenant
    #[arg(long)]
    pub(super) tenant: Option<String>,
    /// Only with this code of the last failure
    #[arg(long)]
    pub(super) code: Option<String>,
}

impl Filter {
    /// Up to `limit` letters that fit.
    pub(super) fn read(&self, client: &Client, limit: usize) -> Result<Pages, Exit> {
        let ask = [
            ("lane", self.lane.as_deref()),
            ("tenant", self.tenant.as_deref()),
            ("code", self.code.as_deref()),
        ];
        Pages::read(client, "/v1/dead-letters", &ask, "deadLetters", limit)
    }
}

/// Runs a command on dead letters.
pub(super) fn run(ask: &Dlq, client: &Client, format: Format) -> Result<(), Exit> {
    match ask {
        Dlq::Ls { filter, limit } => {
            let pages = filter.read(client, *limit)?;
            list(&pages, format)?;
            pages.note_rest("dead letters");
            Ok(())
        }
        Dlq::Get { id } => show(&client.get(&path(&["v1", "dead-letters", id]))?, format),
        Dlq::Replay(replay) => replay::run(replay, client, format),
        Dlq::Stats { by } => stats(by, client, format),
    }
}

/// Prints letters as the server lists them.
pub(super) fn list(pages: &Pages, format: Format) -> Result<(), Exit> {
    format.many(&pages.whole("deadLetters"), &pages.items, || {
        let row = |letter: DeadLetter| {
            let (code, moved) = (letter.last_failure_code.as_deref(), letter.moved_to_dlq_at.as_deref());
            let (code, moved) = (or_dash(code), or_dash(moved));
            let attempts = letter.failed_attempts.to_string();
            let reason = letter.last_failure_reason;
            vec![letter.job_id, letter.lane, letter.company_id, attempts, code, moved, reason]
        };
        let head = ["ID", "LANE", "TENANT", "ATTEMPTS", "CODE", "GIVEN UP", "REASON"];
        Ok(table(&head, typed_all(&pages.items)?.into_iter().map(row).collect()))
    })
}

fn show(value: &Value, format: Format) -> Result<(), Exit> {
    format.one(value, || {
        let letter: DeadLetter = typed(value)?;
        let key = (letter.outbox_id != letter.job_id).then_some(letter.outbox_id);
        let known = fields(&[
            ("id", Some(letter.job_id)),
            ("key", key),
            ("lane", Some(letter.lane)),
            ("tenant", Some(letter.company_id)),
            ("attempts", Some(letter.failed_attempts.to_string())),
            ("reason", Some(letter.last_failure_reason)),
            ("code", letter.last_failure_code),
            ("upstream", letter.upstream),
            ("enqueued", letter.enqueued_at),
            ("failed", letter.last_failure_timestamp),
            ("given up", letter.moved_to_dlq_at),
            ("replayed by", letter.replayed_by),
        ]);
        let data = letter.original_data.as_ref().map(|data| section("original data", &readable(data)));
        Ok(known + &data.unwrap_or_default())
    })
}

fn stats(by: &str, client: &Client, format: Format) -> Result<(), Exit> {
    let stats = client.get(&with_query("/v1/dead-letters/stats", &[("by", Some(by))]))?;
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let counts = stats.get("counts").and_then(Value::as_object);
    let mut counts: Vec<(&str, u64)> =
        counts.into_iter().flatten().map(|(name, value)| (name.as_str(), number(value))).collect();
    counts.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
    let items: Vec<Value> = counts.iter().map(|(name, count)| json!({ by: name, "count": count })).collect();
    format.many(&stats, &items, || {
        let mut rows: Vec<Vec<String>> =
            counts.iter().map(|(name, count)| vec![(*name).to_owned(), count.to_string()]).collect();
        rows.push(vec!["total".into(), number(&stats["total"]).to_string()]);
        Ok(table(&[&by.to_uppercase(), "COUNT"], rows))
    })
}
