//! What callers are told while their jobs are being stored.

use serde_json::json;

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

/// The store is not away, for it may be silent for half a minute; who brings a job waits no longer than `server.max_wait`.
#[tokio::test]
async fn who_brings_a_job_waits_for_a_busy_store_no_longer_than_the_config_allows() {
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
    assert!(detail.contains("`server.max_wait`") && detail.contains("It may be stored"), "{detail}");
    assert_eq!(late.header("retry-after"), "5");

    program.until("/readyz", |answer| answer.status == 200).await;
    let again = bring().await;
    assert_eq!(again.status, 202, "{}", again.text());
    assert_eq!(again.json()["jobId"], problem["jobId"], "it was stored, once");
    assert_eq!(program.get("/v1/lanes/work").await.json()["queued"]["normal"], 1);
}
