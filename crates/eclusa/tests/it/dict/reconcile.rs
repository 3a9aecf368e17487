//! Balances are corrected by the upstream's own.

use std::time::Duration;

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::json;

use super::server::{CHECK, Dict, PARTICIPANT};
use super::{compared, equal, single, start};
use crate::program::Program;
use crate::redis_server::RedisServer;

#[tokio::test]
async fn tokens_spent_by_others_are_found_and_reported() {
    let dict = Dict::start('E', 1).await;
    dict.spend(PARTICIPANT, 3_000.0);
    dict.spend(CHECK, 75.0);
    let program = single(&dict, "E").await;
    for (policy, drift) in [(PARTICIPANT, -3_000), (CHECK, -75)] {
        equal(&program, &dict, policy, "").await;
        let line = program.logged("Balance differs from the upstream's count", &[("policy", policy)]).await;
        assert!((line["drift"].as_i64().unwrap() - drift).abs() < 100, "{line}");
        let shown = program.get("/metrics").await.text().to_owned();
        let start = format!("eclusa_policy_drift{{upstream=\"dict\",policy=\"{policy}\"}} -");
        assert!(shown.contains(&start), "{shown}");
    }
    let lines = program.log();
    let differs =
        lines.iter().filter(|line| line["message"] == "The upstream's policies differ from the config");
    assert_eq!(differs.count(), 0, "the example has what the DICT publishes: {lines:#?}");
}

/// One of three processes asks, and one of them again the next time.
#[tokio::test]
async fn a_fleet_asks_as_often_as_one_process() {
    let (redis, dict) = (RedisServer::start(), Dict::start('A', 1).await);
    let mut programs = Vec::new();
    for _ in 0..3 {
        programs.push(start(&dict, "A", &redis.url(), "500ms").await);
    }
    compared(&programs.iter().collect::<Vec<_>>(), 4).await;
    let asked = dict.listed();
    let gaps: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap > Duration::from_millis(470)), "{gaps:?}");
    // The process that asked is gone, and the others continue.
    programs.pop().unwrap().kill().await;
    compared(&programs.iter().collect::<Vec<_>>(), 4).await;
}

/// Three at once, then two per second, whatever the interval.
#[tokio::test]
async fn questions_keep_to_the_limit_of_the_endpoint() {
    let upstream = FakeUpstream::start(Answer::status(200).body(r#"{"policies":[]}"#)).await.unwrap();
    let limit = "[[upstreams.dict.policies]]\nname = \"LISTS\"\ncapacity = 3\nrefill = \"2/s\"\n\
                 match = { path = \"/v1/policies\" }\n";
    let program = Program::start(&(config(&upstream.url(), "json") + limit), &[]).await;
    let began = tokio::time::Instant::now();
    compared(&[&program], 6).await;
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
}

fn config(url: &str, format: &str) -> String {
    format!(
        "[upstreams.dict]\nurl = \"{url}\"\nreconcile = {{ path = \"/v1/policies\", every = \"50ms\", format = \"{format}\" }}\n\
         [[upstreams.dict.policies]]\nname = \"LOOKUPS\"\ncapacity = 100\nrefill = \"1/day\"\nmatch = {{ path = \"/x\" }}\n"
    )
}

/// An invalid response changes nothing and is logged.
#[tokio::test]
async fn bad_answers_change_nothing() {
    let list = |policies: &str| {
        let body = format!("<ListPoliciesResponse><Policies>{policies}</Policies></ListPoliciesResponse>");
        Answer::status(200).body(body)
    };
    let policy = |name: &str, tokens: &str| {
        format!("<Policy><AvailableTokens>{tokens}</AvailableTokens><Name>{name}</Name></Policy>")
    };
    let answers = [
        Answer::status(503),
        Answer::status(429),
        Answer::status(200).body("<html></html>"),
        list(&policy("LOOKUPS", "many")),
        list(&(policy("LOOKUPS", "40") + "<Policy><Name>LOOKUPS</Name></Policy>")),
        list(&policy("NEW", "1")),
        list(&policy("LOOKUPS", "40")),
    ];
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let program = Program::start(&config(&upstream.url(), "dict-xml"), &[]).await;
    for reason in [
        "answered 503 Service Unavailable",
        "answered 429 Too Many Requests",
        "the answer is not a `ListPoliciesResponse`",
        "the answer has a `AvailableTokens` that is not a number",
        "the answer has a policy without `Name` or `AvailableTokens`",
    ] {
        program.logged("Balances could not be compared", &[("reason", reason)]).await;
    }
    let differs = program.logged("The upstream's policies differ from the config", &[]).await;
    assert_eq!((&differs["unknown_here"], &differs["unreported"]), (&json!("NEW"), &json!("LOOKUPS")));
    let corrected = program.logged("Balance differs from the upstream's count", &[]).await;
    assert_eq!((&corrected["ours"], &corrected["corrected"]), (&json!(100), &json!(40)));
}

#[tokio::test]
async fn one_eclusa_is_compared_with_another() {
    let first = Program::start(&config("http://127.0.0.1:9", "json").replace("50ms", "1h"), &[]).await;
    let call = json!({ "request": { "path": "/x" } });
    for _ in 0..30 {
        let lease = first.post("/v1/limits/dict/acquire", &call).await.json()["leaseId"].clone();
        let path = format!("/v1/limits/leases/{}/settle", lease.as_str().unwrap());
        assert_eq!(first.post(&path, &json!({ "status": 200 })).await.status, 200);
    }
    let second = Program::start(&config(&first.url(), "json"), &[]).await;
    second.until("/v1/policies/LOOKUPS", |answer| answer.json()["availableTokens"] == 70).await;
    // Tokens held here are not counted there.
    assert_eq!(second.post("/v1/limits/dict/acquire", &call).await.status, 200);
    compared(&[&second], 5).await;
    assert_eq!(second.get("/v1/policies/LOOKUPS").await.json()["availableTokens"], 69);
}
