//! `examples/generation.toml`, with fake providers.

use eclusa::fake::{Answer, Behaviour, FakeUpstream, ReceivedRequest};
use serde_json::json;

use crate::program::Program;
use crate::webhooks::{SECRET, signed};

const PUBLIC: &str = "https://gw.example";

struct World {
    program: Program,
    replicate: FakeUpstream,
    fal: FakeUpstream,
    _others: [FakeUpstream; 2],
}

async fn world(replicate: impl Into<Behaviour>) -> World {
    let replicate = FakeUpstream::start(replicate).await.unwrap();
    let google = FakeUpstream::start(Answer::status(500)).await.unwrap();
    let taken = Answer::status(200).body(json!({ "request_id": "fal-1" }).to_string());
    let fal = FakeUpstream::start(taken).await.unwrap();
    let higgsfield = FakeUpstream::start(Answer::status(503)).await.unwrap();
    let env = [
        ("PUBLIC_URL", PUBLIC),
        ("REPLICATE_URL", &replicate.url()),
        ("REPLICATE_TOKEN_A", "token-a"),
        ("REPLICATE_TOKEN_B", "token-b"),
        ("REPLICATE_WEBHOOK_SECRET", SECRET),
        ("GOOGLE_URL", &google.url()),
        ("GOOGLE_KEY", "key-of-google"),
        ("FAL_URL", &fal.url()),
        ("FAL_KEY", "key-of-fal"),
        ("HIGGSFIELD_URL", &higgsfield.url()),
        ("HIGGSFIELD_KEY", "key:secret"),
        ("WEBHOOK_TOKEN_SECRET", "0123456789abcdef0123456789abcdef"),
    ];
    let program = Program::start_example("generation.toml", &env).await;
    World { program, replicate, fal, _others: [google, higgsfield] }
}

async fn ask(program: &Program, id: &str) {
    let params = json!({ "modelId": "image", "input": { "prompt": "a canal lock at dawn" } });
    let answer = program.post("/v1/lanes/generation/jobs", &json!({ "id": id, "params": params })).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
}

#[tokio::test]
async fn a_job_moves_along_its_providers_until_one_reports_success() {
    let World { program, replicate, fal, .. } = world(Answer::status(429)).await;
    ask(&program, "gen-1").await;
    fal.wait_for(1).await;
    let sent = &fal.requests()[0];
    assert_eq!(sent.headers["authorization"], "Key key-of-fal");
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&sent.body).unwrap()["prompt"],
        "a canal lock at dawn"
    );
    let query = sent.query.as_deref().unwrap();
    let webhook = percent_encoding::percent_decode_str(query.strip_prefix("fal_webhook=").unwrap());
    let webhook = webhook.decode_utf8().unwrap().strip_prefix(PUBLIC).unwrap().to_owned();
    let webhook_body = json!({ "request_id": "fal-1", "status": "OK", "payload": { "images": ["x"] } });
    assert_eq!(program.post(&format!("{webhook}0"), &webhook_body).await.status, 401, "a forged token");
    assert_eq!(program.post(&webhook, &webhook_body).await.status, 200);
    let job = program.get("/v1/jobs/gen-1/wait?timeout=60").await.json();
    assert_eq!((&job["status"], &job["upstream"]), (&json!("completed"), &json!("fal")));
    assert_eq!(job["result"]["body"], webhook_body);
    let failed: Vec<_> =
        job["timeline"].as_array().unwrap().iter().filter(|entry| entry["event"] == "failed").collect();
    assert_eq!(failed[0]["detail"], "replicate: 429 Too Many Requests");
    assert_eq!(failed[1]["upstream"], "google");
    assert_eq!(replicate.requests().len(), 1, "its other token is for other jobs");
}

#[tokio::test]
async fn the_provider_hears_of_a_cancelled_job_under_the_token_of_its_submit() {
    let taken = |seen: &ReceivedRequest| match seen.path.strip_suffix("/cancel") {
        Some(_) => Answer::status(200),
        None => Answer::status(201).body(json!({ "id": "rep-1", "status": "starting" }).to_string()),
    };
    let World { program, replicate, .. } = world(Behaviour::by(taken)).await;
    ask(&program, "gen-2").await;
    program.until("/v1/jobs/gen-2", |answer| answer.json()["externalId"] == "rep-1").await;
    let cancelled = program.send("DELETE", "/v1/jobs?lane=generation&externalId=rep-1", &[], "").await;
    assert_eq!((cancelled.status, &cancelled.json()["cancelled"]), (200, &json!(1)));
    replicate.wait_for(2).await;
    let seen = replicate.requests();
    assert_eq!(seen[1].path, "/v1/predictions/rep-1/cancel");
    assert_eq!(seen[1].headers["authorization"], seen[0].headers["authorization"]);
    let webhook_body = json!({ "id": "rep-1", "status": "canceled" }).to_string();
    let job = program.get("/v1/jobs/gen-2").await.json()["jobId"].as_str().unwrap().to_owned();
    let headers = signed("msg-1", &webhook_body);
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let path = format!("/v1/webhooks/replicate/{job}");
    assert_eq!(program.send("POST", &path, &headers, &webhook_body).await.status, 200, "it changes nothing");
    assert_eq!(program.get("/v1/jobs/gen-2").await.json()["status"], "cancelled");
}

#[tokio::test]
async fn an_unknown_model_is_refused_with_the_known_ones() {
    let World { program, .. } = world(Answer::status(500)).await;
    let job = json!({ "params": { "modelId": "opera", "input": {} } });
    let refused = program.post("/v1/lanes/generation/jobs", &job).await;
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("`image`, `portrait`"), "{}", refused.text());
}
