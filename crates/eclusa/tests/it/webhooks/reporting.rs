//! The effects of webhooks.

use eclusa::fake::{Answer, FakeUpstream, Latch};
use serde_json::json;

use super::{config, job, provider, recorded, send_webhook, server, taken_in};
use crate::program::Program;

#[tokio::test]
async fn a_webhook_completes_the_job_once() {
    let (replicate, fal) = tokio::join!(provider(), provider());
    let config = server(&config(&replicate, &fal, "", "max_concurrent = 1", ""));
    let program = Program::start(&config, &[]).await;
    let id = program.enqueue("generate", &job()).await;
    let running = taken_in(&program, &id).await;
    assert_eq!(
        (&running["status"], &running["externalId"], &running["upstream"]),
        (&json!("processing"), &json!("ext-1"), &json!("replicate"))
    );
    assert_eq!(program.why(&id).await, "awaiting_webhook");
    let found = program.get("/v1/jobs?externalId=ext-1").await.json();
    assert_eq!(found["jobs"][0]["jobId"], json!(id));
    assert_eq!(program.get("/v1/jobs?externalId=ext-2").await.json()["jobs"], json!([]));

    let sent: serde_json::Value = serde_json::from_slice(&replicate.requests()[0].body).unwrap();
    assert_eq!(sent["webhook"], json!(format!("https://gw.example/v1/webhooks/replicate/{id}")));

    let working = json!({ "id": "ext-1", "status": "processing" });
    assert_eq!(send_webhook(&program, "replicate", &id, &working).await, recorded(&id, "processing", false));
    let done = json!({ "id": "ext-1", "status": "succeeded", "output": ["https://cdn/x.png"] });
    assert_eq!(send_webhook(&program, "replicate", &id, &done).await, recorded(&id, "completed", true));
    let ended = program.finished(&id).await;
    assert_eq!((&ended["status"], &ended["result"]["body"]), (&json!("completed"), &done));
    let failed = json!({ "id": "ext-1", "status": "failed" });
    for again in [&done, &failed] {
        assert_eq!(send_webhook(&program, "replicate", &id, again).await, recorded(&id, "completed", false));
    }
    assert_eq!(program.gate("replicate", "concurrency").await["level"], json!(0), "its slot is free");
    assert_eq!(program.metric("proxy_jobs_total", &[("lane", "generate"), ("status", "processed")]).await, 1);
}

#[tokio::test]
async fn a_webhook_before_the_response_to_the_submit_counts() {
    let (latch, fal) = (Latch::default(), provider().await);
    let answer = Answer::status(201).body(json!({ "id": "ext-1" }).to_string()).after(&latch);
    let replicate = FakeUpstream::start(answer).await.unwrap();
    let program = Program::start(&server(&config(&replicate, &fal, "", "", "")), &[]).await;
    let id = program.enqueue("generate", &job()).await;
    replicate.wait_for(1).await;
    let done = json!({ "id": "ext-1", "status": "succeeded" });
    assert_eq!(send_webhook(&program, "replicate", &id, &done).await, recorded(&id, "processing", true));
    assert_eq!(
        send_webhook(&program, "replicate", &id, &done).await,
        recorded(&id, "processing", false),
        "again"
    );
    latch.open();
    let ended = program.ended(&id).await;
    assert_eq!((&ended["status"], &ended["result"]["body"]), (&json!("completed"), &done));
    assert_eq!(ended["externalId"], json!("ext-1"));
}

#[tokio::test]
async fn a_failure_ends_the_job_and_marks_the_provider_hot() {
    let (replicate, fal) = tokio::join!(provider(), provider());
    let rules = config(&replicate, &fal, "", "cooldown = [\"1m\"]", "");
    let program = Program::start(&server(&rules), &[]).await;
    let id = program.enqueue("generate", &job()).await;
    taken_in(&program, &id).await;
    let failed = json!({ "id": "ext-1", "status": "failed", "error": "NSFW" });
    assert_eq!(send_webhook(&program, "replicate", &id, &failed).await, recorded(&id, "failed", true));
    let ended = program.ended(&id).await;
    assert_eq!((&ended["status"], &ended["result"]["body"]), (&json!("failed"), &failed));
    let last = &ended["lastFailure"];
    assert_eq!((&last["code"], &last["upstream"]), (&json!("failed"), &json!("replicate")));
    assert_eq!(program.gate("replicate", "cooldown").await["level"], json!(1));
    let next = program.enqueue("generate", &job()).await;
    assert_eq!(taken_in(&program, &next).await["upstream"], json!("fal"), "replicate is hot");
}

#[tokio::test]
async fn a_failure_continues_along_the_chain_and_resets_nothing() {
    let (replicate, fal) = tokio::join!(provider(), provider());
    let rules = config(&replicate, &fal, "on_failure = \"next\",", "cooldown = [\"1m\"]", "");
    let program = Program::start(&server(&rules), &[]).await;
    let id = program.enqueue("generate", &job()).await;
    taken_in(&program, &id).await;
    let failed = json!({ "id": "ext-1", "status": "canceled" });
    assert_eq!(send_webhook(&program, "replicate", &id, &failed).await, recorded(&id, "queued", true));
    fal.wait_for(1).await;
    let there = taken_in(&program, &id).await;
    assert_eq!((&there["upstream"], &there["attempts"]), (&json!("fal"), &json!(1)));
    let late = json!({ "id": "ext-1", "status": "succeeded" });
    assert_eq!(
        send_webhook(&program, "replicate", &id, &late).await,
        recorded(&id, "processing", false),
        "it moved on"
    );
    let done = json!({ "id": "ext-1", "status": "succeeded", "output": "x" });
    assert_eq!(send_webhook(&program, "fal", &id, &done).await, recorded(&id, "completed", true));
    let ended = program.ended(&id).await;
    assert_eq!((&ended["upstream"], &ended["result"]["body"]), (&json!("fal"), &done));
}

#[tokio::test]
async fn an_answer_without_an_id_is_a_failed_submit() {
    let replicate = FakeUpstream::start(Answer::status(201).body("{\"ok\":true}")).await.unwrap();
    let fal = provider().await;
    let program = Program::start(&server(&config(&replicate, &fal, "", "", "")), &[]).await;
    let id = program.enqueue("generate", &job()).await;
    let there = taken_in(&program, &id).await;
    assert_eq!(there["upstream"], json!("fal"), "the next one is tried");
    let last = &there["lastFailure"];
    assert_eq!((&last["code"], &last["upstream"]), (&json!("no_external_id"), &json!("replicate")));
    assert!(last["reason"].as_str().unwrap().contains("body:/id"), "{last}");
}

#[tokio::test]
async fn a_provider_that_never_reports_fails_after_the_timeout() {
    let (replicate, fal) = tokio::join!(provider(), provider());
    let rules = config(&replicate, &fal, "timeout = \"300ms\",", "cooldown = [\"1m\"]", "");
    let program = Program::start(&server(&rules), &[]).await;
    let id = program.enqueue("generate", &job()).await;
    let ended = program.ended(&id).await;
    assert_eq!(ended["status"], json!("failed"));
    assert!(ended["lastFailure"]["reason"].as_str().unwrap().contains("report back"), "{ended}");
    assert_eq!(program.gate("replicate", "cooldown").await["level"], json!(1), "it counts as an error");
    let done = json!({ "id": "ext-1", "status": "succeeded" });
    assert_eq!(
        send_webhook(&program, "replicate", &id, &done).await,
        recorded(&id, "failed", false),
        "too late"
    );
}
