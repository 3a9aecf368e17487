//! What the fleet reports when Redis lost data.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;

use super::{lane, start};
use crate::program::{PATIENCE, Program};
use crate::redis_server::RedisServer;

const FAILURES: &str = "eclusa:{main}:circuit_breaker:up:failures";
const UNTIL: &str = "eclusa:{main}:circuit_breaker:up:degraded_until";
const TERM: &str = "eclusa:{main}:term";
const JOURNAL: &str = "eclusa:{main}:journal";
const LIMITER: &str = "eclusa:{main}:rate_limiter:up";

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, so).await.unwrap_or_else(|_| panic!("not so: {what}"));
}

/// Nothing happens at the upstream after the loss: the keys are restored automatically.
#[tokio::test]
async fn the_keys_for_other_programs_are_written_again() {
    let mut redis = RedisServer::start();
    let gates = "rate = \"1/h\"\nburst = 5\nbreaker = { failures = 1, open_for = \"10m\" }";
    let program = start(&redis, &lane("http://127.0.0.1:9", "", gates)).await;
    assert_eq!(program.post("/v1/limits/up/acquire", &json!({})).await.status, 200);
    program.post("/v1/breakers/up/failure", &json!({})).await;
    let shown = |redis: &RedisServer| {
        [
            redis.command(&["GET", FAILURES]),
            redis.command(&["GET", UNTIL]),
            redis.command(&["HGETALL", LIMITER]),
        ]
    };
    let before = shown(&redis);
    for emptied in [true, false] {
        if emptied {
            redis.command(&["FLUSHALL"]);
        } else {
            redis.stop();
            redis.start_again();
        }
        for key in [FAILURES, UNTIL, LIMITER] {
            until(&format!("{key} exists"), || redis.command(&["EXISTS", key]) == "1").await;
        }
        assert_eq!(shown(&redis), before);
    }
}

/// The older state shows a failure that was forgiven since, and nothing more happens at the upstream.
#[tokio::test]
async fn keys_for_other_programs_that_are_older_than_the_journal_are_corrected() {
    let mut redis = RedisServer::start();
    let program = start(&redis, &lane("http://127.0.0.1:9", "", "breaker = { failures = 3 }")).await;
    program.post("/v1/breakers/up/failure", &json!({})).await;
    assert_eq!(redis.command(&["GET", FAILURES]), "1");
    redis.command(&["SAVE"]);
    program.post("/v1/breakers/up/success", &json!({})).await;
    assert_eq!(redis.command(&["GET", FAILURES]), "0");
    redis.stop();
    redis.start_again();
    until("the key is corrected", || redis.command(&["GET", FAILURES]).is_empty()).await;
}

/// Jobs that are forgotten soon. Their bodies do not compress, so each fills a chunk.
async fn churn(program: &Program, jobs: u64) {
    let words = (0_u64..50_000).map(|n| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let body = words.collect::<Vec<_>>().concat();
    for _ in 0..jobs {
        program.enqueue("work", &json!({ "request": { "method": "POST", "body": body } })).await;
    }
}

/// The server returns to an older state without a restart, as after two fail-overs. The owner writes a snapshot, whose
/// chunks have numbers that it has used before.
#[tokio::test]
async fn cleaning_keeps_a_snapshot_whose_numbers_are_used_again() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = lane(&upstream.url(), "keep = { max = 0 }\nttl = \"2h\"", "");
    let program = start(&redis, &rules).await;
    for _ in 0..10 {
        program.enqueue("work", &json!({ "request": {}, "delay": "1h" })).await;
    }
    churn(&program, 30).await;
    redis.command(&["COPY", TERM, "older term"]);
    redis.command(&["COPY", JOURNAL, "older journal"]);
    // More than the owner keeps to append again, less than makes cleaning remove the chunks after the older state.
    churn(&program, 14).await;
    redis.command(&["COPY", "older term", TERM, "REPLACE"]);
    redis.command(&["COPY", "older journal", JOURNAL, "REPLACE"]);
    churn(&program, 40).await;
    program.kill().await;
    let next = start(&redis, &rules).await;
    let waiting = next.get("/v1/jobs?status=pending").await.json();
    assert_eq!(waiting["jobs"].as_array().unwrap().len(), 10);
}

/// The journal of the older state begins with chunks that cleaning has removed since.
#[tokio::test]
async fn chunks_that_return_with_an_older_state_are_removed_again() {
    let mut redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&redis, &lane(&upstream.url(), "keep = { max = 0 }", "")).await;
    let churn = async |jobs: u64| churn(&program, jobs).await;
    let oldest = |redis: &RedisServer| {
        let first = redis.command(&["XRANGE", JOURNAL, "-", "+", "COUNT", "1"]);
        let mut words = first.split(|c: char| !c.is_ascii_digit() && c != '-');
        words.find_map(|word| word.split_once('-')?.1.parse::<u64>().ok()).expect("an id")
    };
    churn(30).await;
    redis.command(&["SAVE"]);
    let saved = oldest(&redis);
    churn(4).await;
    let kept = oldest(&redis);
    assert!(kept > saved, "nothing was removed");
    redis.stop();
    redis.start_again();
    until("they are gone", || oldest(&redis) >= kept).await;
}

/// The owner is paused while Redis is emptied: the fleet continues without the data that only the owner had.
#[tokio::test]
async fn an_owner_whose_acknowledged_data_is_gone_says_so() {
    let redis = RedisServer::start();
    let rules = lane("http://127.0.0.1:9", "", "");
    // The first process is the owner.
    let (owner, other) = (start(&redis, &rules).await, start(&redis, &rules).await);
    owner.pause("work").await;
    let job = owner.enqueue("work", &json!({ "request": {} })).await;
    assert_eq!(owner.metric("eclusa_store_losses_total", &[]).await, 0);
    assert_eq!(owner.get("/v1/health").await.json()["store"]["losses"], 0);
    owner.signal("STOP");
    redis.command(&["FLUSHALL"]);
    other.logged("This process is the owner now", &[]).await;
    owner.signal("CONT");
    owner
        .logged(
            "Redis lost what this process had acknowledged; its waiting jobs are enqueued again by their ids",
            &[],
        )
        .await;
    assert_eq!(owner.metric("eclusa_store_losses_total", &[]).await, 1);
    assert_eq!(owner.get("/v1/health").await.json()["store"]["losses"], 1);
    other.until(&format!("/v1/jobs/{job}"), |answer| answer.status == 200).await;
    assert_eq!(other.metric("eclusa_store_losses_total", &[]).await, 0, "it lost nothing");
    // The process that noticed does not evaluate alerts, but reports to the one that does.
    other.until("/v1/alerts", |answer| answer.text().contains("store_lost_data")).await;
}
