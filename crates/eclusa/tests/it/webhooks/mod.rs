//! Providers that accept a job and report its result later.

mod cancelling;
mod forged;
mod polling;
mod reporting;
mod restarts;

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eclusa::fake::{Answer, Behaviour, FakeUpstream, ReceivedRequest};
use eclusa_core::Clock;
use ring::hmac;
use serde_json::{Value, json};

use crate::program::{Answer as Response, Program};

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A provider that accepts every job and names them `ext-1`, `ext-2`, …
async fn provider() -> FakeUpstream {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let take = move |_: &ReceivedRequest| {
        let number = 1 + count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Answer::status(201).body(json!({ "id": format!("ext-{number}"), "status": "starting" }).to_string())
    };
    FakeUpstream::start(Behaviour::by(take)).await.unwrap()
}

/// `replicate`, then `fal`; both sign as Standard Webhooks. `callback` is added to `async`, `rules` to the upstreams, `lane` to the lane.
fn config(replicate: &FakeUpstream, fal: &FakeUpstream, callback: &str, rules: &str, lane: &str) -> String {
    let upstream = |name: &str, at: &FakeUpstream| {
        format!(
            r#"
[upstreams.{name}]
url = "{}"
{rules}
request = {{ path = "/v1/predictions", body = {{ input = "{{params./input}}", webhook = "{{webhook_url}}" }} }}
async = {{ id = "body:/id", {callback} webhook = {{ verify = "standard-webhooks", secret = "{SECRET}", status = "/status", success = ["succeeded"], failure = ["failed", "canceled"] }} }}
"#,
            at.url()
        )
    };
    let (first, second) = (upstream("replicate", replicate), upstream("fal", fal));
    format!(
        "[lanes.generate]\nchain = [\"replicate\", \"fal\"]\nretry = {{ attempts = 1 }}\n{lane}\n{first}{second}"
    )
}

fn server(config: &str) -> String {
    format!("[server]\nlisten = \"127.0.0.1:0\"\npublic_url = \"https://gw.example\"\n{config}")
}

fn job() -> Value {
    json!({ "params": { "input": { "prompt": "a lock" } } })
}

/// In seconds.
fn now() -> i64 {
    i64::try_from(eclusa::SystemClock.now().as_millis() / 1_000).unwrap()
}

/// A Standard Webhooks signature of the current time.
pub(crate) fn signed(id: &str, body: &str) -> [(&'static str, String); 4] {
    signed_at(id, body, now())
}

fn signed_at(id: &str, body: &str, at: i64) -> [(&'static str, String); 4] {
    let key = STANDARD.decode(SECRET.trim_start_matches("whsec_")).unwrap();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), format!("{id}.{at}.{body}").as_bytes());
    [
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at.to_string()),
        ("webhook-signature", format!("v1,{}", STANDARD.encode(tag))),
        ("content-type", "application/json".to_owned()),
    ]
}

async fn post(program: &Program, path: &str, headers: &[(&str, String)], body: &str) -> Response {
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    program.send("POST", path, &headers, body).await
}

/// Sends a webhook of the provider, with a new message id each time.
async fn send_webhook(program: &Program, upstream: &str, job: &str, body: &Value) -> (u16, Value) {
    static MESSAGES: AtomicU64 = AtomicU64::new(0);
    let (id, body) = (format!("msg-{}", MESSAGES.fetch_add(1, Ordering::Relaxed)), body.to_string());
    let answer = post(program, &format!("/v1/webhooks/{upstream}/{job}"), &signed(&id, &body), &body).await;
    (answer.status, answer.json())
}

fn recorded(job: &str, status: &str, changed: bool) -> (u16, Value) {
    (200, json!({ "jobId": job, "status": status, "changed": changed }))
}

/// The job, once the upstream has accepted it.
async fn taken_in(program: &Program, job: &str) -> Value {
    let awaits = |answer: &Response| {
        let timeline = answer.json()["timeline"].as_array().cloned().unwrap_or_default();
        timeline.last().is_some_and(|event| event["event"] == "awaiting")
    };
    program.until(&format!("/v1/jobs/{job}"), awaits).await.json()
}
