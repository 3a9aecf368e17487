//! Nothing is lost when every process ends between a submit and its webhook.

use eclusa::fake::{Answer, FakeUpstream, Latch};
use serde_json::json;

use super::{config, job, provider, recorded, send_webhook, server, taken_in};
use crate::program::Program;
use crate::redis_server::RedisServer;

#[tokio::test]
async fn a_webhook_after_a_kill_counts_on_the_embedded_store() {
    let (replicate, fal) = tokio::join!(provider(), provider());
    let config = server(&config(&replicate, &fal, "", "max_concurrent = 1", ""));
    let program = Program::start(&config, &[]).await;
    let id = program.enqueue("generate", &job()).await;
    taken_in(&program, &id).await;
    let dir = program.kill().await;
    let program = Program::start_in(dir, &config, &[]).await;
    assert_eq!(taken_in(&program, &id).await["externalId"], json!("ext-1"));
    assert_eq!(program.gate("replicate", "concurrency").await["level"], json!(1), "its slot is held");
    let done = json!({ "id": "ext-1", "status": "succeeded" });
    assert_eq!(send_webhook(&program, "replicate", &id, &done).await, recorded(&id, "completed", true));
    assert_eq!(replicate.requests().len(), 1, "it was submitted once");
}

/// A result that arrives before the answer to the submit is stored, and counts even if the worker is gone.
#[tokio::test]
async fn an_early_webhook_outlives_the_worker_that_submits() {
    let latch = Latch::default();
    let answer = Answer::status(201).body(json!({ "id": "ext-1" }).to_string()).after(&latch);
    let (replicate, fal) = (FakeUpstream::start(answer).await.unwrap(), provider().await);
    let config = format!("[workers]\nlease = \"1s\"\n{}", server(&config(&replicate, &fal, "", "", "")));
    let program = Program::start(&config, &[]).await;
    let id = program.enqueue("generate", &job()).await;
    replicate.wait_for(1).await;
    let done = json!({ "id": "ext-1", "status": "succeeded" });
    assert_eq!(send_webhook(&program, "replicate", &id, &done).await, recorded(&id, "processing", true));
    let dir = program.kill().await;
    let program = Program::start_in(dir, &config, &[]).await;
    let ended = program.ended(&id).await;
    assert_eq!((&ended["status"], &ended["result"]["body"]), (&json!("completed"), &done));
    assert_eq!(replicate.requests().len(), 1, "it was submitted once");
}

#[tokio::test]
async fn a_webhook_after_all_processes_were_killed_counts_on_redis() {
    let redis = RedisServer::start();
    let (replicate, fal) = tokio::join!(provider(), provider());
    let rules = config(&replicate, &fal, "", "max_concurrent = 1", "").replace("request = {", "#").replace(
        "async = {",
        "request = { path = \"/v1/predictions\", body = { input = \"{params./input}\" } }\nasync = {",
    );
    let (first, second) =
        tokio::join!(crate::shared::start(&redis, &rules), crate::shared::start(&redis, &rules));
    let id = first.enqueue("generate", &job()).await;
    taken_in(&second, &id).await;
    tokio::join!(first.kill(), second.kill());
    let (third, fourth) =
        tokio::join!(crate::shared::start(&redis, &rules), crate::shared::start(&redis, &rules));
    assert_eq!(taken_in(&fourth, &id).await["externalId"], json!("ext-1"));
    let done = json!({ "id": "ext-1", "status": "succeeded" });
    assert_eq!(send_webhook(&fourth, "replicate", &id, &done).await, recorded(&id, "completed", true));
    assert_eq!(third.ended(&id).await["result"]["body"], done);
    assert_eq!(send_webhook(&third, "replicate", &id, &done).await, recorded(&id, "completed", false));
    assert_eq!(replicate.requests().len(), 1, "it was submitted once");
}
