//! The life of a permit: settled, extended or expired.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::{Value, json};

use super::{acquire, breaker, ends, in_flight, lease, settle, start};
use crate::program::Program;

#[tokio::test]
async fn a_settled_lease_gives_its_slot_back_and_is_gone() {
    let program = start("max_concurrent = 1").await;
    let first = lease(&program).await;
    let answer = program.post(&format!("/v1/limits/leases/{first}/extend"), &Value::Null).await;
    assert_eq!((answer.status, answer.json()), (200, json!({ "extended": true })));
    assert_eq!(acquire(&program, "up", &json!({})).await.status, 429);
    ends(&program, &first, &json!(200)).await;
    assert_eq!(in_flight(&program).await, 0);
    for answer in [
        settle(&program, &first, &json!({ "status": 200 })).await,
        program.post(&format!("/v1/limits/leases/{first}/extend"), &Value::Null).await,
    ] {
        assert_eq!((answer.status, &answer.json()["type"]), (404, &json!("urn:eclusa:problem:not-found")));
    }
    lease(&program).await;
}

/// Results and statuses have the same meaning as for any other call.
#[tokio::test]
async fn the_breaker_counts_the_result_of_the_call() {
    let rules = "breaker = { failures = 100 }\nretryable = [\"418\"]";
    for (status, failures) in [
        (json!(200), 0),
        (json!(404), 0),
        (json!(429), 1),
        (json!(503), 2),
        (json!(418), 2),
        (json!("timeout"), 2),
        (json!("connection_error"), 2),
        (json!("not_sent"), 1),
    ] {
        let program = start(rules).await;
        let (before, reported) = (lease(&program).await, lease(&program).await);
        ends(&program, &before, &json!(500)).await;
        ends(&program, &reported, &status).await;
        assert_eq!(breaker(&program, "up").await["failures"], failures, "{status}");
    }
}

#[tokio::test]
async fn reported_failures_count_like_those_of_our_own_calls() {
    let program = start("").await;
    for status in [json!(200), json!(503), json!("timeout"), json!("not_sent")] {
        let lease = lease(&program).await;
        ends(&program, &lease, &status).await;
        assert_eq!(settle(&program, &lease, &json!({ "status": status })).await.status, 404);
    }
    let error = async |code| {
        program.metric_if_there("proxy_upstream_errors_total", &[("upstream", "up"), ("code", code)]).await
    };
    assert_eq!((error("503").await, error("timeout").await, error("200").await), (Some(1), Some(1), None));
    assert_eq!(program.metric("proxy_timeouts_total", &[("upstream", "up")]).await, 1);
}

#[tokio::test]
async fn an_unsent_request_costs_no_token() {
    let program = start("rate = \"1/h\"\nburst = 1").await;
    let unsent = lease(&program).await;
    ends(&program, &unsent, &json!("not_sent")).await;
    let sent = lease(&program).await;
    ends(&program, &sent, &json!("timeout")).await;
    assert_eq!(acquire(&program, "up", &json!({})).await.status, 429);
}

#[tokio::test]
async fn a_retry_after_closes_the_upstream_for_all() {
    let program = start("").await;
    let first = lease(&program).await;
    let ending = json!({ "status": 200, "retryAfter": "600" });
    assert_eq!(settle(&program, &first, &ending).await.status, 200);
    let second = lease(&program).await;
    let ending = json!({ "status": 429, "retryAfter": "600" });
    assert_eq!(settle(&program, &second, &ending).await.status, 200);
    let answer = acquire(&program, "up", &json!({})).await;
    assert_eq!((answer.status, &answer.json()["reason"]), (429, &json!("upstream_retry_after")));
    let after: u32 = answer.header("retry-after").parse().unwrap();
    assert!((500..=600).contains(&after), "{after}");
    assert_eq!(program.metric("proxy_rate_limit_penalties_total", &[("upstream", "up")]).await, 1);
}

/// It ends after a second, which must really pass.
#[tokio::test]
async fn an_unsettled_lease_expires_and_is_not_a_failure() {
    let config = "[workers]\nlease = \"1s\"\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\nmax_concurrent = 1\n\
                  breaker = { failures = 1 }\n";
    let program = Program::start(config, &[]).await;
    let forgotten = lease(&program).await;
    assert_eq!(acquire(&program, "up", &json!({ "wait": "30s" })).await.status, 200);
    assert_eq!(settle(&program, &forgotten, &json!({ "status": 500 })).await.status, 404);
    assert_eq!(breaker(&program, "up").await["state"], "closed");
}

/// Leases of our own workers cannot be ended by others, even if they can guess them.
#[tokio::test]
async fn the_lease_of_a_job_cannot_be_settled_from_outside() {
    let upstream = FakeUpstream::start(Answer::hang()).await.unwrap();
    let config = format!("[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"{}\"\n", upstream.url());
    let program = Program::start(&config, &[]).await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    upstream.wait_for(1).await;
    let nonce = program.get("/v1/health").await.json()["instances"][0]["id"].as_str().unwrap().to_owned();
    for (epoch, number) in (0..3).flat_map(|epoch| (0..3).map(move |number| (epoch, number))) {
        let guess = format!("up:{epoch:x}-{number:x}-{nonce}");
        assert_eq!(settle(&program, &guess, &json!({ "status": 200 })).await.status, 404, "{guess}");
    }
    let job = program.get(&format!("/v1/jobs/{job}")).await.json();
    let events: Vec<&Value> =
        job["timeline"].as_array().unwrap().iter().map(|event| &event["event"]).collect();
    assert_eq!(events, ["accepted", "started"]);
}
