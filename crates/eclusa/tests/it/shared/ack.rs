//! What "accepted" means on Redis.

use serde_json::json;

use super::{begin, lane, start};
use crate::program::{Answer, Program};
use crate::redis_server::RedisServer;

const JOURNAL: &str = "eclusa:{main}:journal";

fn with_ack(ack: &str) -> String {
    format!("ack = \"{ack}\"\n{}", lane("http://127.0.0.1:9", "", ""))
}

async fn refused(redis: &RedisServer) -> String {
    let dir = tempfile::tempdir().unwrap();
    let config = format!("[store]\nurl = \"{}\"\n{}", redis.url(), with_ack("fsync"));
    let (code, output) = Program::refused(&dir, &config, &[]).await;
    assert_eq!(code, Some(1), "{output}");
    output
}

#[tokio::test]
async fn fsync_demands_a_server_that_syncs_always_and_says_so() {
    let output = refused(&RedisServer::start()).await;
    assert!(output.contains("keeps no append-only file"), "{output}");
    let output = refused(&RedisServer::with(&["--appendonly", "yes"])).await;
    assert!(output.contains("`appendfsync` is everysec"), "{output}");
    let secretive = ["--appendonly", "yes", "--appendfsync", "always", "--rename-command", "CONFIG", ""];
    let output = refused(&RedisServer::with(&secretive)).await;
    assert!(output.contains("does not report its `appendfsync`"), "{output}");

    let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let program = start(&redis, &with_ack("fsync")).await;
    program.pause("work").await;
    program.enqueue("work", &json!({ "request": {} })).await;
}

#[tokio::test]
async fn a_job_that_no_replica_has_is_not_accepted() {
    let redis = RedisServer::start();
    let program = begin(&redis, "all", &with_ack("replicate")).await;
    let lacking = |answer: &Answer| answer.status == 503 && answer.text().contains("no replica has it");
    program.until("/readyz", lacking).await;
    let refused = program.post("/v1/lanes/work/jobs", &json!({ "request": {} })).await;
    assert!(lacking(&refused), "{}", refused.text());

    let port = redis.url().rsplit(':').next().unwrap().to_owned();
    let replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {port}")]);
    program.until("/readyz", |answer| answer.status == 200).await;
    program.pause("work").await;
    program.enqueue("work", &json!({ "request": {} })).await;
    let last = |server: &RedisServer| server.command(&["XREVRANGE", JOURNAL, "+", "-", "COUNT", "1"]);
    assert_eq!(last(&replica), last(&redis));

    drop(replica);
    let refused = program.post("/v1/lanes/work/jobs", &json!({ "request": {} })).await;
    assert!(lacking(&refused), "{}", refused.text());
}
