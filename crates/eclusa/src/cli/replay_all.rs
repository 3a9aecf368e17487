//! `eclusa dlq replay --all`: the server replays; this shows its progress.

use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::Exit;
use super::client::{Client, path};
use super::confirm::confirm;
use super::exit::note;
use super::output::{Format, count, fields, typed};
use super::replay::ReplayArgs;
use crate::api::BulkReplay;

/// The polling interval of the progress.
const LOOK: Duration = Duration::from_millis(300);

/// Starts, follows or stops a replay.
pub(super) fn run(args: &ReplayArgs, client: &Client, format: Format) -> Result<(), Exit> {
    if let Some(id) = &args.stop {
        return print(&client.delete(&path(&["v1", "dead-letters", "replays", id]))?, format);
    }
    if let Some(id) = &args.resume {
        return follow(client, client.get(&path(&["v1", "dead-letters", "replays", id]))?, format);
    }
    let body = |dry_run| json!({ "filter": args.filter.body(), "dryRun": dry_run });
    let counted = client.post("/v1/dead-letters/replay", Some(&body(true)))?;
    let matched = counted.get("matched").and_then(Value::as_u64).unwrap_or_default();
    let letters = count(usize::try_from(matched).unwrap_or(usize::MAX), "dead letter");
    if args.dry_run {
        note(&format!("Would replay {letters}"));
        return format.one(&counted, || Ok(fields(&[("matched", Some(matched.to_string()))])));
    }
    if matched == 0 {
        note("No dead letters");
        return Ok(());
    }
    if !args.yes {
        confirm(&format!("Replay {letters}?"), "nothing was replayed")?;
    }
    let started = client.post("/v1/dead-letters/replay", Some(&body(false)))?;
    let replay: BulkReplay = typed(&started)?;
    note(&format!(
        "Replay {id} runs on the server; `eclusa dlq replay --resume {id}` follows it",
        id = replay.replay_id
    ));
    if args.detach { print(&started, format) } else { follow(client, started, format) }
}

/// Shows a replay until it ends.
fn follow(client: &Client, mut state: Value, format: Format) -> Result<(), Exit> {
    let mut replay: BulkReplay = typed(&state)?;
    // Draws nothing unless standard error is a terminal.
    let bar = ProgressBar::new(replay.total);
    while replay.ended_at.is_none() {
        client.pause(LOOK);
        state = client.get(&path(&["v1", "dead-letters", "replays", &replay.replay_id]))?;
        replay = typed(&state)?;
        bar.set_length(replay.total);
        bar.set_position(replay.replayed + replay.failed);
    }
    bar.finish_and_clear();
    print(&state, format)?;
    if replay.failed > 0 {
        let (failed, all) = (replay.failed, replay.total);
        return Err(Exit::Error(format!("{failed} of {all} dead letters failed again and were kept")));
    }
    Ok(())
}

fn print(state: &Value, format: Format) -> Result<(), Exit> {
    format.one(state, || {
        let replay: BulkReplay = typed(state)?;
        Ok(fields(&[
            ("replay", Some(replay.replay_id)),
            ("status", Some(replay.status)),
            ("total", Some(replay.total.to_string())),
            ("replayed", Some(replay.replayed.to_string())),
            ("failed", Some(replay.failed.to_string())),
            ("running", Some(replay.running.to_string())),
            ("remaining", Some(replay.remaining.to_string())),
            ("started", replay.started_at),
            ("ended", replay.ended_at),
        ]))
    })
}
