//! `/v1/status` and `eclusa status`: the state of everything in a sentence.

use serde_json::{Value, json};

use super::cli::run_with;
use super::program::Program;
use super::redis_server::RedisServer;

const RULES: &str = "[lanes.work]\nchain = [\"up\"]\n[lanes.other]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n";

fn codes(needs: &Value) -> Vec<&str> {
    needs.as_array().unwrap().iter().map(|need| need["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn it_names_the_lane_that_waits_and_what_needs_attention() {
    let program = Program::start(RULES, &[]).await;
    let fresh = program.get("/v1/status").await;
    assert_eq!((fresh.status, &fresh.json()["code"]), (200, &json!("fresh")), "{}", fresh.text());
    assert_eq!(fresh.json()["needs"], json!([]));
    program.pause("work").await;
    program.enqueue("work", &json!({ "request": { "path": "/" } })).await;
    let status = program.get("/v1/status").await.json();
    assert_eq!(status["text"], "`work` is paused: 1 job waits until it is resumed.");
    assert_eq!((&status["code"], &status["args"]["waiting"]), (&json!("paused"), &json!(1)));
    assert_eq!(codes(&status["needs"]), ["paused"]);
    let printed = run_with(&["status", "--url", &program.url()], &[], "").await.ok();
    assert!(
        printed.starts_with("`work` is paused: 1 job waits until it is resumed.\nEverything else flows.\n"),
        "{printed}"
    );
    assert!(printed.contains("Lane `work` is paused.\n"), "{printed}");
}

/// A key for some lanes gets the status of these.
#[tokio::test]
async fn a_bounded_key_sees_the_status_of_its_own_lanes() {
    let key = |name: &str, role: &str, more: &str| {
        format!(
            "[[auth.keys]]\nname = \"{name}\"\nrole = \"{role}\"\nkey = \"{name}-0123456789abcdef\"\n{more}\n"
        )
    };
    let keys = key("ops", "operator", "")
        + &key("some", "viewer", "lanes = [\"other\"]")
        + &key("in", "producer", "");
    let program = Program::start(&format!("{RULES}{keys}"), &[]).await;
    let ask = async |name: &str, method: &str, path: &str| {
        let bearer = format!("Bearer {name}-0123456789abcdef");
        program.send(method, path, &[("authorization", &bearer)], r#"{"request":{"path":"/"}}"#).await
    };
    assert_eq!(ask("ops", "POST", "/v1/lanes/work/pause").await.status, 200);
    assert_eq!(ask("ops", "POST", "/v1/lanes/work/jobs").await.status, 202);
    assert_eq!(ask("ops", "GET", "/v1/status").await.json()["code"], "paused");
    let some = ask("some", "GET", "/v1/status").await.json();
    assert_eq!((&some["code"], &some["needs"]), (&json!("fresh"), &json!([])));
    assert_eq!(ask("in", "GET", "/v1/status").await.status, 403);
    assert_eq!(program.get("/v1/status").await.status, 401);
}

/// The tenant with the most dead letters is named only to keys that may act for it.
#[tokio::test]
async fn a_key_of_some_tenants_is_not_told_another_tenant() {
    let key = |name: &str, more: &str| {
        format!(
            "[[auth.keys]]\nname = \"{name}\"\nrole = \"operator\"\nkey = \"{name}-0123456789abcdef\"\n{more}\n"
        )
    };
    let config = "[lanes.work]\nchain = [\"up\"]\nretry = { attempts = 1 }\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n";
    let keys = key("ops", "") + &key("bolt", "tenants = [\"bolt\"]");
    let program = Program::start(&format!("{config}{keys}"), &[]).await;
    let ask = async |name: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {name}-0123456789abcdef");
        program.send(method, path, &[("authorization", &bearer)], body).await.json()
    };
    let job = r#"{"tenant":"acme","request":{"path":"/"}}"#;
    let id = ask("ops", "POST", "/v1/lanes/work/jobs", job).await["jobId"].as_str().unwrap().to_owned();
    let ended = ask("ops", "GET", &format!("/v1/jobs/{id}/wait?timeout=10"), "").await;
    assert_eq!(ended["status"], "failed", "{ended}");
    for (key, tenant) in [("ops", json!("acme")), ("bolt", json!(null))] {
        let status = ask(key, "GET", "/v1/status", "").await;
        let letters = &status["needs"][0];
        assert_eq!((&letters["code"], &letters["args"]["topTenant"]), (&json!("dead_letters"), &tenant));
        assert_eq!(letters["text"].as_str().unwrap().contains("acme"), key == "ops", "{letters}");
        assert!(letters["args"]["until"].is_string() && letters["since"].is_string(), "{letters}");
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_the_status() {
    let mut redis = RedisServer::start();
    let store = format!("[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\n{RULES}", redis.url());
    let program = Program::start(&store, &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    assert_eq!(program.get("/v1/status").await.json()["code"], "fresh");
    redis.pause();
    let lost = program.get("/v1/status").await;
    redis.resume();
    assert_eq!((lost.status, &lost.json()["code"]), (200, &json!("store_lost")), "{}", lost.text());
}
