//! Providers that are polled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::json;

use super::job;
use crate::program::Program;
use crate::redis_server::RedisServer;

/// Accepts jobs, and reports twice that they are running before they are done.
async fn asked(last: &'static str) -> FakeUpstream {
    let polls = Arc::new(AtomicUsize::new(0));
    let behaviour = Behaviour::by(move |seen| {
        if seen.method == http::Method::POST {
            return Answer::status(200).body(r#"{"name":"op-1"}"#);
        }
        match polls.fetch_add(1, Ordering::Relaxed) {
            0 => Answer::status(500),
            1 => Answer::status(200).body(r#"{"done":false}"#),
            _ => Answer::status(200).body(last),
        }
    });
    FakeUpstream::start(behaviour).await.unwrap()
}

fn config(upstream: &FakeUpstream) -> String {
    format!(
        r#"
[lanes.generate]
chain = ["google"]
retry = {{ attempts = 1 }}
[upstreams.google]
url = "{}"
headers = {{ X-Key = "of-all" }}
request = {{ path = "/v1/generate", body = {{ prompt = "{{params./input/prompt}}" }} }}
async = {{ id = "body:/name", poll = {{ path = "/v1/operations/{{external_id}}?p={{params./input/prompt}}", after = "50ms", every = "50ms", status = "/done", success = ["true"], failure = ["failed"] }} }}
"#,
        upstream.url()
    )
}

async fn start(upstream: &FakeUpstream) -> Program {
    Program::start(&format!("{}\n[store]\nurl = \"memory:\"\n", config(upstream)), &[]).await
}

#[tokio::test]
async fn a_provider_without_webhooks_is_polled_until_it_is_done() {
    let upstream = asked(r#"{"done":true,"response":{"image":1}}"#).await;
    let program = start(&upstream).await;
    let id = program.enqueue("generate", &job()).await;
    let ended = program.ended(&id).await;
    let body = json!({ "done": true, "response": { "image": 1 } });
    assert_eq!((&ended["status"], &ended["result"]["body"]), (&json!("completed"), &body));
    let seen = upstream.requests();
    assert_eq!(seen.len(), 4, "one submit, three questions: {seen:?}");
    let last = &seen[3];
    assert_eq!(
        (last.method.as_str(), last.path.as_str(), last.query.as_deref()),
        ("GET", "/v1/operations/op-1", Some("p=a%20lock"))
    );
    assert_eq!(last.headers["x-key"], "of-all");
}

#[tokio::test]
async fn a_poll_may_report_a_failure() {
    let upstream = asked(r#"{"done":"failed"}"#).await;
    let program = start(&upstream).await;
    let id = program.enqueue("generate", &job()).await;
    let ended = program.ended(&id).await;
    assert_eq!((&ended["status"], &ended["lastFailure"]["code"]), (&json!("failed"), &json!("failed")));
}

/// A failure is retried by the lane's rule, and counted.
#[tokio::test]
async fn a_failure_that_is_polled_is_tried_again_by_the_lanes_rule() {
    let upstream = asked(r#"{"done":"failed"}"#).await;
    let config = config(&upstream).replace("attempts = 1", "attempts = 2, base = \"1ms\"");
    let program = Program::start(&config, &[]).await;
    let id = program.enqueue("generate", &job()).await;
    let ended = program.ended(&id).await;
    assert_eq!((&ended["status"], &ended["attempts"]), (&json!("failed"), &json!(2)));
    assert_eq!(program.metric("retry_attempts_total", &[("lane", "generate"), ("attempt", "2")]).await, 1);
}

#[tokio::test]
async fn of_several_processes_one_asks_at_a_time() {
    let redis = RedisServer::start();
    let upstream = asked(r#"{"done":true}"#).await;
    let rules = config(&upstream).replace("every = \"50ms\"", "every = \"300ms\"");
    let (first, _second) =
        tokio::join!(crate::shared::start(&redis, &rules), crate::shared::start(&redis, &rules));
    let id = first.enqueue("generate", &job()).await;
    assert_eq!(first.ended(&id).await["status"], json!("completed"));
    let polls: Vec<u64> = upstream.requests()[1..].iter().map(|seen| seen.at.as_millis()).collect();
    assert_eq!(polls.len(), 3);
    // The two clocks may differ by a millisecond.
    assert!(polls.windows(2).all(|pair| pair[1] >= pair[0] + 299), "{polls:?}");
}
