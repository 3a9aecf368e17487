//! External workers: they describe the call they will make, and afterwards report its status and usage.

use serde_json::{Value, json};

use super::super::limits::acquire;
use super::super::program::Program;
use super::{DICT, PERSON, balance, start};

const NOWHERE: &str = "http://127.0.0.1:9";

async fn lease(program: &Program, body: &Value) -> String {
    let answer = acquire(program, "dict", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["leaseId"].as_str().unwrap().to_owned()
}

async fn settle(program: &Program, lease: &str, body: &Value) {
    let answer = program.post(&format!("/v1/limits/leases/{lease}/settle"), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn a_call_is_held_and_settled_by_the_policies_that_it_falls_under() {
    let program = start(NOWHERE, DICT).await;
    let call = json!({ "request": { "path": "/entries/a", "headers": { "PI-PayerId": PERSON } } });
    let answer = acquire(&program, "dict", &call).await.json();
    assert_eq!(answer["remaining"], 80, "of the tightest");
    assert_eq!(
        (balance(&program, "USER", PERSON).await, balance(&program, "PSP", "").await),
        (80.into(), 4_997.into())
    );
    settle(&program, answer["leaseId"].as_str().unwrap(), &json!({ "status": 200 })).await;
    assert_eq!(
        (balance(&program, "USER", PERSON).await, balance(&program, "PSP", "").await),
        (99.into(), 4_999.into())
    );
    settle(&program, &lease(&program, &call).await, &json!({ "status": 404 })).await;
    assert_eq!(balance(&program, "USER", PERSON).await, 79);
    settle(&program, &lease(&program, &call).await, &json!({ "status": "not_sent" })).await;
    assert_eq!(balance(&program, "USER", PERSON).await, 79);
}

#[tokio::test]
async fn scope_and_hold_may_be_given_without_the_header() {
    let program = start(NOWHERE, DICT).await;
    let call = json!({ "request": { "path": "/entries/a" }, "scope": PERSON, "hold": 60 });
    let first = lease(&program, &call).await;
    let denied = acquire(&program, "dict", &call).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.json()["violated-policies"], json!(["USER"]));
    settle(&program, &first, &json!({ "status": 200 })).await;
    lease(&program, &call).await;
    for (wrong, field) in [
        (json!({ "request": { "path": "/entries/a" } }), "header.pi-payerid"),
        (json!({ "request": { "path": "/claims" }, "hold": 21 }), "hold"),
        (json!({ "request": { "path": "/claims" }, "hold": "much" }), "hold"),
        (json!({ "request": { "path": "/../x" } }), "request.path"),
    ] {
        let answer = acquire(&program, "dict", &wrong).await;
        assert_eq!(
            (answer.status, answer.json()["errors"][0]["field"].as_str()),
            (422, Some(field)),
            "{wrong}"
        );
    }
}

/// A caller that waits for its own bucket does not block others.
#[tokio::test]
async fn a_caller_that_waits_for_its_scope_lets_others_pass() {
    let program = start(NOWHERE, DICT).await;
    let call = |wait: &str| json!({ "request": { "path": "/entries/a" }, "scope": PERSON, "hold": 60, "wait": wait });
    let first = lease(&program, &call("0s")).await;
    let waiting = call("30s");
    let waits = acquire(&program, "dict", &waiting);
    let all = async {
        let other = json!({ "request": { "path": "/claims" }, "wait": "30s" });
        assert_eq!(acquire(&program, "dict", &other).await.status, 200);
        settle(&program, &first, &json!({ "status": 200 })).await;
    };
    let (waited, ()) = tokio::join!(waits, all);
    assert_eq!(waited.status, 200, "{}", waited.text());
}

const TOKENS: &str = r#"
[[upstreams.dict.policies]]
name = "TOKENS"
capacity = 1000
refill = "1/day"
hold = "body:/max_tokens"
cost = { from = "body:/usage/total_tokens", "429" = 0, default = 1 }
"#;

#[tokio::test]
async fn usage_is_reported_with_the_end_of_a_call() {
    let program = start(NOWHERE, TOKENS).await;
    let call = json!({ "request": { "path": "/v1/chat", "body": { "max_tokens": 300 } } });
    for (end, left) in [
        (json!({ "status": 200, "usage": 120 }), 880),
        (json!({ "status": 200, "usage": { "body:/usage/total_tokens": 80.5, "body:/other": 9 } }), 799),
        (json!({ "status": 200 }), 499),
        (json!({ "status": 429, "usage": 5 }), 499),
        (json!({ "status": 200, "usage": 600 }), -101),
    ] {
        let lease = lease(&program, &call).await;
        settle(&program, &lease, &end).await;
        assert_eq!(balance(&program, "TOKENS", "").await, left, "{end}");
    }
    assert_eq!(acquire(&program, "dict", &json!({})).await.status, 429, "a debt lets nothing pass");
}
