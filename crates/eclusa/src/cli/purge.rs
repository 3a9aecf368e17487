//! `eclusa dlq purge`: discards dead letters.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;
use serde_json::json;

use super::Exit;
use super::client::{Client, path, with_query};
use super::confirm::confirm;
use super::exit::note;
use super::letter_filter::LetterFilter;
use super::output::{Format, count, fields, typed};
use crate::api::PurgedLetters;

#[derive(Debug, Args)]
pub(super) struct PurgeArgs {
    /// The ids of failed jobs. Without them, all dead letters that match the filter
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    ids: Vec<String>,
    #[command(flatten)]
    filter: LetterFilter,
    /// Only count what would be discarded
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

/// Discards dead letters by id or by filter.
pub(super) fn run(args: &PurgeArgs, client: &Client, format: Format) -> Result<(), Exit> {
    if args.ids.is_empty() != args.filter.narrows() {
        let problem = "purge takes ids or a filter\nhelp: give ids, or a filter such as --older-than 30d";
        return Err(Exit::Usage(problem.into()));
    }
    let matched =
        if args.ids.is_empty() { page(args, client, None, true)?.matched } else { args.ids.len() as u64 };
    if args.dry_run {
        return print(matched, 0, true, format);
    }
    if matched > 0 && !args.yes {
        let letters = count(usize::try_from(matched).unwrap_or(usize::MAX), "dead letter");
        confirm(&format!("Discard {letters} permanently?"), "nothing was discarded")?;
    }
    if args.ids.is_empty() {
        let purged = all(args, client, matched)?;
        return print(matched.max(purged), purged, false, format);
    }
    for id in &args.ids {
        client.delete(&path(&["v1", "dead-letters", id]))?;
    }
    print(matched, matched, false, format)
}

/// Discards all that match, page by page.
fn all(args: &PurgeArgs, client: &Client, matched: u64) -> Result<u64, Exit> {
    // Draws nothing unless standard error is a terminal.
    let bar = ProgressBar::new(matched);
    let (mut purged, mut cursor) = (0, None);
    let ended = loop {
        let answer = match page(args, client, cursor.as_deref(), false) {
            Ok(answer) => answer,
            Err(error) => {
                note(&format!("Discarded {purged} before this"));
                break Err(error);
            }
        };
        purged += answer.purged;
        bar.set_position(purged);
        // A cursor that does not advance would loop forever.
        if answer.cursor.is_none() || answer.cursor == cursor {
            break Ok(purged);
        }
        cursor = answer.cursor;
    };
    bar.finish_and_clear();
    ended
}

fn page(
    args: &PurgeArgs,
    client: &Client,
    cursor: Option<&str>,
    dry_run: bool,
) -> Result<PurgedLetters, Exit> {
    let mut parameters = args.filter.parameters().to_vec();
    parameters.push(("cursor", cursor));
    parameters.push(("dryRun", Some(if dry_run { "true" } else { "false" })));
    typed(&client.delete(&with_query("/v1/dead-letters", &parameters))?)
}

fn print(matched: u64, purged: u64, dry_run: bool, format: Format) -> Result<(), Exit> {
    let summary = json!({ "matched": matched, "purged": purged, "dryRun": dry_run });
    format.one(&summary, || {
        Ok(fields(&[("matched", Some(matched.to_string())), ("purged", Some(purged.to_string()))]))
    })
}
