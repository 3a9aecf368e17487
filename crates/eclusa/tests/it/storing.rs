//! What callers see while their jobs are stored: large batches, and a slow store.

use serde_json::{Value, json};

use super::program::{Answer, Program};
use super::redis_server::RedisServer;

const RULES: &str = "[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n";

/// A process with these settings whose lane is paused.
async fn paused(settings: &str) -> Program {
    let program = Program::start(&format!("{settings}\n{RULES}"), &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program.pause("work").await;
    program
}

const LARGE: &str = "[server]\nlisten = \"127.0.0.1:0\"\nmax_body = \"8128KiB\"";

/// Seventy jobs of 100 kB are accepted, in order.
async fn take_a_long_batch(program: &Program) {
    let job = json!({ "request": { "method": "POST", "path": "/", "body": "x".repeat(100_000) } });
    let answer = program.post("/v1/lanes/work/jobs/batch", &Value::Array(vec![job; 70])).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let places: Vec<_> =
        answer.json().as_array().unwrap().iter().map(|one| one["position"].clone()).collect();
    assert_eq!(places, (0..70).map(|place| json!(place)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_long_batch_is_stored_in_a_directory() {
    take_a_long_batch(&paused(LARGE).await).await;
}

/// The owner is another process: the questions must fit its window, and no chunk of the journal holds all of them.
#[tokio::test]
async fn a_long_batch_is_stored_by_another_process_in_parts() {
    let redis = RedisServer::start();
    let settings = format!("{LARGE}\n[store]\nurl = \"{}\"", redis.url());
    let _owner = paused(&settings).await;
    let asker = paused(&settings).await;
    let chunks = || redis.command(&["XLEN", "eclusa:{main}:journal"]).parse::<u32>().unwrap();
    let before = chunks();
    take_a_long_batch(&asker).await;
    assert!(chunks() - before >= 7, "{} chunks", chunks() - before);
}

/// The store may be silent for half a minute; callers wait no longer than `server.max_wait`.
#[tokio::test]
async fn a_caller_waits_for_a_busy_store_no_longer_than_the_config_allows() {
    let mut redis = RedisServer::start();
    let program = paused(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nmax_wait = \"500ms\"\n[store]\nurl = \"{}\"\ntimeout = \"30s\"",
        redis.url()
    ))
    .await;
    let bring = async || -> Answer {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k1")];
        program.send("POST", "/v1/lanes/work/jobs", &headers, r#"{"request":{"path":"/"}}"#).await
    };
    redis.pause();
    let late = bring().await;
    redis.resume();
    let problem = late.json();
    assert_eq!((late.status, &problem["type"]), (503, &json!("urn:eclusa:problem:store-unavailable")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("`server.max_wait`") && detail.contains("It may have been stored"), "{detail}");
    assert_eq!(late.header("retry-after"), "5");

    program.until("/readyz", |answer| answer.status == 200).await;
    let again = bring().await;
    assert_eq!(again.status, 202, "{}", again.text());
    assert_eq!(again.json()["jobId"], problem["jobId"], "it was stored, once");
    assert_eq!(program.get("/v1/lanes/work").await.json()["queued"]["normal"], 1);
}

const TAKEN_AWAY: &str = "lock was removed while the journal was in use";

/// The process cannot store anything any more: it refuses what is not stored, and ends.
#[tokio::test]
async fn a_data_directory_that_is_removed_ends_acceptance() {
    let (program, job) = (paused("").await, json!({ "request": { "path": "/" } }));
    program.enqueue("work", &job).await;
    std::fs::remove_dir_all(program.dir.path().join("data")).unwrap();
    let refused = program.post("/v1/lanes/work/jobs", &job).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains(TAKEN_AWAY), "{}", refused.text());
    let logged = program.logged("The store failed", &[]).await;
    assert!(logged["error"].as_str().unwrap().contains(TAKEN_AWAY), "{logged}");
    assert!(!program.over().await.0.success());
}

/// With `ack = "write"` the next sync notices it, without another request.
#[tokio::test]
async fn a_removed_data_directory_ends_the_process_with_every_ack() {
    for ack in ["write", "fsync"] {
        let settings = format!("[store]\nurl = \"embedded:./data\"\nack = \"{ack}\"");
        let program = paused(&settings).await;
        program.enqueue("work", &json!({ "request": { "path": "/" } })).await;
        std::fs::remove_dir_all(program.dir.path().join("data")).unwrap();
        let logged = program.logged("The store failed", &[]).await;
        assert!(logged["error"].as_str().unwrap().contains(TAKEN_AWAY), "{ack}: {logged}");
        assert!(!program.over().await.0.success(), "{ack}");
    }
}

/// A second process cannot open the directory while the first writes to it, and the first notices the change on its own.
#[tokio::test]
async fn a_deleted_lock_lets_no_second_process_in() {
    let program = paused("").await;
    // So that the first cannot have noticed and ended before the second starts.
    program.signal("STOP");
    std::fs::remove_file(program.dir.path().join("data/lock")).unwrap();
    let (code, said) = Program::refused(&program.dir, RULES, &[]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is in use by another process"), "{said}");
    program.signal("CONT");
    let logged = program.logged("The store failed", &[]).await;
    assert!(logged["error"].as_str().unwrap().contains(TAKEN_AWAY), "{logged}");
    assert!(!program.over().await.0.success());
}
