//! Processes stop in order.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{lane, start};
use crate::program::{Answer as Told, Program};
use crate::redis_server::RedisServer;

/// By its silence a process would be known to be gone after 30 s.
const AT_ONCE: Duration = Duration::from_secs(1);

fn so_many(count: usize) -> impl Fn(&Told) -> bool {
    move |answer| answer.status == 200 && answer.json()["instances"].as_array().unwrap().len() == count
}

const DECIDES: &str = "This process decides now";
const READY: &str = "This process is ready to decide when the owner has stopped";

/// Where it logged this first.
fn logged(program: &Program, message: &str) -> Option<usize> {
    program.log().iter().position(|line| line["message"] == message)
}

fn owns(program: &Program) -> bool {
    logged(program, DECIDES).is_some()
}

/// Whoever stops, the owner or another, is no instance as soon as it is gone.
#[tokio::test]
async fn a_process_that_stops_is_no_instance_at_once() {
    for owner_stops in [false, true] {
        let redis = RedisServer::start();
        let rules = lane("http://127.0.0.1:9", "", "");
        let mut all = [start(&redis, &rules).await, start(&redis, &rules).await, start(&redis, &rules).await];
        for program in &all {
            program.until("/v1/health", so_many(3)).await;
        }
        all.sort_by_key(|program| owns(program) == owner_stops);
        let [first, second, stops] = all;
        stops.stop().await;
        let stopped = Instant::now();
        for program in [&first, &second] {
            program.until("/v1/health", so_many(2)).await;
        }
        assert!(stopped.elapsed() < AT_ONCE, "{:?}, owner: {owner_stops}", stopped.elapsed());
    }
}

/// Puts jobs in until another process owns. Says how many were accepted while the successor of `owner` was named and it still
/// decided, and the longest time between two that were accepted.
async fn accepted_meanwhile(redis: &RedisServer, program: &Program, owner: &str) -> (usize, Duration) {
    let field = |name| redis.command(&["HGET", "eclusa:{main}:term", name]);
    let (mut meanwhile, mut last, mut longest) = (0, Instant::now(), Duration::ZERO);
    loop {
        assert_eq!(program.post("/v1/lanes/work/jobs", &json!({ "request": {} })).await.status, 202);
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if field("owner") != owner {
            return (meanwhile, longest);
        }
        meanwhile += usize::from(!field("successor").is_empty() && field("released") == "0");
    }
}

/// The successor reads the journal, and has an engine of it, before the owner releases its term: nobody waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_stops_goes_on_until_its_successor_has_an_engine() {
    let redis = RedisServer::start();
    let rules = lane("http://127.0.0.1:9", "capacity = 1000000", "");
    let owner = start(&redis, &rules).await;
    owner.pause("work").await;
    let jobs: Vec<_> = (0..1_000).map(|_| json!({ "request": { "body": "x".repeat(100) } })).collect();
    for _ in 0..40 {
        assert_eq!(owner.post("/v1/lanes/work/jobs/batch", &json!(jobs)).await.status, 200);
    }
    let next = start(&redis, &rules).await;
    assert!(!owns(&next));
    next.until("/v1/health", so_many(2)).await;
    let id = owner.get("/v1/health").await.json()["owner"]["id"].as_str().unwrap().to_owned();
    let (_, (meanwhile, longest)) = tokio::join!(owner.stop(), accepted_meanwhile(&redis, &next, &id));
    println!("{meanwhile} were accepted while the journal was read; at most {longest:?} between two");
    assert!(meanwhile > 0);
    let (ready, decides) = (logged(&next, READY), logged(&next, DECIDES));
    assert!(ready.is_some() && ready < decides, "ready at line {ready:?}, decides at {decides:?}");
    let held = next.get("/v1/lanes/work").await.json()["queued"]["normal"].as_u64().unwrap();
    assert!(held > 40_000, "{held}");
}
