//! The ACL of the documentation permits everything that a fleet does.

use std::path::Path;
use std::time::Duration;

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::json;

use crate::cli::run_with;
use crate::program::{Answer as Response, PATIENCE, Program};
use crate::redis_server::RedisServer;

/// The command of the documentation that creates the user, in words.
fn documented() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/more-than-one-process.md");
    let page = std::fs::read_to_string(page).unwrap();
    let command = page.split("```\nACL SETUSER ").nth(1).unwrap().split("```").next().unwrap();
    ["ACL", "SETUSER"].into_iter().chain(command.split_whitespace()).map(str::to_owned).collect()
}

/// Everything that was denied to somebody.
fn denied(redis: &RedisServer) -> String {
    redis.command(&["ACL", "LOG"])
}

/// Waits until a process has taken over again, and has restored what was lost.
async fn settled(redis: &RedisServer) {
    let field = |name| redis.command(&["HGET", "eclusa:{main}:term", name]);
    while field("term").is_empty() || !field("repairing").is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_user_with_the_documented_permissions_can_do_everything() {
    // `ack = "fsync"` asks for a setting.
    let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let command = documented();
    let command: Vec<_> = command.iter().map(String::as_str).collect();
    redis.command(&command);
    let nothing = denied(&redis);
    let url = redis.url().replace("redis://", "redis://eclusa:secret@");
    // The first failure and the success after it write and delete the public keys.
    let behaviour = Behaviour::script([Answer::status(500)]).then(Answer::status(200));
    let upstream = FakeUpstream::start(behaviour).await.unwrap();
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{url}\"\nterm = \"500ms\"\nack = \"fsync\"\n\
         [lanes.work]\nchain = [\"up\"]\nretry = {{ base = \"10ms\" }}\n\
         [upstreams.up]\nurl = \"{}\"\nrate = \"100/s\"\nbreaker = {{ failures = 3 }}\n",
        upstream.url()
    );
    let ready = |answer: &Response| answer.status == 200;
    let works = async |program: &Program| {
        program.until("/readyz", ready).await;
        let job = program.enqueue("work", &json!({ "request": {} })).await;
        assert_eq!(program.ended(&job).await["status"], "completed");
    };
    let (owner, other) = (Program::start(&config, &[]).await, Program::start(&config, &[]).await);
    works(&owner).await;
    works(&other).await;
    redis.command(&["FLUSHALL"]);
    tokio::time::timeout(PATIENCE, settled(&redis)).await.unwrap();
    works(&owner).await;
    works(&other).await;
    // The successor is named and takes over.
    owner.stop().await;
    works(&other).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("eclusa.toml");
    std::fs::write(&file, config).unwrap();
    run_with(&["doctor", file.to_str().unwrap()], &[], "").await.ok();
    assert_eq!(denied(&redis), nothing, "something was denied");
}
