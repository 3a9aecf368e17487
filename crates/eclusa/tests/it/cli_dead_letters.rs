//! `eclusa dlq`: listing dead letters and replaying them.

use serde_json::{Value, json};

use crate::cli::Scene;

/// Two dead letters of `acme` and one of `other`.
async fn with_letters() -> (Scene, Vec<String>) {
    let scene = Scene::start().await;
    let mut ids = Vec::new();
    for (tenant, path) in [("acme", "/broken/1"), ("acme", "/broken/2"), ("other", "/broken/3")] {
        let job = json!({ "tenant": tenant, "request": { "path": path, "body": { "n": 1 } } });
        let id = scene.program.enqueue("mail", &job).await;
        assert_eq!(scene.program.ended(&id).await["status"], "failed");
        ids.push(id);
    }
    (scene, ids)
}

#[tokio::test]
async fn dead_letters_are_listed_by_filter() {
    let (scene, ids) = with_letters().await;
    let out = scene.run(&["dlq", "ls", "--tenant", "acme", "--lane", "mail", "--code", "500"]).await.ok();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("ID ") && lines[0].ends_with("  REASON"), "{out}");
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[1].starts_with(&format!("{}  mail  acme           1   500  20", ids[0])), "{out}");
    assert!(lines[1].ends_with("  answered 500 Internal Server Error"), "{out}");
    let listed = scene.run(&["dlq", "ls", "-o", "json"]).await.json();
    assert_eq!(listed["deadLetters"].as_array().unwrap().len(), 3);
    let none = scene.run(&["dlq", "ls", "--code", "404"]).await;
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (0, "", "No dead letters\n"));
}

#[tokio::test]
async fn a_dead_letter_is_shown_with_its_original_job() {
    let (scene, ids) = with_letters().await;
    let out = scene.run(&["dlq", "get", &ids[0]]).await.ok();
    assert!(out.contains("tenant    acme\n") && out.contains("code      500\n"), "{out}");
    assert!(out.contains("\noriginal data\n") && out.contains("\"path\": \"/broken/1\""), "{out}");
    let letter = scene.run(&["dlq", "get", &ids[0], "-o", "json"]).await.json();
    assert_eq!(letter["originalData"]["request"]["body"], json!({ "n": 1 }));
}

#[tokio::test]
async fn dead_letters_are_counted() {
    let (scene, _) = with_letters().await;
    let now = format!("{}█", "·".repeat(23));
    let by_code = scene.run(&["dlq", "stats"]).await.ok();
    assert_eq!(by_code, format!("CODE   COUNT  LAST 24 H\n500        3  {now}\ntotal      3\n"));
    let one = scene.run(&["dlq", "stats", "--by", "tenant", "--limit", "1"]).await.ok();
    assert_eq!(
        one,
        format!("TENANT  COUNT  LAST 24 H\nacme        2  {now}\nother       1\ntotal       3\n")
    );
    let by_tenant = scene.run(&["dlq", "stats", "--by", "tenant", "-o", "jsonl"]).await.ok();
    let trend = |now: u64| [vec![0; 23], vec![now]].concat();
    let line = |tenant: &str, count: u64| {
        format!("{}\n", json!({ "count": count, "tenant": tenant, "trend": trend(count) }))
    };
    assert_eq!(by_tenant, line("acme", 2) + &line("other", 1));
    let mut by_lane = scene.run(&["dlq", "stats", "--by", "lane", "-o", "json"]).await.json();
    assert!(by_lane["trend"]["until"].take().is_string());
    let trend = json!({ "until": null, "stepSec": 3600, "counts": { "mail": trend(3) } });
    assert_eq!(by_lane, json!({ "total": 3, "counts": { "mail": 3 }, "other": 0, "trend": trend }));
}

#[tokio::test]
async fn one_letter_is_replayed_by_its_id() {
    let (scene, ids) = with_letters().await;
    let replayed = scene.run(&["dlq", "replay", &ids[0], "-o", "json"]).await.json();
    assert_eq!((&replayed["replayed"][0]["deadLetter"], &replayed["failed"]), (&json!(ids[0]), &json!([])));
    let job = replayed["replayed"][0]["jobId"].as_str().unwrap();
    assert_eq!(scene.program.ended(job).await["status"], "failed");
    assert_eq!(scene.upstream.requests().last().unwrap().path, "/broken/1");
}

#[tokio::test]
async fn some_letters_are_replayed_and_the_others_reported() {
    let (scene, ids) = with_letters().await;
    let ran = scene.run(&["dlq", "replay", &ids[0], "nonsense", &ids[1]]).await;
    assert_eq!(ran.code, 1);
    assert_eq!(ran.out.lines().count(), 3, "{ran:?}");
    assert!(ran.out.starts_with("DEAD LETTER ") && ran.out.contains(&format!("\n{}  ", ids[1])), "{ran:?}");
    assert!(ran.err.starts_with("nonsense was not replayed: Not found: "), "{ran:?}");
    assert!(ran.err.ends_with("Replayed 2 dead letters\nerror: 1 of 3 dead letters could not be replayed\n"));
}

#[tokio::test]
async fn a_letter_is_edited_as_it_is_replayed() {
    let (scene, ids) = with_letters().await;
    let set = ["--set", "/request/path=/corrected", "--set", "/request/body/n=2"];
    let ran = scene.run(&[&["dlq", "replay", &ids[0], "-o", "json"], &set[..]].concat()).await.json();
    let job = ran["replayed"][0]["jobId"].as_str().unwrap();
    assert_eq!(scene.program.ended(job).await["status"], "completed");
    let sent = scene.upstream.requests().pop().unwrap();
    assert_eq!((sent.path.as_str(), &sent.body[..]), ("/corrected", &b"{\"n\":2}"[..]));
    assert_eq!(scene.run(&["dlq", "get", &ids[0]]).await.code, 3, "it is gone");
    let patch = r#"{"request": {"path": "../up"}}"#;
    let err = scene.run(&["dlq", "replay", &ids[1], "--patch", patch]).await.failed(1);
    assert!(err.contains("request.path"), "{err}");
    assert_eq!(scene.run(&["dlq", "get", &ids[1]]).await.code, 0, "it stays");
}

#[tokio::test]
async fn all_that_fit_are_replayed_but_only_after_a_yes() {
    let (scene, _) = with_letters().await;
    let all = ["dlq", "replay", "--all", "--tenant", "acme"];
    let with = async |more: &[&str]| scene.run(&[&all, more].concat()).await;
    let err = with(&[]).await.failed(2);
    let reported =
        "error: Replay 2 dead letters? There is no terminal to confirm on\nhelp: give --yes or --dry-run\n";
    assert_eq!(err, reported);
    let dry = with(&["--dry-run"]).await;
    assert_eq!((dry.err.as_str(), dry.out.as_str()), ("Would replay 2 dead letters\n", "matched  2\n"));
    assert_eq!(scene.upstream.requests().len(), 3);
    let ran = with(&["--yes", "-o", "json"]).await;
    assert!(ran.err.ends_with("error: 2 of 2 dead letters failed again and were kept\n"), "{ran:?}");
    assert_eq!((ran.code, scene.upstream.requests().len()), (1, 5));
    let reported: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&reported["status"], &reported["total"], &reported["failed"]),
        (&json!("done"), &json!(2), &json!(2))
    );
    let id = reported["replayId"].as_str().unwrap();
    let seen = scene.run(&["dlq", "replay", "--resume", id]).await;
    assert!(seen.code == 1 && seen.out.contains("status     done\n"), "{seen:?}");
    let none = scene.run(&["dlq", "replay", "--all", "--code", "404"]).await;
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (0, "", "No dead letters\n"));
}

#[tokio::test]
async fn a_bulk_replay_outlives_its_command_and_can_be_stopped() {
    let (scene, ids) = with_letters().await;
    scene.run(&["lanes", "pause", "mail"]).await.ok();
    scene.run(&["dlq", "replay", &ids[2]]).await.ok();
    let begun = scene.run(&["dlq", "replay", "--all", "-y", "--detach", "-o", "json"]).await.json();
    assert_eq!(
        (&begun["total"], &begun["status"]),
        (&json!(2), &json!("running")),
        "one is replayed already"
    );
    let id = begun["replayId"].as_str().unwrap();
    let path = format!("/v1/dead-letters/replays/{id}");
    scene.program.until(&path, |answer| answer.json()["running"] == 2).await;
    let stopped = scene.run(&["dlq", "replay", "--stop", id]).await.ok();
    assert!(stopped.contains("status     stopped\n") && stopped.contains("running    2\n"), "{stopped}");
}

#[tokio::test]
async fn letters_are_purged_by_id_and_by_filter_but_only_after_a_yes() {
    let (scene, ids) = with_letters().await;
    let err = scene.run(&["dlq", "purge", "--older-than", "0s"]).await.failed(2);
    assert!(err.starts_with("error: Discard 3 dead letters permanently? There is no terminal"), "{err}");
    let old = scene.run(&["dlq", "purge", "--older-than", "30d", "--dry-run"]).await.ok();
    assert_eq!(old, "matched  0\npurged   0\n");
    assert_eq!(scene.run(&["dlq", "purge", &ids[0], "--yes"]).await.ok(), "matched  1\npurged   1\n");
    let ran = scene.run(&["dlq", "purge", "--tenant", "acme", "-y", "-o", "json"]).await.json();
    assert_eq!(ran, json!({ "matched": 1, "purged": 1, "dryRun": false }));
    let left = scene.run(&["dlq", "ls", "-o", "jsonl"]).await.ok();
    assert!(left.lines().count() == 1 && left.contains(&ids[2]), "{left}");
    scene.program.logged("Dead letters purged", &[("letters", "1"), ("by", "local")]).await;
    scene.program.logged("Dead letter purged", &[("jobId", &ids[0])]).await;
}

#[tokio::test]
async fn letters_are_exported_with_what_was_to_be_sent() {
    let (scene, ids) = with_letters().await;
    let out = scene.run(&["dlq", "export", "--tenant", "acme"]).await.ok();
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| &line["jobId"]).collect::<Vec<_>>(), [&ids[0], &ids[1]]);
    assert_eq!(lines[1]["originalData"]["request"]["path"], "/broken/2");
    assert_eq!(scene.run(&["dlq", "export", "--code", "404"]).await.ok(), "");
    assert_eq!(scene.run(&["dlq", "export", "--lane", "nowhere"]).await.code, 3);
}
