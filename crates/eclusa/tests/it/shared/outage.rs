//! Redis stops and starts again.

use std::time::Duration;

use eclusa::fake::{Answer, FakeUpstream, Latch};
use serde_json::json;

use super::{begin, lane, start, start_as};
use crate::program::{PATIENCE, Program};
use crate::redis_server::RedisServer;

/// Accepted jobs are kept; what cannot be accepted is refused at once; everything resumes automatically.
#[tokio::test]
async fn a_server_that_stops_and_starts_costs_no_job_and_needs_no_restart() {
    let mut redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&redis, &lane(&upstream.url(), "", "")).await;
    program.pause("work").await;
    let job = program.enqueue("work", &json!({ "request": { "path": "/accepted" } })).await;
    redis.stop();
    let refused = program.post("/v1/lanes/work/jobs", &json!({ "request": { "path": "/unknown" } })).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(!refused.header("retry-after").is_empty());
    assert!(refused.text().contains("Not confirmed"), "it may be stored: {}", refused.text());
    let refused = program.post("/v1/lanes/work/jobs", &json!({ "request": { "path": "/never" } })).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!((program.get("/readyz").await.status, program.get("/livez").await.status), (503, 200));
    redis.start_again();
    program.until("/readyz", |answer| answer.status == 200).await;
    program.resume("work").await;
    assert_eq!(program.ended(&job).await["status"], "completed");
    program.until("/v1/lanes/work", |answer| answer.json()["queued"]["normal"] == 0).await;
    let calls = |path: &str| upstream.requests().iter().filter(|seen| seen.path == path).count();
    assert_eq!((calls("/accepted"), calls("/never")), (1, 0));
    assert!(calls("/unknown") <= 1);
}

#[tokio::test]
async fn a_process_starts_without_its_server_and_works_once_it_is_there() {
    let mut redis = RedisServer::start();
    redis.stop();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = begin(&redis, "all", &lane(&upstream.url(), "", "")).await;
    assert_eq!(program.get("/readyz").await.status, 503);
    redis.start_again();
    program.until("/readyz", |answer| answer.status == 200).await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    assert_eq!(program.ended(&job).await["status"], "completed");
}

/// A call made during the outage is reported once when Redis is back.
#[tokio::test]
async fn calls_made_during_an_outage_are_settled_later() {
    let mut redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let program = start(&redis, &lane(&upstream.url(), "", "")).await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    upstream.wait_for(1).await;
    redis.stop();
    latch.open();
    program.logged("The store does not answer; trying until it does", &[]).await;
    redis.start_again();
    program.until("/readyz", |answer| answer.status == 200).await;
    assert_eq!(program.ended(&job).await["status"], "completed");
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn lost_scripts_and_connections_are_restored() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&redis, &lane(&upstream.url(), "", "")).await;
    let troubles = [
        &["FUNCTION", "FLUSH"][..],
        &["SCRIPT", "FLUSH"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["FLUSHALL"],
    ];
    for trouble in troubles {
        redis.command(trouble);
        program.until("/readyz", |answer| answer.status == 200).await;
        let job = program.enqueue("work", &json!({ "request": {} })).await;
        assert_eq!(program.ended(&job).await["status"], "completed", "{trouble:?}");
    }
}

#[tokio::test]
async fn a_server_that_returns_empty_gets_everything_again() {
    let mut redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&redis, &lane(&upstream.url(), "", "")).await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    assert_eq!(program.ended(&job).await["status"], "completed");
    redis.stop();
    redis.start_again();
    program.until("/readyz", |answer| answer.status == 200).await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    assert_eq!(program.ended(&job).await["status"], "completed");
}

#[tokio::test]
async fn a_server_that_throws_jobs_away_is_refused() {
    let redis = RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let dir = tempfile::tempdir().unwrap();
    let config = format!("[store]\nurl = \"{}\"\n{}", redis.url(), lane("http://127.0.0.1:9", "", ""));
    let (code, output) = Program::refused(&dir, &config, &[]).await;
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("`maxmemory-policy` is allkeys-lru"), "{output}");
    assert_eq!(output.matches("\"The store failed\"").count(), 1, "it is said once: {output}");
}

/// Only limits are lost there, which others may have forgotten too.
#[tokio::test]
async fn a_server_that_throws_limits_away_is_only_warned_of() {
    let redis = RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let program = start(&redis, "[upstreams.up]\nurl = \"http://127.0.0.1:9\"\nrpm = 60\n").await;
    program.logged("Redis may evict limits: its `maxmemory-policy` is allkeys-lru", &[]).await;
    assert_eq!(program.post("/v1/limits/up/acquire", &json!({})).await.status, 200);
}

/// Intake is refused, but running jobs can end, which frees memory.
#[tokio::test]
async fn a_server_without_memory_takes_nothing_in_and_lets_work_go_on() {
    let redis = RedisServer::start();
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let program = start(&redis, &lane(&upstream.url(), "", "")).await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    upstream.wait_for(1).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = async {
        loop {
            let answer =
                program.post("/v1/lanes/work/jobs", &json!({ "request": { "path": "/more" } })).await;
            if answer.status != 202 {
                return answer;
            }
        }
    };
    let refused = tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("`maxmemory`"), "{}", refused.text());
    // Also for clients that have to reconnect.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    program.until("/readyz", |answer| answer.status == 200).await;
    latch.open();
    assert_eq!(program.ended(&job).await["status"], "completed");
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let takes_in =
        async { while program.post("/v1/lanes/work/jobs", &json!({ "request": {} })).await.status != 202 {} };
    tokio::time::timeout(PATIENCE, takes_in).await.unwrap();
}

/// An outage longer than the leases: they have expired when Redis is back, but their workers are alive.
#[tokio::test]
async fn no_job_runs_twice_because_redis_was_down() {
    let mut redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let rules = format!("[workers]\nlease = \"1s\"\n{}", lane(&upstream.url(), "", ""));
    let (program, _other) = tokio::join!(start(&redis, &rules), start(&redis, &rules));
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    upstream.wait_for(1).await;
    redis.stop();
    latch.open();
    tokio::time::sleep(Duration::from_secs(4)).await;
    redis.start_again();
    program.until("/readyz", |answer| answer.status == 200).await;
    assert_eq!(program.ended(&job).await["attempts"], 1);
    assert_eq!(upstream.requests().len(), 1);
}

/// Only the readiness check talks to Redis here.
#[tokio::test]
async fn a_process_without_workers_is_ready_again_when_its_server_was_emptied() {
    let redis = RedisServer::start();
    let program = start_as(&redis, "api", &lane("http://127.0.0.1:9", "", "")).await;
    assert_eq!(program.get("/readyz").await.status, 200);
    redis.command(&["FLUSHALL"]);
    assert_eq!(program.get("/readyz").await.status, 200);
}
