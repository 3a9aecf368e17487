//! `eclusa jobs cancel`.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::{JobFilter, show};
use crate::api::CancelledJobs;
use crate::cli::Exit;
use crate::cli::client::{Client, path, with_query};
use crate::cli::confirm::confirm;
use crate::cli::exit::note;
use crate::cli::output::{Format, count, fields, typed};

#[derive(Debug, Args)]
pub(in crate::cli) struct CancelArgs {
    /// The job: its own id, or the one its caller gave. Without it, all jobs that match the filter
    #[arg(value_name = "JOB", value_parser = NonEmptyStringValueParser::new())]
    job: Option<String>,
    #[command(flatten)]
    filter: JobFilter,
    /// With a filter: only count what would be cancelled
    #[arg(long, conflicts_with = "job")]
    dry_run: bool,
    /// With a filter: do not ask for confirmation
    #[arg(long, short, conflicts_with = "job")]
    yes: bool,
}

/// Cancels one job, or all that match.
pub(super) fn run(args: &CancelArgs, client: &Client, format: Format) -> Result<(), Exit> {
    let Some(id) = &args.job else { return all(args, client, format) };
    if args.filter.narrows_beyond_lane() {
        let problem = "both a job and a filter\nhelp: give one of them; --lane works with both";
        return Err(Exit::Usage(problem.into()));
    }
    let lane = args.filter.lane.as_deref();
    show(&client.delete(&with_query(&path(&["v1", "jobs", id]), &[("lane", lane)]))?, format)
}

fn all(args: &CancelArgs, client: &Client, format: Format) -> Result<(), Exit> {
    if args.filter.lane.is_none() && !args.filter.narrows_beyond_lane() {
        let problem = "no job and no filter\nhelp: give a job, or a filter such as --lane and --status";
        return Err(Exit::Usage(problem.into()));
    }
    let found = pages(args, client, true, &ProgressBar::hidden())?.matched;
    if args.dry_run {
        return print(found, 0, true, format);
    }
    if found > 0 && !args.yes {
        let jobs = count(usize::try_from(found).unwrap_or(usize::MAX), "job");
        confirm(&format!("Cancel {jobs}?"), "nothing was cancelled")?;
    }
    // Draws nothing unless standard error is a terminal.
    let bar = ProgressBar::new(found);
    let cancelled = pages(args, client, false, &bar);
    bar.finish_and_clear();
    let cancelled = cancelled?;
    print(cancelled.matched, cancelled.cancelled, false, format)
}

/// Goes through all jobs that match, page by page. Jobs that arrive meanwhile are newer than the first page and are not
/// cancelled.
fn pages(
    args: &CancelArgs,
    client: &Client,
    dry_run: bool,
    bar: &ProgressBar,
) -> Result<CancelledJobs, Exit> {
    let mut sum = CancelledJobs { matched: 0, cancelled: 0, dry_run, cursor: None };
    loop {
        let mut parameters = args.filter.parameters().to_vec();
        parameters.push(("cursor", sum.cursor.as_deref()));
        parameters.push(("dryRun", Some(if dry_run { "true" } else { "false" })));
        let page: Result<CancelledJobs, Exit> =
            client.delete(&with_query("/v1/jobs", &parameters)).and_then(|page| typed(&page));
        let page = page.inspect_err(|_| {
            if sum.cancelled > 0 {
                note(&format!("Cancelled {} before this", sum.cancelled));
            }
        })?;
        sum.matched += page.matched;
        sum.cancelled += page.cancelled;
        bar.set_position(sum.cancelled);
        // A cursor that does not advance would loop forever.
        if page.cursor.is_none() || page.cursor == sum.cursor {
            return Ok(sum);
        }
        sum.cursor = page.cursor;
    }
}

fn print(matched: u64, cancelled: u64, dry_run: bool, format: Format) -> Result<(), Exit> {
    let summary: Value = json!({ "matched": matched, "cancelled": cancelled, "dryRun": dry_run });
    format.one(&summary, || {
        Ok(fields(&[("matched", Some(matched.to_string())), ("cancelled", Some(cancelled.to_string()))]))
    })
}
