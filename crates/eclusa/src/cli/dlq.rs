//! `eclusa dlq`: dead letters, the jobs that failed permanently.

use clap::Subcommand;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use serde_json::{Value, json};

use super::Exit;
use super::client::{Client, path, with_query};
use super::letter_filter::LetterFilter;
use super::output::{Format, fields, or_dash, readable, section, table, typed, typed_all, write_bytes};
use super::pages::{SHOWN, limit};
use super::purge::{self, PurgeArgs};
use super::replay::{self, ReplayArgs};
use super::replay_all;
use super::watch::{self, Listing, WatchArgs};
use crate::model::DeadLetter;

#[derive(Debug, Subcommand)]
pub(super) enum DlqCommand {
    /// List dead letters, oldest first
    Ls {
        #[command(flatten)]
        filter: LetterFilter,
        /// The most dead letters to show
        #[arg(long, value_name = "N", default_value_t = SHOWN, value_parser = limit)]
        limit: usize,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Show a dead letter with the original job
    Get {
        /// The id of the failed job
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// Enqueue dead letters again; each is removed when its replay succeeds
    Replay(ReplayArgs),
    /// Discard dead letters
    Purge(PurgeArgs),
    /// Print dead letters with their original jobs, one JSON object per line
    Export {
        #[command(flatten)]
        filter: LetterFilter,
    },
    /// Count dead letters, the largest groups first
    Stats {
        /// What to count by
        #[arg(long, default_value = "code", value_parser = PossibleValuesParser::new(["code", "tenant", "lane"]))]
        by: String,
        /// The number of groups to show; the rest are added up
        #[arg(long, value_name = "N", value_parser = limit)]
        limit: Option<usize>,
        #[command(flatten)]
        filter: LetterFilter,
    },
}

/// Runs a command on dead letters.
pub(super) fn run(args: &DlqCommand, client: &Client, format: Format) -> Result<(), Exit> {
    match args {
        DlqCommand::Ls { filter, limit, watch } => {
            let read = || {
                filter.read(client, *limit).map(|pages| Listing::pages(pages, "deadLetters", "dead letters"))
            };
            watch::show(watch, format, read, text)
        }
        DlqCommand::Get { id } => show(&client.get(&path(&["v1", "dead-letters", id]))?, format),
        DlqCommand::Replay(args) if args.ids.is_empty() => replay_all::run(args, client, format),
        DlqCommand::Replay(args) => replay::run(args, client, format),
        DlqCommand::Purge(purge) => purge::run(purge, client, format),
        DlqCommand::Export { filter } => {
            client.stream(&with_query("/v1/dead-letters/export", &filter.parameters()), write_bytes)
        }
        DlqCommand::Stats { by, limit, filter } => stats(by, *limit, filter, client, format),
    }
}

fn text(letters: &[Value]) -> Result<String, Exit> {
    let row = |letter: DeadLetter| {
        let (code, moved) = (letter.last_failure_code.as_deref(), letter.moved_to_dlq_at.as_deref());
        let (code, moved) = (or_dash(code), or_dash(moved));
        let attempts = letter.failed_attempts.to_string();
        let reason = letter.last_failure_reason;
        vec![letter.job_id, letter.lane, letter.company_id, attempts, code, moved, reason]
    };
    let head = ["ID", "LANE", "TENANT", "ATTEMPTS", "CODE", "GIVEN UP", "REASON"];
    Ok(table(&head, typed_all(letters)?.into_iter().map(row).collect()))
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
            ("redrives", (letter.redrives > 0).then(|| letter.redrives.to_string())),
            ("next redrive", letter.next_redrive_at),
        ]);
        let data = letter.original_data.as_ref().map(|data| section("original data", &readable(data)));
        Ok(known + &data.unwrap_or_default())
    })
}

fn stats(
    by: &str,
    limit: Option<usize>,
    filter: &LetterFilter,
    client: &Client,
    format: Format,
) -> Result<(), Exit> {
    let limit = limit.map(|limit| limit.to_string());
    let mut parameters = filter.parameters().to_vec();
    parameters.extend([("by", Some(by)), ("limit", limit.as_deref())]);
    let stats = client.get(&with_query("/v1/dead-letters/stats", &parameters))?;
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let counts = stats.get("counts").and_then(Value::as_object);
    let mut counts: Vec<(&str, u64)> =
        counts.into_iter().flatten().map(|(name, value)| (name.as_str(), number(value))).collect();
    counts.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
    let trend = |name: &str| stats["trend"]["counts"].get(name).unwrap_or(&Value::Null);
    let item = |(name, count): &(&str, u64)| json!({ by: name, "count": count, "trend": trend(name) });
    format.many(&stats, &counts.iter().map(item).collect::<Vec<_>>(), || {
        let row = |name: &str, count: u64, trend: String| vec![name.to_owned(), count.to_string(), trend];
        let hours = |name: &str| trend(name).as_array().into_iter().flatten().map(number).collect::<Vec<_>>();
        let mut rows: Vec<_> =
            counts.iter().map(|(name, count)| row(name, *count, spark(&hours(name)))).collect();
        let other = number(&stats["other"]);
        if other > 0 {
            rows.push(row("other", other, String::new()));
        }
        rows.push(row("total", number(&stats["total"]), String::new()));
        Ok(table(&[&by.to_uppercase(), "COUNT", "LAST 24 H"], rows))
    })
}

/// A character for each number, as high as it is large; a dot for zero.
fn spark(numbers: &[u64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = numbers.iter().copied().max().unwrap_or_default();
    let height = |number: &u64| {
        let share = number.saturating_mul(8).checked_div(most)?;
        (*number > 0).then(|| HEIGHTS[usize::try_from(share).unwrap_or(8).saturating_sub(1)])
    };
    numbers.iter().map(|number| height(number).unwrap_or('·')).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_spark_is_as_high_as_its_number() {
        assert_eq!(super::spark(&[0, 1, 8, 4, 80]), "·▁▁▁█");
        assert_eq!(super::spark(&[3, 4, 2]), "▆█▄");
        assert_eq!(super::spark(&[0, 0]), "··");
        assert_eq!(super::spark(&[]), "");
    }
}
