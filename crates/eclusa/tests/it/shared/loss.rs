//! What the fleet reports when Redis lost data.

use serde_json::json;

use super::{lane, start};
use crate::program::PATIENCE;
use crate::redis_server::RedisServer;

const FAILURES: &str = "eclusa:{main}:circuit_breaker:up:failures";
const UNTIL: &str = "eclusa:{main}:circuit_breaker:up:degraded_until";
const LIMITER: &str = "eclusa:{main}:rate_limiter:up";

/// Waits until a key exists.
async fn appears(redis: &RedisServer, key: &str) {
    let there = async {
        while redis.command(&["EXISTS", key]) != "1" {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.unwrap_or_else(|_| panic!("{key} is missing"));
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
            appears(&redis, key).await;
        }
        assert_eq!(shown(&redis), before);
    }
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
