//! `eclusa dlq replay`: one letter, some, or all that fit.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::Exit;
use super::client::{Client, path};
use super::confirm::confirm;
use super::dlq::{Filter, list};
use super::exit::note;
use super::output::{Format, count, table, typed, typed_all};
use super::pages::Pages;
use crate::api::model::{Accepted, DeadLetter};

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["ids", "all"])))]
pub(super) struct Replay {
    /// The jobs that failed
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    ids: Vec<String>,
    /// All dead letters, or all that fit --lane, --tenant and --code
    #[arg(long)]
    all: bool,
    /// With --all: only of this lane
    #[arg(long, conflicts_with = "ids")]
    lane: Option<String>,
    /// With --all: only of this tenant
    #[arg(long, conflicts_with = "ids")]
    tenant: Option<String>,
    /// With --all: only with this code of the last failure
    #[arg(long, conflicts_with = "ids")]
    code: Option<String>,
    /// Only show what would be replayed
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// What became of the letters.
#[derive(Default)]
struct Outcome {
    replayed: Vec<(String, Accepted)>,
    failed: Vec<(String, String)>,
    /// Why the rest was not tried.
    stopped: Option<Exit>,
}

/// Replays what was asked for.
pub(super) fn run(ask: &Replay, client: &Client, format: Format) -> Result<(), Exit> {
    let letters = if ask.all { waiting(ask, client)? } else { named(ask, client)? };
    if ask.dry_run {
        list(&letters, format)?;
        note(&format!("Would replay {}", count(letters.items.len(), "dead letter")));
        return Ok(());
    }
    let ids = if ask.all {
        let letters: Vec<DeadLetter> = typed_all(&letters.items)?;
        letters.into_iter().map(|letter| letter.job_id).collect()
    } else {
        ask.ids.clone()
    };
    if ask.all && !ids.is_empty() && !ask.yes {
        confirm(&format!("Replay {}?", count(ids.len(), "dead letter")), "nothing was replayed")?;
    }
    if let ([id], false) = (ids.as_slice(), ask.all) {
        // With one letter its own error is the command's.
        let accepted = replay(client, id)?;
        return tell(&Outcome { replayed: vec![(id.clone(), accepted)], ..Outcome::default() }, format);
    }
    let outcome = replay_all(client, &ids);
    tell(&outcome, format)?;
    end(outcome, ids.len())
}

/// All letters that fit and are not being replayed already. They are read before the first is replayed: those that
/// fail again come back at the end of the list.
fn waiting(ask: &Replay, client: &Client) -> Result<Pages, Exit> {
    let filter = Filter { lane: ask.lane.clone(), tenant: ask.tenant.clone(), code: ask.code.clone() };
    let mut pages = filter.read(client, usize::MAX)?;
    let found = pages.items.len();
    pages.items.retain(|letter| letter.get("replayedBy").is_none_or(Value::is_null));
    let running = found - pages.items.len();
    if running > 0 {
        note(&format!("Left out {} being replayed already", count(running, "dead letter")));
    }
    Ok(pages)
}

/// The letters that were named; they are looked at only to be shown.
fn named(ask: &Replay, client: &Client) -> Result<Pages, Exit> {
    let mut pages = Pages::default();
    if ask.dry_run {
        for id in &ask.ids {
            pages.items.push(client.get(&path(&["v1", "dead-letters", id]))?);
        }
    }
    Ok(pages)
}

fn replay(client: &Client, id: &str) -> Result<Accepted, Exit> {
    typed(&client.post(&path(&["v1", "dead-letters", id, "replay"]), None)?)
}

/// Replays one by one. A letter that cannot be replayed does not hold up the others, but a server that is gone, or a
/// key that may not do this, does.
fn replay_all(client: &Client, ids: &[String]) -> Outcome {
    let mut outcome = Outcome::default();
    // On anything but a terminal it draws nothing.
    let bar = ProgressBar::new(ids.len() as u64);
    for id in ids {
        match replay(client, id) {
            Ok(accepted) => outcome.replayed.push((id.clone(), accepted)),
            Err(exit @ (Exit::Unreachable(_) | Exit::Auth(_))) => {
                outcome.stopped = Some(exit);
                break;
            }
            Err(exit) => outcome.failed.push((id.clone(), exit.text())),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    outcome
}

fn tell(outcome: &Outcome, format: Format) -> Result<(), Exit> {
    let replayed = outcome.replayed.iter();
    let items: Vec<Value> = replayed
        .map(|(id, job)| json!({ "deadLetter": id, "jobId": job.job_id, "lane": job.lane }))
        .collect();
    let failed = outcome.failed.iter();
    let failed: Vec<Value> = failed.map(|(id, why)| json!({ "deadLetter": id, "error": why })).collect();
    let whole = json!({ "replayed": items, "failed": failed });
    format.many(&whole, &[items, failed].concat(), || {
        let row = |(id, job): &(String, Accepted)| vec![id.clone(), job.job_id.clone(), job.lane.clone()];
        Ok(table(&["DEAD LETTER", "REPLAYED BY", "LANE"], outcome.replayed.iter().map(row).collect()))
    })?;
    for (id, why) in &outcome.failed {
        note(&format!("{id} was not replayed: {}", why.lines().next().unwrap_or_default()));
    }
    note(&format!("Replayed {}", count(outcome.replayed.len(), "dead letter")));
    Ok(())
}

fn end(outcome: Outcome, asked: usize) -> Result<(), Exit> {
    match outcome.stopped {
        Some(exit) => {
            let left = asked - outcome.replayed.len() - outcome.failed.len();
            note(&format!("{} not tried", count(left, "dead letter")));
            Err(exit)
        }
        None if outcome.failed.is_empty() => Ok(()),
        None => {
            let (failed, all) = (outcome.failed.len(), count(asked, "dead letter"));
            Err(Exit::Error(format!("{failed} of {all} could not be replayed")))
        }
    }
}
