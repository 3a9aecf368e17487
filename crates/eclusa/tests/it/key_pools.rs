//! Several keys at one upstream: each with its own limits, and none of them ever shown.

use std::collections::BTreeMap;

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch, ReceivedRequest};
use serde_json::{Value, json};

use super::program::Program;

const SECRETS: [(&str, &str); 2] = [("TOKEN_A", "secret-of-a"), ("TOKEN_B", "secret-of-b")];

async fn start(upstream: &FakeUpstream, limits: &str) -> Program {
    let config = format!(
        r#"
[lanes.slow]
chain = ["replicate"]
retry = {{ attempts = 3, base = "1ms", cap = "2ms" }}
[lanes.fast]
mode = "direct"
chain = ["replicate"]
[upstreams.replicate]
url = "{}"
headers = {{ Authorization = "Bearer {{key}}" }}
request = {{ path = "/v1/predictions", body = {{ input = "{{params./input}}", account = "{{key}}" }} }}
keys = [{{ name = "a", key = "${{TOKEN_A}}", {limits} }}, {{ name = "b", key = "${{TOKEN_B}}", {limits} }}]
"#,
        upstream.url()
    );
    Program::start(&config, &SECRETS).await
}

fn job(number: u32) -> Value {
    json!({ "params": { "input": number } })
}

fn key_of(seen: &ReceivedRequest) -> String {
    seen.headers["authorization"].to_str().unwrap().replace("Bearer secret-of-", "")
}

/// The displayed state of the upstream's keys, by name.
async fn keys(program: &Program) -> BTreeMap<String, Value> {
    let shown = program.get("/v1/upstreams/replicate").await.json();
    let keys = shown["keys"].as_array().unwrap().clone();
    keys.into_iter().map(|key| (key["name"].as_str().unwrap().to_owned(), key)).collect()
}

#[tokio::test]
async fn each_call_is_made_with_the_least_loaded_key_within_its_own_limits() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let program = start(&upstream, "max_concurrent = 2").await;
    let mut jobs = Vec::new();
    for number in 1..=5 {
        jobs.push(program.enqueue("slow", &job(number)).await);
    }
    upstream.wait_for(4).await;
    let mut used: Vec<String> = upstream.requests().iter().map(key_of).collect();
    used.sort();
    assert_eq!(used, ["a", "a", "b", "b"]);
    let shown = keys(&program).await;
    assert_eq!((&shown["a"]["inFlight"], &shown["b"]["inFlight"]), (&json!(2), &json!(2)));
    assert_eq!(program.why(&jobs[4]).await, "concurrency");
    let direct = program.get("/proxy/fast/x").await;
    assert_eq!(direct.status, 429, "a direct lane takes from the same keys");
    latch.open();
    for id in &jobs {
        assert_eq!(program.ended(id).await["upstream"], "replicate");
    }
    for seen in upstream.requests() {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        assert_eq!(body["account"], format!("secret-of-{}", key_of(&seen)), "the template has the same key");
    }
    let job = program.get(&format!("/v1/jobs/{}", jobs[0])).await;
    let reported =
        [job.text(), program.get("/v1/upstreams").await.text(), program.get("/metrics").await.text()]
            .concat();
    assert!(!format!("{reported}{:?}", program.log()).contains("secret-of"), "{reported}");
}

#[tokio::test]
async fn a_throttled_key_pauses_and_the_job_continues_with_another() {
    let rule = |seen: &ReceivedRequest| match key_of(seen).as_str() {
        "a" => Answer::status(429).header("retry-after", "600"),
        _ => Answer::status(200),
    };
    let upstream = FakeUpstream::start(Behaviour::by(rule)).await.unwrap();
    let program = start(&upstream, "cooldown = [\"10s\"]").await;
    let id = program.enqueue("slow", &job(1)).await;
    let ended = program.ended(&id).await;
    assert_eq!((&ended["status"], &ended["attempts"]), (&json!("completed"), &json!(2)));
    assert_eq!(upstream.requests().iter().map(key_of).collect::<Vec<_>>(), ["a", "b"]);
    let reasons = |key: &Value| {
        let shut = key["gates"].as_array().unwrap().iter().filter(|gate| gate["open"] == false);
        shut.map(|gate| gate["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let shown = keys(&program).await;
    assert_eq!(reasons(&shown["a"]), ["cooldown", "upstream_retry_after"]);
    assert_eq!(reasons(&shown["b"]), [""; 0]);
    let direct = program.get("/proxy/fast/x").await;
    assert_eq!((direct.status, direct.header("eclusa-upstream")), (200, "replicate"));
    assert_eq!(key_of(&upstream.requests()[2]), "b");
}

/// Workers that make their own calls get the name of their key.
#[tokio::test]
async fn a_permit_names_the_key_to_use() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream, "max_concurrent = 1").await;
    let mut reported = Vec::new();
    for _ in 0..2 {
        reported.push(program.post("/v1/limits/replicate/acquire", &json!({})).await.json()["key"].clone());
    }
    assert_eq!(reported, ["a", "b"]);
    assert_eq!(program.post("/v1/limits/replicate/acquire", &json!({})).await.status, 429);
}
