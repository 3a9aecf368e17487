//! `eclusa dlq`: looking at what failed for good, and sending it again.

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::{Value, json};

use crate::cli::{Scene, run_at};

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
async fn dead_letters_are_listed_by_what_they_have_in_common() {
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
async fn a_dead_letter_is_shown_with_what_was_to_be_sent() {
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
    assert_eq!(scene.run(&["dlq", "stats"]).await.ok(), "CODE   COUNT\n500        3\ntotal      3\n");
    let by_tenant = scene.run(&["dlq", "stats", "--by", "tenant", "-o", "jsonl"]).await.ok();
    assert_eq!(by_tenant, "{\"count\":2,\"tenant\":\"acme\"}\n{\"count\":1,\"tenant\":\"other\"}\n");
    let by_lane = scene.run(&["dlq", "stats", "--by", "lane", "-o", "json"]).await.json();
    assert_eq!(by_lane, json!({ "total": 3, "counts": { "mail": 3 } }));
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
async fn some_letters_are_replayed_and_the_others_told() {
    let (scene, ids) = with_letters().await;
    let ran = scene.run(&["dlq", "replay", &ids[0], "nonsense", &ids[1]]).await;
    assert_eq!(ran.code, 1);
    assert_eq!(ran.out.lines().count(), 3, "{ran:?}");
    assert!(ran.out.starts_with("DEAD LETTER ") && ran.out.contains(&format!("\n{}  ", ids[1])), "{ran:?}");
    assert!(ran.err.starts_with("nonsense was not replayed: There is no such thing: "), "{ran:?}");
    assert!(ran.err.ends_with("Replayed 2 dead letters\nerror: 1 of 3 dead letters could not be replayed\n"));
}

#[tokio::test]
async fn all_that_fit_are_replayed_but_only_after_a_yes() {
    let (scene, ids) = with_letters().await;
    let all = ["dlq", "replay", "--all", "--tenant", "acme"];
    let with = async |more: &[&str]| scene.run(&[&all, more].concat()).await;
    let err = with(&[]).await.failed(2);
    let told =
        "error: Replay 2 dead letters? There is no terminal to ask on\nhelp: give --yes, or --dry-run\n";
    assert_eq!(err, told);
    let dry = with(&["--dry-run"]).await;
    assert_eq!(dry.err, "Would replay 2 dead letters\n");
    assert_eq!(dry.ok().lines().count(), 3);
    assert_eq!(scene.upstream.requests().len(), 3);
    let ran = with(&["--yes", "-o", "jsonl"]).await;
    assert_eq!(ran.err, "Replayed 2 dead letters\n");
    let lines: Vec<Value> = ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["deadLetter"], &lines[1]["deadLetter"]), (&json!(ids[0]), &json!(ids[1])));
    scene.upstream.wait_for(5).await;
    assert_eq!(scene.run(&["dlq", "replay", "--all", "--code", "404"]).await.ok(), "");
}

#[tokio::test]
async fn letters_that_are_being_replayed_are_left_out() {
    let (scene, ids) = with_letters().await;
    scene.run(&["lanes", "pause", "mail"]).await.ok();
    scene.run(&["dlq", "replay", &ids[2]]).await.ok();
    let ran = scene.run(&["dlq", "replay", "--all", "-y"]).await;
    assert_eq!(ran.err, "Left out 1 dead letter being replayed already\nReplayed 2 dead letters\n");
}

fn letter(id: &str) -> Value {
    json!({
        "jobId": id, "outboxId": id, "companyId": "acme", "failedAttempts": 1, "lastFailureReason": "x",
        "lastFailureTimestamp": null, "enqueuedAt": null, "movedToDLQAt": null, "ttl": 1, "lane": "mail",
    })
}

/// A server with letters `a` and `b` on two pages, which answers to the replay of `a` as given.
async fn server(first_replay: Answer) -> FakeUpstream {
    let json = |status, body: Value| Answer::status(status).body(body.to_string());
    let behaviour = Behaviour::by(move |seen| match (seen.path.as_str(), seen.query.as_deref()) {
        ("/v1/dead-letters", None) => json(200, json!({ "deadLetters": [letter("a")], "cursor": "mail:1" })),
        ("/v1/dead-letters", Some("cursor=mail%3A1")) => json(200, json!({ "deadLetters": [letter("b")] })),
        ("/v1/dead-letters/a/replay", None) => first_replay.clone(),
        ("/v1/dead-letters/b/replay", None) => {
            json(202, json!({ "jobId": "c", "status": "queued", "lane": "mail" }))
        }
        _ => Answer::status(400),
    });
    FakeUpstream::start(behaviour).await.unwrap()
}

#[tokio::test]
async fn a_letter_that_cannot_be_replayed_does_not_hold_up_the_others() {
    let full = json!({ "title": "The queue is full", "detail": "Lane `mail` is full" });
    let answer = Answer::status(503).header("retry-after", "1").body(full.to_string());
    let server = server(answer).await;
    let ran = run_at(&server.url(), &["dlq", "replay", "--all", "--yes", "-o", "json"]).await;
    assert_eq!(ran.code, 1);
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told["replayed"], json!([{ "deadLetter": "b", "jobId": "c", "lane": "mail" }]));
    assert_eq!(told["failed"][0]["deadLetter"], "a");
    assert!(ran.err.starts_with("a was not replayed: The queue is full: Lane `mail` is full\n"), "{ran:?}");
}

#[tokio::test]
async fn a_key_that_may_not_replay_or_a_server_that_is_gone_stops_it() {
    let forbidden = Answer::status(403).body(json!({ "title": "This key may not do that" }).to_string());
    for (answer, code) in [(forbidden, 4), (Answer::reset(), 5)] {
        let server = server(answer).await;
        let ran = run_at(&server.url(), &["dlq", "replay", "--all", "--yes"]).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{ran:?}");
        assert!(ran.err.starts_with("Replayed 0 dead letters\n2 dead letters not tried\nerror: "), "{ran:?}");
        assert!(server.requests().iter().all(|seen| seen.path != "/v1/dead-letters/b/replay"));
    }
}
