//! Redis lost data: what the fleet shows of it.

use serde_json::json;

use super::{lane, start};
use crate::program::PATIENCE;
use crate::redis_server::RedisServer;

const FAILURES: &str = "eclusa:{main}:circuit_breaker:up:failures";
const UNTIL: &str = "eclusa:{main}:circuit_breaker:up:degraded_until";
const LIMITER: &str = "eclusa:{main}:rate_limiter:up";

/// Waits until a key is there.
async fn appears(redis: &RedisServer, key: &str) {
    let there = async {
        while redis.command(&["EXISTS", key]) != "1" {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.unwrap_or_else(|_| panic!("{key} is missing"));
}

/// Nothing happens to the upstream after the loss: the keys come back by themselves.
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
