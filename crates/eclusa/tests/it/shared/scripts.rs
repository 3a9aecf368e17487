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

/// If the journal never had the term under which a process wrote its state, that state replaces what the listed terms wrote.
#[test]
fn a_take_lists_earlier_terms_only_if_they_include_that_of_its_state() {
    let script = include_str!("../../../src/store/journal/redis/scripts/take.lua");
    let redis = RedisServer::start();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let mut listener = connection.as_pubsub();
    listener.subscribe("questions").unwrap();
    for (own, listed) in
        [("", "a1:0 b2:7 c3:9"), ("a1", "a1:0 b2:7 c3:9"), ("b2", "a1:0 b2:7 c3:9"), ("b", "c3:9")]
    {
        let seen = ["term", "b2", "beat", "3", "epoch", "5", "number", "9", "run", "r", "released", "1"];
        redis.command(&[&["HSET", TERM, "from", "a1:0 b2:7"], &seen[..]].concat());
        let args = ["b2", "3", "r", "c3", "5", "released", "questions", "", "p", "fleet", own];
        let reply = redis.command(&[&["EVAL", script, "2", TERM, "claims"], &args[..]].concat());
        assert!(reply.contains("taken"), "{reply}");
        assert_eq!(redis.command(&["HGET", TERM, "from"]), listed, "{own:?}");
    }
}
