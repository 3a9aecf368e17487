//! What lanes, upstreams and the health tell beside counts: what holds a lane, when its last job starts, how calls go.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::{Value, json};

use super::program::{Program, millis};
use super::redis_server::RedisServer;

/// One call a minute is let through.
fn rules(upstream: &FakeUpstream) -> String {
    format!(
        "[lanes.work]\nchain = [\"up\"]\nttl = \"90s\"\ncapacity = 10\n[lanes.now]\nmode = \"direct\"\nchain = [\"up\", \"spare\"]\n\
         [upstreams.up]\nurl = \"{0}\"\nrpm = 1\n[upstreams.spare]\nurl = \"{0}\"\n",
        upstream.url()
    )
}

async fn check(program: &Program, upstream: &FakeUpstream) {
    for _ in 0..3 {
        program.enqueue("work", &json!({ "request": { "path": "/a" } })).await;
    }
    upstream.wait_for(1).await;
    let held = |lane: &Value| lane["held"]["reason"] == "window" && lane["processing"] == 0;
    let answer = program.until("/v1/lanes/work", |answer| answer.status == 200 && held(&answer.json())).await;
    let lane = answer.json();
    assert_eq!(lane["held"]["upstream"], "up");
    let (opens, last) = (millis(&lane["held"]["until"]), millis(&lane["lastStart"]));
    assert_eq!(last - opens, 60_000, "the second of two that wait goes a minute after the first: {lane}");
    assert_eq!(lane["willExpire"], 1, "it waits longer than 90 s");
    assert_eq!((&lane["mode"], &lane["chain"]), (&json!("queue"), &json!(["up"])));
    assert_eq!((&lane["capacity"], &lane["ttlSec"]), (&json!(10), &json!(90.0)));
    assert!(millis(&lane["oldestWaitingAt"]) > 0);

    let direct = program.get("/v1/lanes/now").await.json();
    assert_eq!((&direct["mode"], &direct["chain"]), (&json!("direct"), &json!(["up", "spare"])));
    assert_eq!(
        (&direct["held"], &direct["lastStart"], &direct["ttlSec"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );

    let upstream = program.get("/v1/upstreams/up").await.json();
    assert_eq!((&upstream["errorsLastMinute"], &upstream["lastFailure"]["code"]), (&json!(1), &json!("503")));
    assert!(millis(&upstream["lastFailure"]["at"]) > 0);
    assert!(upstream["latencyMs"]["p50"].is_u64() && upstream["latencyMs"]["p95"].is_u64(), "{upstream}");
    assert_eq!(program.get("/v1/upstreams/spare").await.json()["latencyMs"], Value::Null);
}

#[tokio::test]
async fn a_lane_tells_what_holds_it_and_when_its_last_job_starts() {
    let upstream = FakeUpstream::start(Answer::status(503)).await.unwrap();
    let config =
        format!("{}\n", rules(&upstream)).replace("capacity = 10", "capacity = 10\nretry = { attempts = 1 }");
    let program = Program::start(&config, &[]).await;
    check(&program, &upstream).await;
    let quotes = |lane: &Value| lane["quotes"]["count"] == 1;
    let lane = program.until("/v1/lanes/work", |answer| quotes(&answer.json())).await.json();
    assert!(
        lane["quotes"]["p50Sec"].as_f64().unwrap() < 5.0,
        "the estimate of the first was to start at once: {lane}"
    );

    let health = program.get("/v1/health").await.json();
    assert_eq!((&health["store"]["kind"], &health["store"]["ack"]), (&json!("embedded"), &json!("fsync")));
    assert!(health["store"]["journalBytes"].as_u64().unwrap() > 0);
    assert!(health["store"]["url"].as_str().unwrap().starts_with("embedded:"));
    assert_eq!((&health["version"], &health["faults"]), (&json!(env!("CARGO_PKG_VERSION")), &json!([])));
    assert!(millis(&health["startedAt"]) > 0);
    let own = &health["instances"][0];
    assert_eq!((&own["self"], &own["owner"], &own["differing"]), (&json!(true), &json!(true), &json!([])));
}

#[tokio::test]
async fn a_process_that_does_not_decide_tells_the_same() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(503)).await.unwrap();
    let store = format!("[store]\nurl = \"{}\"\nterm = \"500ms\"\n", redis.url());
    let listen = "[server]\nlisten = \"127.0.0.1:0\"\n";
    let rules = rules(&upstream).replace("capacity = 10", "capacity = 10\nretry = { attempts = 1 }");
    let config = format!("{listen}{store}{rules}");
    let worker = Program::start_as("worker", &config).await;
    worker.until("/readyz", |answer| answer.status == 200).await;
    let other_rules = config.replace("rpm = 1", "rpm = 1\nmax_concurrent = 9");
    let api = Program::start_as("api", &other_rules).await;
    api.until("/readyz", |answer| answer.status == 200).await;
    check(&api, &upstream).await;

    let both = |health: &Value| health["instances"].as_array().is_some_and(|all| all.len() == 2);
    let health = api.until("/v1/health", |answer| answer.status == 200 && both(&answer.json())).await.json();
    let find = |role: &str| {
        let all = health["instances"].as_array().unwrap();
        all.iter().find(|one| one["role"] == role).unwrap().clone()
    };
    let (own, other) = (find("api"), find("worker"));
    assert_eq!((&own["self"], &own["owner"]), (&json!(true), &json!(false)));
    assert_eq!((&other["self"], &other["owner"]), (&json!(false), &json!(true)));
    assert_eq!(other["differing"], json!(["up"]), "the newer rules are in force");
    assert_eq!((&health["store"]["ack"], &health["store"]["journalBytes"]), (&json!("write"), &Value::Null));

    worker.kill().await;
    let took_over = |health: &Value| health["faults"][0]["code"] == "takeover";
    let health =
        api.until("/v1/health", |answer| answer.status == 200 && took_over(&answer.json())).await.json();
    assert!(millis(&health["faults"][0]["at"]) > 0);
    assert!(health["store"]["journalBytes"].as_u64().unwrap() > 0, "it decides now");
}
