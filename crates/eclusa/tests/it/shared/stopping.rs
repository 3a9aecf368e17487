//! Graceful stops.

use std::time::Duration;

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;
use tokio::time::Instant;

use super::{lane, start};
use crate::program::{Answer as Response, Program};
use crate::redis_server::RedisServer;

/// A silent process would be considered gone only after 30 s.
const AT_ONCE: Duration = Duration::from_secs(1);

fn instances(count: usize) -> impl Fn(&Response) -> bool {
    move |answer| answer.status == 200 && answer.json()["instances"].as_array().unwrap().len() == count
}

const DECIDES: &str = "This process is the owner now";
const READY: &str = "This process is ready to take over when the owner has stopped";

/// The index of its first such log line.
fn logged(program: &Program, message: &str) -> Option<usize> {
    program.log().iter().position(|line| line["message"] == message)
}

fn owns(program: &Program) -> bool {
    logged(program, DECIDES).is_some()
}

/// A stopped process, owner or not, is no longer listed as soon as it is gone.
#[tokio::test]
async fn a_process_that_stops_is_no_instance_at_once() {
    for owner_stops in [false, true] {
        let redis = RedisServer::start();
        let rules = lane("http://127.0.0.1:9", "", "");
        let mut all = [start(&redis, &rules).await, start(&redis, &rules).await, start(&redis, &rules).await];
        for program in &all {
            program.until("/v1/health", instances(3)).await;
        }
        all.sort_by_key(|program| owns(program) == owner_stops);
        let [first, second, stops] = all;
        stops.stop().await;
        let stopped = Instant::now();
        for program in [&first, &second] {
            program.until("/v1/health", instances(2)).await;
        }
        assert!(stopped.elapsed() < AT_ONCE, "{:?}, owner: {owner_stops}", stopped.elapsed());
    }
}

/// Enqueues jobs until another process owns. Returns how many were accepted while `owner` still decided after naming its
/// successor, and the longest time between two accepted jobs.
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

/// The successor reads the journal and builds its engine before the owner releases its term, so callers do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_owner_continues_until_its_successor_has_an_engine() {
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
    next.until("/v1/health", instances(2)).await;
    let id = owner.get("/v1/health").await.json()["owner"]["id"].as_str().unwrap().to_owned();
    let (_, (meanwhile, longest)) = tokio::join!(owner.stop(), accepted_meanwhile(&redis, &next, &id));
    println!("{meanwhile} were accepted while the journal was read; at most {longest:?} between two");
    assert!(meanwhile > 0);
    let (ready, decides) = (logged(&next, READY), logged(&next, DECIDES));
    assert!(ready.is_some() && ready < decides, "ready at line {ready:?}, decides at {decides:?}");
    let held = next.get("/v1/lanes/work").await.json()["queued"]["normal"].as_u64().unwrap();
    assert!(held > 40_000, "{held}");
}

async fn start_draining(redis: &RedisServer, upstream: &FakeUpstream) -> Program {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"60s\"\n[store]\nurl = \"{}\"\nterm = \"500ms\"\n{}",
        redis.url(),
        lane(&upstream.url(), "", "")
    );
    let program = Program::start(&config, &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program
}

/// Another process decides while the stopping one still serves requests by asking it.
#[tokio::test]
async fn a_draining_owner_hands_over_first_and_then_asks() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let owner = start_draining(&redis, &upstream).await;
    let next = start_draining(&redis, &upstream).await;
    next.until("/v1/health", instances(2)).await;
    assert!(owns(&owner) && !owns(&next));
    owner.signal("TERM");
    next.logged(DECIDES, &[]).await;
    assert_eq!(owner.get("/readyz").await.status, 503);
    let id = owner.enqueue("work", &json!({ "request": {} })).await;
    assert_eq!(owner.ended(&id).await["status"], "completed");
    let leaving = |answer: &Response| {
        let instances = answer.json()["instances"].as_array().unwrap().clone();
        instances.len() == 2 && instances.iter().filter(|one| one["leaving"] == true).count() == 1
    };
    next.until("/v1/health", leaving).await;
    owner.signal("TERM");
    owner.logged("Stopped", &[]).await;
    assert_eq!(owner.over().await.0.code(), Some(0));
    next.until("/v1/health", instances(1)).await;
}

/// Two stopping processes do not pass the term back and forth: each knows that the other is stopping too.
#[tokio::test]
async fn where_everybody_drains_nobody_is_handed_the_term() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let owner = start_draining(&redis, &upstream).await;
    let next = start_draining(&redis, &upstream).await;
    next.until("/v1/health", instances(2)).await;
    next.signal("TERM");
    let leaving = |answer: &Response| {
        answer.json()["instances"].as_array().unwrap().iter().any(|one| one["leaving"] == true)
    };
    owner.until("/v1/health", leaving).await;
    owner.signal("TERM");
    owner.logged("Stopping", &[]).await;
    let id = next.enqueue("work", &json!({ "request": {} })).await;
    assert_eq!(next.ended(&id).await["status"], "completed");
    assert!(!owns(&next), "the owner waits for one that stays");
    let third = start_draining(&redis, &upstream).await;
    third.logged(DECIDES, &[]).await;
    for program in [owner, next] {
        program.signal("TERM");
        assert_eq!(program.over().await.0.code(), Some(0));
    }
    third.until("/v1/health", instances(1)).await;
}
