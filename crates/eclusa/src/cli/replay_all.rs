//! `eclusa dlq replay --all`: the server does it, and this shows how far it is.

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

/// How often to ask how far it is.
const LOOK: Duration = Duration::from_millis(300);

/// Begins, follows or stops a replay.
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
    let begun = client.post("/v1/dead-letters/replay", Some(&body(false)))?;
    let replay: BulkReplay = typed(&begun)?;
    note(&format!(
        "Replay {id} goes on at the server; `eclusa dlq replay --resume {id}` shows how far it is",
        id = replay.replay_id
    ));
    if args.detach { print(&begun, format) } else { follow(client, begun, format) }
}

/// Shows a replay until it is over.
fn follow(client: &Client, mut told: Value, format: Format) -> Result<(), Exit> {
    let mut replay: BulkReplay = typed(&told)?;
    // On anything but a terminal it draws nothing.
    let bar = ProgressBar::new(replay.total);
    while replay.ended_at.is_none() {
        client.pause(LOOK);
        told = client.get(&path(&["v1", "dead-letters", "replays", &replay.replay_id]))?;
        replay = typed(&told)?;
        bar.set_length(replay.total);
        bar.set_position(replay.replayed + replay.failed);
    }
    bar.finish_and_clear();
    print(&told, format)?;
    if replay.failed > 0 {
        let (failed, all) = (replay.failed, replay.total);
        return Err(Exit::Error(format!("{failed} of {all} dead letters failed again and are still there")));
    }
    Ok(())
}

fn print(told: &Value, format: Format) -> Result<(), Exit> {
    format.one(told, || {
        let replay: BulkReplay = typed(told)?;
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
