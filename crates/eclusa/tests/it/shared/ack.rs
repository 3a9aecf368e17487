//! What "accepted" means on Redis.

use serde_json::json;

use super::{lane, start};
use crate::program::Program;
use crate::redis_server::RedisServer;

fn with_ack(ack: &str) -> String {
    format!("ack = \"{ack}\"\n{}", lane("http://127.0.0.1:9", "", ""))
}

async fn refused(redis: &RedisServer) -> String {
    let dir = tempfile::tempdir().unwrap();
    let config = format!("[store]\nurl = \"{}\"\n{}", redis.url(), with_ack("fsync"));
    let (code, told) = Program::refused(&dir, &config, &[]).await;
    assert_eq!(code, Some(1), "{told}");
    told
}

#[tokio::test]
async fn fsync_demands_a_server_that_syncs_always_and_says_so() {
    let told = refused(&RedisServer::start()).await;
    assert!(told.contains("keeps no append-only file"), "{told}");
    let told = refused(&RedisServer::with(&["--appendonly", "yes"])).await;
    assert!(told.contains("`appendfsync` is everysec"), "{told}");
    let secretive = ["--appendonly", "yes", "--appendfsync", "always", "--rename-command", "CONFIG", ""];
    let told = refused(&RedisServer::with(&secretive)).await;
    assert!(told.contains("does not tell its `appendfsync`"), "{told}");

    let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let program = start(&redis, &with_ack("fsync")).await;
    program.pause("work").await;
    program.enqueue("work", &json!({ "request": {} })).await;
}

#[tokio::test]
async fn what_no_replica_has_is_not_accepted() {
    let redis = RedisServer::start();
    let program = start(&redis, &with_ack("replicate")).await;
    program.pause("work").await;
    let refused = program.post("/v1/lanes/work/jobs", &json!({ "request": {} })).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("no replica has it"), "{}", refused.text());

    let port = redis.url().rsplit(':').next().unwrap().to_owned();
    let replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {port}")]);
    assert_eq!(redis.command(&["WAIT", "1", "30000"]), "1", "the replica has everything");
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    let there = replica.command(&["HLEN", "eclusa:{main}:jobs"]);
    assert_eq!(there, "2", "{job} and the one that was there already when it was refused");
}
