//! Each process's own gates while Redis is down.

use std::time::Duration;

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::json;
use tokio::time::Instant;

use super::start;
use crate::program::{Answer as Response, Program};
use crate::redis_server::RedisServer;

/// A direct lane and its upstream, each with these additional rules.
fn direct(upstream: &str, store_rules: &str, upstream_rules: &str) -> String {
    format!(
        "{store_rules}\n[lanes.work]\nmode = \"direct\"\nchain = [\"up\"]\n\
         [upstreams.up]\nurl = \"{upstream}\"\n{upstream_rules}\n"
    )
}

/// Two processes that know of each other and have refreshed their view of the gates since.
async fn two(redis: &RedisServer, rules: &str) -> [Program; 2] {
    let (first, second) = tokio::join!(start(redis, rules), start(redis, rules));
    let both = |answer: &Response| answer.json()["instances"].as_array().unwrap().len() == 2;
    first.until("/v1/health", both).await;
    second.until("/v1/health", both).await;
    [first, second]
}

/// Sends as fast as it is answered, until then.
async fn hammer(program: &Program, until: Instant) {
    while Instant::now() < until {
        program.get("/proxy/work/a").await;
    }
}

async fn hammer_both([first, second]: &[Program; 2], span: Duration) {
    let until = Instant::now() + span;
    tokio::join!(hammer(first, until), hammer(second, until));
}

/// The most requests that the upstream received in any interval, minus what a bucket of `burst` and `rate` tokens per
/// second admits in an interval of that length.
fn excess(upstream: &FakeUpstream, burst: f64, rate: f64) -> f64 {
    let starts: Vec<_> = upstream.requests().iter().map(|seen| seen.at.as_millis()).collect();
    let mut worst = f64::MIN;
    for (from, first) in starts.iter().enumerate() {
        for (count, last) in (1..).zip(&starts[from..]) {
            let seconds = Duration::from_millis(last - first).as_secs_f64();
            worst = worst.max(f64::from(count) - burst - rate * seconds);
        }
    }
    worst
}

#[tokio::test]
async fn together_they_stay_within_the_limit_before_during_and_after() {
    let mut redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let both =
        two(&redis, &direct(&upstream.url(), "timeout = \"500ms\"", "rate = \"20/s\"\nburst = 20")).await;
    hammer_both(&both, Duration::from_secs(3)).await;
    let before = upstream.requests().len();
    redis.stop();
    hammer_both(&both, Duration::from_secs(3)).await;
    let during = upstream.requests().len() - before;
    redis.start_again();
    hammer_both(&both, Duration::from_secs(3)).await;
    assert!(
        (40..=80).contains(&during),
        "it goes on at the pace of the limit: {during} in 3 s at 20 a second"
    );
    // The time between the permit and the arrival at the upstream varies.
    let excess = excess(&upstream, 20.0, 20.0);
    assert!(excess <= 2.0, "{excess} too many");
}

#[tokio::test]
async fn slots_are_divided_too() {
    let mut redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::hang()).await.unwrap();
    let [first, second] = two(&redis, &direct(&upstream.url(), "", "max_concurrent = 3")).await;
    redis.stop();
    let mut granted = Vec::new();
    for program in [&first, &second] {
        for _ in 0..4 {
            let answer = program.post("/v1/limits/up/acquire", &json!({})).await;
            granted.extend((answer.status == 200).then(|| answer.json()["leaseId"].clone()));
        }
    }
    assert_eq!(granted.len(), 3, "{granted:?}");
    let health = first.get("/v1/health").await.json();
    assert_eq!((&health["status"], &health["store"]["status"]), (&json!("degraded"), &json!("lost")));
    // A lease is settled where it was granted, even when Redis is back.
    redis.start_again();
    first.until("/readyz", |answer| answer.status == 200).await;
    let path = format!("/v1/limits/leases/{}/settle", granted[0].as_str().unwrap());
    let answers = [
        first.post(&path, &json!({ "status": 200 })).await,
        second.post(&path, &json!({ "status": 200 })).await,
    ];
    let mut statuses = answers.map(|answer| answer.status);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404]);
}

#[tokio::test]
async fn a_breaker_that_was_open_stays_open() {
    let mut redis = RedisServer::start();
    let rules = direct("http://127.0.0.1:9", "", "breaker = { failures = 2, open_for = \"60s\" }");
    let program = start(&redis, &rules).await;
    for _ in 0..2 {
        program.post("/v1/breakers/up/failure", &json!({})).await;
    }
    let open = program.get("/v1/breakers/up").await.json();
    redis.stop();
    assert_eq!(program.get("/v1/breakers/up").await.json()["degradedUntil"], open["degradedUntil"]);
    assert_eq!(program.get("/proxy/work/a").await.status, 429);
}

/// A Retry-After for one scope does not apply to the whole upstream once Redis is back.
#[tokio::test]
async fn a_word_to_stay_away_stays_with_the_scope_it_was_said_to() {
    let mut redis = RedisServer::start();
    let behaviour = Behaviour::by(|seen| match seen.headers.get("x-user") {
        Some(user) if user == "a" => Answer::status(429).header("retry-after", "300"),
        _ => Answer::status(200),
    });
    let upstream = FakeUpstream::start(behaviour).await.unwrap();
    let policy = "[[upstreams.up.policies]]\nname = \"USER\"\nscope = \"header:X-User\"\ncapacity = 10\n\
                  refill = \"10/min\"\ncost = { \"429\" = 0 }";
    let program = start(&redis, &direct(&upstream.url(), "timeout = \"500ms\"", policy)).await;
    let send = async |user| program.send("GET", "/proxy/work/a", &[("x-user", user)], "").await.status;
    assert_eq!(send("b").await, 200);
    redis.stop();
    assert_eq!(send("a").await, 429);
    redis.start_again();
    program.until("/readyz", |answer| answer.status == 200).await;
    let closed = |answer: &Response| answer.json()["closedUntil"].is_string();
    program.until("/v1/policies/USER?scope=a", closed).await;
    assert_eq!((send("b").await, send("a").await), (200, 429));
    assert_eq!(upstream.requests().len(), 3, "the last was not sent");
}

#[tokio::test]
async fn nothing_is_sent_where_that_was_wished() {
    let mut redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&redis, &direct(&upstream.url(), "when_lost = \"stop\"", "")).await;
    redis.stop();
    let refused = program.get("/proxy/work/a").await;
    assert_eq!((refused.status, refused.header("retry-after").is_empty()), (503, false));
    assert_eq!(program.post("/v1/limits/up/acquire", &json!({})).await.status, 503);
    assert_eq!(upstream.requests().len(), 0);
    redis.start_again();
    program.until("/readyz", |answer| answer.status == 200).await;
    assert_eq!(program.get("/proxy/work/a").await.status, 200);
}
