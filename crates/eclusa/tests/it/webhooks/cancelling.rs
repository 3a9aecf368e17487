//! Cancel reaches the provider.

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::json;

use super::{config, job, provider, recorded, send_webhook, server, taken_in};
use crate::program::Program;

const CANCEL: &str = "cancel = { method = \"POST\", path = \"/v1/predictions/{external_id}/cancel\" },";

/// Accepts jobs when the latch opens; answers a cancel at once.
async fn cancellable(latch: &Latch, understood: u16) -> FakeUpstream {
    let latch = latch.clone();
    let behaviour = Behaviour::by(move |seen| match seen.path.as_str() {
        "/v1/predictions" => Answer::status(201).body(r#"{"id":"ext-1"}"#).after(&latch),
        _ => Answer::status(understood),
    });
    FakeUpstream::start(behaviour).await.unwrap()
}

#[tokio::test]
async fn a_cancelled_job_is_cancelled_at_its_provider_and_frees_its_slot() {
    let (latch, fal) = (Latch::default(), provider().await);
    latch.open();
    let replicate = cancellable(&latch, 200).await;
    let program =
        Program::start(&server(&config(&replicate, &fal, CANCEL, "max_concurrent = 1", "")), &[]).await;
    let id = program.enqueue("generate", &job()).await;
    taken_in(&program, &id).await;
    let cancelled = program.send("DELETE", &format!("/v1/jobs/{id}"), &[], "").await;
    assert_eq!((cancelled.status, &cancelled.json()["status"]), (200, &json!("cancelled")));
    replicate.wait_for(2).await;
    let seen = &replicate.requests()[1];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/v1/predictions/ext-1/cancel"));
    program.logged("Cancelled at the upstream", &[("jobId", &id)]).await;
    let free = |answer: &crate::program::Answer| answer.json()["inFlight"] == json!(0);
    program.until("/v1/upstreams/replicate", free).await;
}

#[tokio::test]
async fn a_provider_that_rejects_the_cancel_keeps_its_slot_until_it_reports() {
    let (latch, fal) = (Latch::default(), provider().await);
    latch.open();
    let replicate = cancellable(&latch, 404).await;
    let program =
        Program::start(&server(&config(&replicate, &fal, CANCEL, "max_concurrent = 1", "")), &[]).await;
    let id = program.enqueue("generate", &job()).await;
    taken_in(&program, &id).await;
    program.send("DELETE", &format!("/v1/jobs/{id}"), &[], "").await;
    program.logged("Not cancelled at the upstream", &[("jobId", &id)]).await;
    assert_eq!(program.get("/v1/upstreams/replicate").await.json()["inFlight"], json!(1));
    let done = json!({ "id": "ext-1", "status": "succeeded" });
    assert_eq!(send_webhook(&program, "replicate", &id, &done).await, recorded(&id, "cancelled", false));
    assert_eq!(program.get("/v1/upstreams/replicate").await.json()["inFlight"], json!(0));
}

#[tokio::test]
async fn a_job_that_is_cancelled_while_it_is_submitted_is_cancelled_at_its_provider_too() {
    let (latch, fal) = (Latch::default(), provider().await);
    let replicate = cancellable(&latch, 200).await;
    let program = Program::start(&server(&config(&replicate, &fal, CANCEL, "", "")), &[]).await;
    let id = program.enqueue("generate", &job()).await;
    replicate.wait_for(1).await;
    program.send("DELETE", &format!("/v1/jobs/{id}"), &[], "").await;
    latch.open();
    replicate.wait_for(2).await;
    assert_eq!(replicate.requests()[1].path, "/v1/predictions/ext-1/cancel");
    program.logged("Cancelled at the upstream", &[("jobId", &id)]).await;
}
