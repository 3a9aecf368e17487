//! The scripts avoid what Redis does differently from what one expects.

use std::path::Path;

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;

use super::{lane, start};
use crate::redis_server::RedisServer;

const TERM: &str = "eclusa:{main}:term";

/// Without the first line a script may write keys of another slot. Moments on the server are wrong if its clock is.
#[test]
fn scripts_begin_with_their_flags_and_expire_keys_after_a_time_not_at_one() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/journal/redis/scripts");
    let scripts: Vec<_> = std::fs::read_dir(scripts).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(scripts.len(), 5, "{scripts:?}");
    for script in scripts {
        let text = std::fs::read_to_string(&script).unwrap();
        assert!(text.starts_with("#!lua flags="), "{script:?}");
        for moment in ["EXPIREAT", "PXAT", "EXAT"] {
            assert!(!text.contains(moment), "{script:?} {moment}");
        }
    }
}

/// Lua writes numbers with more than 14 digits as `1.7632380001235e+15` unless told otherwise.
#[tokio::test]
async fn an_epoch_with_sixteen_digits_is_followed_by_the_next() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = lane(&upstream.url(), "", "");
    let first = start(&redis, &rules).await;
    first.pause("work").await;
    let job = first.enqueue("work", &json!({ "request": {} })).await;
    first.kill().await;
    redis.command(&["HSET", TERM, "epoch", "1763238000123456"]);
    let second = start(&redis, &rules).await;
    assert_eq!(redis.command(&["HGET", TERM, "epoch"]), "1763238000123457");
    second.resume("work").await;
    assert_eq!(second.ended(&job).await["status"], "completed");
}
