//! `eclusa dlq replay`: replays dead letters by id.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::Exit;
use super::client::{Client, path};
use super::exit::note;
use super::letter_filter::LetterFilter;
use super::output::{Format, count, table, typed};
use crate::model::Accepted;

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["ids", "all", "resume", "stop"])))]
pub(super) struct ReplayArgs {
    /// The ids of failed jobs
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(super) ids: Vec<String>,
    /// All dead letters, or all that match the filter; the server continues even if this command is interrupted
    #[arg(long)]
    pub(super) all: bool,
    /// Follow a running replay of many dead letters
    #[arg(long, value_name = "REPLAY")]
    pub(super) resume: Option<String>,
    /// Stop a replay of many dead letters
    #[arg(long, value_name = "REPLAY")]
    pub(super) stop: Option<String>,
    #[command(flatten)]
    pub(super) filter: LetterFilter,
    /// With one id: change a value of its original data, by JSON pointer (/request/path=/x); the value is JSON or text
    #[arg(long, value_name = "POINTER=VALUE", conflicts_with_all = ["all", "resume", "stop"])]
    set: Vec<String>,
    /// With one id: apply a JSON merge patch to its original data
    #[arg(long, value_name = "JSON", conflicts_with_all = ["all", "resume", "stop", "set"])]
    patch: Option<String>,
    /// Only count what would be replayed
    #[arg(long)]
    pub(super) dry_run: bool,
    /// With --all: do not wait until it ends
    #[arg(long)]
    pub(super) detach: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(super) yes: bool,
}

/// The results.
#[derive(Default)]
struct Outcome {
    replayed: Vec<(String, Accepted)>,
    failed: Vec<(String, String)>,
    /// Why the remaining ones were not tried.
    stopped: Option<Exit>,
}

/// Replays the given dead letters.
pub(super) fn run(args: &ReplayArgs, client: &Client, format: Format) -> Result<(), Exit> {
    if args.filter.narrows() {
        return Err(Exit::Usage("both ids and a filter\nhelp: use the filter with --all".into()));
    }
    let patch = patch(args)?;
    if args.dry_run {
        for id in &args.ids {
            client.get(&path(&["v1", "dead-letters", id]))?;
        }
        note(&format!("Would replay {}", count(args.ids.len(), "dead letter")));
        return Ok(());
    }
    match args.ids.as_slice() {
        [id] => {
            // With one dead letter, its error is the command's error.
            let accepted = replay(client, id, patch.as_ref())?;
            print(&Outcome { replayed: vec![(id.clone(), accepted)], ..Outcome::default() }, format)
        }
        _ if patch.is_some() => {
            Err(Exit::Usage("--set and --patch edit one dead letter\nhelp: give one id".into()))
        }
        ids => {
            let outcome = replay_each(client, ids);
            print(&outcome, format)?;
            end(outcome, ids.len())
        }
    }
}

fn replay(client: &Client, id: &str, patch: Option<&Value>) -> Result<Accepted, Exit> {
    typed(&client.post(&path(&["v1", "dead-letters", id, "replay"]), patch)?)
}

/// The merge patch of `--set` or `--patch`.
fn patch(args: &ReplayArgs) -> Result<Option<Value>, Exit> {
    if let Some(text) = &args.patch {
        let patch = serde_json::from_str(text);
        return patch.map(Some).map_err(|error| Exit::Usage(format!("--patch is not JSON: {error}")));
    }
    let mut patch = Value::Object(Map::new());
    for set in &args.set {
        let (pointer, value) =
            set.split_once('=').filter(|(pointer, _)| pointer.starts_with('/')).ok_or_else(|| {
                Exit::Usage(format!("--set {set:?} is not POINTER=VALUE, such as /request/path=/x"))
            })?;
        // A merge patch cannot change one item of a list.
        if pointer.split('/').any(|part| part == "-" || part.parse::<usize>().is_ok()) {
            let why = "points into a list: set the whole list, or use --patch";
            return Err(Exit::Usage(format!("--set {set:?} {why}")));
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        put(&mut patch, pointer, value);
    }
    Ok((!args.set.is_empty()).then_some(patch))
}

/// Sets the value at a JSON pointer, creating objects as needed.
fn put(patch: &mut Value, pointer: &str, value: Value) {
    let mut place = patch;
    for part in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part.replace("~1", "/").replace("~0", "~")];
    }
    *place = value;
}

/// Replays one by one. A dead letter that cannot be replayed does not stop the others; an unreachable server or a missing
/// permission does.
fn replay_each(client: &Client, ids: &[String]) -> Outcome {
    let mut outcome = Outcome::default();
    // Draws nothing unless standard error is a terminal.
    let bar = ProgressBar::new(ids.len() as u64);
    for id in ids {
        match replay(client, id, None) {
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

fn print(outcome: &Outcome, format: Format) -> Result<(), Exit> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_set_by_pointer() {
        let mut patch = json!({});
        put(&mut patch, "/request/path", json!("/x"));
        put(&mut patch, "/request/body/a~1b", json!(7));
        put(&mut patch, "/type", Value::Null);
        assert_eq!(patch, json!({ "request": { "path": "/x", "body": { "a/b": 7 } }, "type": null }));
    }
}
