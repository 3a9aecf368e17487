//! A server that replies, but refuses to write.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::start;
use crate::program::Answer as Response;
use crate::redis_server::RedisServer;

/// `store.term`, during which an owner that cannot write does not count as silent, plus `store.timeout`, plus a margin.
const KNOWN_AFTER: Duration = Duration::from_secs(5);

const RULES: &str =
    "[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\nmax_concurrent = 4\n";

/// For callers it makes no difference whether the process owns or asks: nothing can be decided for the fleet.
#[tokio::test]
async fn every_process_refuses_jobs_and_applies_its_share_of_the_limits() {
    let redis = RedisServer::start();
    let both = [start(&redis, RULES).await, start(&redis, RULES).await];
    let all = |answer: &Response| answer.json()["instances"].as_array().unwrap().len() == 2;
    for program in &both {
        program.until("/v1/health", all).await;
    }
    redis.command(&["REPLICAOF", "127.0.0.1", "9"]);
    let since = Instant::now();
    let [first, second] = &both;
    let job = json!({ "request": {} });
    let (one, other) =
        tokio::join!(first.post("/v1/lanes/work/jobs", &job), second.post("/v1/lanes/work/jobs", &job));
    let took = since.elapsed();
    for refused in [&one, &other] {
        assert_eq!((refused.status, refused.header("retry-after").is_empty()), (503, false), "{took:?}");
        assert!(refused.text().contains("read only replica"), "{}", refused.text());
    }
    assert!(took < KNOWN_AFTER, "{took:?}");
    for program in &both {
        let mut granted = 0;
        while program.post("/v1/limits/up/acquire", &json!({})).await.status == 200 {
            granted += 1;
        }
        assert_eq!(granted, 2, "half of the limit");
    }
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    for program in &both {
        program.until("/readyz", |answer| answer.status == 200).await;
    }
}
