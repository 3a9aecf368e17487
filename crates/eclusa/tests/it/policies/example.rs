//! `examples/dict.toml`: every policy that the central bank publishes.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::{Value, json};

use super::super::program::Program;
use super::{PERSON, balance, settles_to};

async fn start(upstream: &FakeUpstream, category: &[(&str, &str)]) -> Program {
    let url = upstream.url();
    let env = [&[("DICT_URL", url.as_str())], category].concat();
    Program::start_example("dict.toml", &env).await
}

/// Name, tokens per period, period in seconds and capacity of the policies that the whole participant shares.
fn shared(list: &Value) -> Vec<(String, u64, u64, u64)> {
    let number = |policy: &Value, name: &str| policy[name].as_u64().unwrap();
    let shown = |policy: &Value| {
        let name = policy["name"].as_str().unwrap().to_owned();
        (name, number(policy, "refillTokens"), number(policy, "refillPeriodSec"), number(policy, "capacity"))
    };
    list["policies"].as_array().unwrap().iter().map(shown).collect()
}

#[tokio::test]
async fn every_published_policy_has_its_published_numbers() {
    const FIXED: [(&str, u64, u64); 25] = [
        ("ENTRIES_WRITE", 1_200, 36_000),
        ("ENTRIES_UPDATE", 600, 600),
        ("CLAIMS_READ", 600, 18_000),
        ("CLAIMS_WRITE", 1_200, 36_000),
        ("CLAIMS_LIST_WITH_ROLE", 40, 200),
        ("CLAIMS_LIST_WITHOUT_ROLE", 10, 50),
        ("SYNC_VERIFICATIONS_WRITE", 10, 50),
        ("CIDS_FILES_READ", 10, 50),
        ("CIDS_EVENTS_LIST", 20, 100),
        ("CIDS_ENTRIES_READ", 1_200, 36_000),
        ("INFRACTION_REPORTS_READ", 600, 18_000),
        ("INFRACTION_REPORTS_WRITE", 1_200, 36_000),
        ("INFRACTION_REPORTS_LIST_WITH_ROLE", 40, 200),
        ("INFRACTION_REPORTS_LIST_WITHOUT_ROLE", 10, 50),
        ("KEYS_CHECK", 70, 70),
        ("REFUNDS_READ", 1_200, 36_000),
        ("REFUNDS_WRITE", 2_400, 72_000),
        ("REFUND_LIST_WITH_ROLE", 40, 200),
        ("REFUND_LIST_WITHOUT_ROLE", 10, 50),
        ("FRAUD_MARKERS_READ", 600, 18_000),
        ("FRAUD_MARKERS_WRITE", 1_200, 36_000),
        ("FRAUD_MARKERS_LIST", 600, 18_000),
        ("PERSONS_STATISTICS_READ", 12_000, 36_000),
        ("POLICIES_READ", 60, 200),
        ("POLICIES_LIST", 6, 20),
    ];
    const CATEGORIES: [(&str, u64, u64); 3] = [("A", 25_000, 50_000), ("G", 25, 250), ("", 2, 50)];
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    for (category, refill, size) in CATEGORIES {
        let program = start(&upstream, &[("DICT_CATEGORY", category)]).await;
        let mut reported = shared(&program.get("/v1/policies").await.json());
        let mut expected: Vec<_> =
            FIXED.iter().map(|(name, refill, size)| ((*name).to_owned(), *refill, 60, *size)).collect();
        expected.push(("CIDS_FILES_WRITE".into(), 40, 86_400, 200));
        for name in ["ENTRIES_READ_PARTICIPANT_ANTISCAN", "ENTRIES_STATISTICS_READ"] {
            expected.push((name.into(), refill, 60, size));
        }
        reported.sort();
        expected.sort();
        assert_eq!(reported, expected, "category {category:?}");
    }
}

/// A lookup falls under one user policy and that of the participant; other calls under one policy each.
#[tokio::test]
async fn each_call_falls_under_its_own_policies() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream, &[("DICT_CATEGORY", "A")]).await;
    // The request for balances falls under a policy too.
    program.logged("Balances could not be compared", &[]).await;
    for (call, policy) in [
        ("GET /entries/a@b.c/statistics", "ENTRIES_STATISTICS_READ"),
        ("POST /entries/", "ENTRIES_WRITE"),
        ("POST /entries/a@b.c/delete", "ENTRIES_WRITE"),
        ("PUT /entries/a@b.c", "ENTRIES_UPDATE"),
        ("GET /claims/1", "CLAIMS_READ"),
        ("POST /claims/", "CLAIMS_WRITE"),
        ("POST /claims/1/acknowledge", "CLAIMS_WRITE"),
        ("POST /claims/1/cancel", "CLAIMS_WRITE"),
        ("POST /claims/1/confirm", "CLAIMS_WRITE"),
        ("POST /claims/1/complete", "CLAIMS_WRITE"),
        ("GET /claims/?IsDonor=true", "CLAIMS_LIST_WITH_ROLE"),
        ("GET /claims/?IsClaimer=true", "CLAIMS_LIST_WITH_ROLE"),
        ("GET /claims/?Limit=10", "CLAIMS_LIST_WITHOUT_ROLE"),
        ("POST /sync-verifications/", "SYNC_VERIFICATIONS_WRITE"),
        ("POST /cids/files/", "CIDS_FILES_WRITE"),
        ("GET /cids/files/1", "CIDS_FILES_READ"),
        ("GET /cids/events?KeyType=CPF", "CIDS_EVENTS_LIST"),
        ("GET /cids/entries/1", "CIDS_ENTRIES_READ"),
        ("GET /infraction-reports/1", "INFRACTION_REPORTS_READ"),
        ("POST /infraction-reports/", "INFRACTION_REPORTS_WRITE"),
        ("POST /infraction-reports/1/close", "INFRACTION_REPORTS_WRITE"),
        ("GET /infraction-reports/?IsReporter=true", "INFRACTION_REPORTS_LIST_WITH_ROLE"),
        ("GET /infraction-reports/?Limit=10", "INFRACTION_REPORTS_LIST_WITHOUT_ROLE"),
        ("POST /keys/check", "KEYS_CHECK"),
        ("GET /refunds/1", "REFUNDS_READ"),
        ("POST /refunds/", "REFUNDS_WRITE"),
        ("POST /refunds/1/close", "REFUNDS_WRITE"),
        ("GET /refunds/?Role=CONTESTED", "REFUND_LIST_WITH_ROLE"),
        ("GET /refunds/?Limit=10", "REFUND_LIST_WITHOUT_ROLE"),
        ("GET /fraud-markers/1", "FRAUD_MARKERS_READ"),
        ("POST /fraud-markers/", "FRAUD_MARKERS_WRITE"),
        ("POST /fraud-markers/1/cancel", "FRAUD_MARKERS_WRITE"),
        ("GET /fraud-markers/", "FRAUD_MARKERS_LIST"),
        ("GET /persons/12345678901/statistics", "PERSONS_STATISTICS_READ"),
        ("GET /policies/", "POLICIES_LIST"),
        ("GET /policies/KEYS_CHECK", "POLICIES_READ"),
    ] {
        let (method, path) = call.split_once(' ').unwrap();
        let (bare, query) = path.split_once('?').unwrap_or((path, ""));
        let before = balance(&program, policy, "").await.as_i64().unwrap();
        let ask = json!({ "request": { "method": method, "path": bare, "query": query } });
        assert_eq!(program.post("/v1/limits/dict/acquire", &ask).await.status, 200, "{call}");
        let after = balance(&program, policy, "").await.as_i64().unwrap();
        assert_eq!(before - after, 1, "{call}");
    }
    for (key, policy) in [
        ("a@b.c", "ENTRIES_READ_USER_ANTISCAN"),
        ("+5511987654321", "ENTRIES_READ_USER_ANTISCAN"),
        ("12ABC34501DE35", "ENTRIES_READ_USER_ANTISCAN_V2"),
        ("123e4567-e89b-12d3-a456-426655440000", "ENTRIES_READ_USER_ANTISCAN_V2"),
        ("123E4567-E89B-12D3-A456-42665544000", "ENTRIES_READ_USER_ANTISCAN_V2"),
    ] {
        let payer = format!("{:011}", key.len());
        let answer =
            program.send("GET", &format!("/proxy/dict/entries/{key}"), &[("PI-PayerId", &payer)], "").await;
        assert_eq!(answer.status, 200, "{key}");
        settles_to(&program, policy, &payer, 99).await;
    }
}

#[tokio::test]
async fn a_balance_that_runs_low_is_logged_and_counted() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let program = start(&upstream, &[]).await;
    for _ in 0..5 {
        program.send("GET", "/proxy/dict/entries/a@b.c", &[("PI-PayerId", PERSON)], "").await;
    }
    let about = [("alert", "policy_low"), ("policy", "ENTRIES_READ_USER_ANTISCAN")];
    let line = program.logged("Alert fires", &about).await;
    assert_eq!((&line["upstream"], &line["value"]), (&json!("dict"), &json!(1.0)));
    assert!(!line.to_string().contains(PERSON));
    let of = [("upstream", "dict"), ("policy", "ENTRIES_READ_USER_ANTISCAN")];
    assert_eq!(program.metric("eclusa_policy_low", &of).await, 1);
    assert_eq!(program.metric("eclusa_policy_buckets", &of).await, 1);
    let keys = [("upstream", "dict"), ("policy", "KEYS_CHECK")];
    assert_eq!(program.metric("eclusa_policy_tokens", &keys).await, 70);
}
