//! How a process reports the fleet: the owner, differing rules, and outages of the store.

use eclusa::fake::{Answer, FakeUpstream};
use eclusa::limits::{Limits, Rate};
use std::time::Duration;

use serde_json::{Value, json};

use super::program::{Program, millis};
use super::redis_server::RedisServer;

async fn start(redis: &RedisServer, upstream: &FakeUpstream, of_lane: &str) -> Program {
    let config = format!(
        "[store]\nurl = \"{}\"\nprefix = \"\"\n[lanes.work]\nchain = [\"up\"]\n{of_lane}\n[upstreams.up]\nurl = \"{}\"\n",
        redis.url(),
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program
}

/// The health, once it lists `count` processes.
async fn health_of(program: &Program, count: usize) -> Value {
    let all = |health: &Value| health["instances"].as_array().unwrap().len() == count;
    program.until("/v1/health", |answer| answer.status == 200 && all(&answer.json())).await.json()
}

#[tokio::test]
async fn a_single_process_decides_itself() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = format!("[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"{}\"\n", upstream.url());
    let program = Program::start(&config, &[]).await;
    let health = health_of(&program, 1).await;
    assert_eq!(health["owner"]["id"], health["instances"][0]["id"]);
    let first = health["owner"]["epoch"].as_u64().unwrap();
    assert!(millis(&health["owner"]["since"]) > 0);
    let (_, dir) = program.stop().await;
    let again = Program::start_in(dir, &config, &[]).await;
    assert!(health_of(&again, 1).await["owner"]["epoch"].as_u64().unwrap() > first);
}

#[tokio::test]
async fn all_processes_name_the_same_owner_and_show_whose_rules_differ() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let first = start(&redis, &upstream, "").await;
    let second = start(&redis, &upstream, "ttl = \"1m\"").await;
    let (one, other) = (health_of(&first, 2).await, health_of(&second, 2).await);
    assert!(millis(&one["owner"]["since"]) > 0);
    assert_eq!(one["owner"], other["owner"]);
    let mut differ: Vec<_> =
        other["instances"].as_array().unwrap().iter().map(|one| one["differs"].as_u64().unwrap()).collect();
    differ.sort_unstable();
    assert_eq!(
        differ,
        [0, 1],
        "the first was started with other rules for its lane than those of the second"
    );
}

#[tokio::test]
async fn while_redis_hangs_nobody_waits_for_it_longer_than_once() {
    let mut redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&redis, &upstream, "").await;
    redis.pause();
    let job = json!({ "request": { "path": "/" } });
    let first = program.post("/v1/lanes/work/jobs", &job).await;
    assert_eq!(first.status, 503);
    let said = first.json();
    assert!(said["detail"].as_str().unwrap().contains("It may have been stored"), "{said}");
    let id = said["jobId"].as_str().unwrap().to_owned();

    let later = program.post("/v1/lanes/work/jobs", &job).await;
    assert!(later.json()["detail"].as_str().unwrap().starts_with("Nothing was accepted"), "{later:?}");
    assert_eq!(program.get("/readyz").await.status, 503);
    assert_eq!(program.get("/livez").await.status, 200);
    assert_eq!(program.metric("eclusa_store_up", &[]).await, 0);
    assert_eq!(program.get("/metrics").await.status, 200);

    redis.resume();
    program.until("/readyz", |answer| answer.status == 200).await;
    assert_eq!(program.ended(&id).await["status"], "completed", "it was stored");
}

#[tokio::test]
async fn a_process_that_runs_no_jobs_notices_too_that_redis_is_back() {
    let mut redis = RedisServer::start();
    let config = format!(
        "[store]\nurl = \"{}\"\n[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n",
        redis.url()
    );
    let program = Program::start_as("api", &config).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    let store_is = |status| {
        program.until("/v1/health", move |answer| {
            answer.status == 200 && answer.json()["store"]["status"] == status
        })
    };
    redis.stop();
    store_is("lost").await;
    redis.start_again();
    store_is("ok").await;
}

#[tokio::test]
async fn a_library_process_shares_one_place_in_the_fleet_and_decides_when_no_gateway_does() {
    let redis = RedisServer::start();
    let limits = Limits::new(Some(&redis.url()));
    let rate = Rate { calls: 2, per: Duration::from_hours(1), burst: 2 };
    let limiter = limits.rate_limiter("portal", rate).unwrap();
    let breaker = limits.circuit_breaker("portal", 1, Duration::from_mins(5)).unwrap();
    breaker.record_failure().await;
    assert!(breaker.is_degraded().await);
    assert!(limiter.acquire().await, "the limiter knows nothing of the breaker");

    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let gateway = start(&redis, &upstream, "").await;
    let health = health_of(&gateway, 2).await;
    let library =
        health["instances"].as_array().unwrap().iter().find(|one| one["role"] == "library").unwrap();
    assert_eq!(health["owner"]["id"], library["id"], "the library was there first");
    let id = gateway.enqueue("work", &json!({ "request": { "path": "/" } })).await;
    assert_eq!(gateway.ended(&id).await["status"], "completed");
    gateway.stop().await;

    assert!(breaker.is_degraded().await);
    assert!(limiter.acquire().await);
    assert!(!limiter.acquire().await, "two in an hour");
}
