//! Long payloads between processes.

use std::collections::BTreeSet;
use std::time::Duration;

use eclusa::fake::{Answer, FakeUpstream};
use futures_util::future::join_all;
use serde_json::json;

use super::lane;
use crate::program::Program;
use crate::redis_server::RedisServer;

const JOBS: usize = 12;
const BYTES: usize = 4 << 20;
/// How long the owner is paused: shorter than its term.
const PAUSE: Duration = Duration::from_millis(500);

async fn start(redis: &RedisServer, upstream: &FakeUpstream) -> Program {
    let rules = lane(&upstream.url(), "max_bytes = \"1GiB\"", "");
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nmax_body = \"6MiB\"";
    let program =
        Program::start(&format!("{server}\n[store]\nurl = \"{}\"\n{rules}", redis.url()), &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program
}

/// The connections that receive messages.
fn subscribers(redis: &RedisServer) -> BTreeSet<String> {
    let clients = redis.command(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
    let id = |line: &str| line.split(' ').next().map(ToOwned::to_owned);
    clients.lines().filter_map(id).filter(|id| id.starts_with("id=")).collect()
}

/// All answers together are longer than what Redis buffers for a subscriber before it cuts it off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_long_answers_at_once_arrive_without_cutting_off_the_process_that_asked() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let owner = start(&redis, &upstream).await;
    let asker = start(&redis, &upstream).await;
    owner.pause("work").await;
    let mut jobs = Vec::new();
    for number in 0..JOBS {
        let body = format!("{number} ") + &"x".repeat(BYTES);
        jobs.push(owner.enqueue("work", &json!({ "request": { "method": "POST", "body": body } })).await);
    }
    let before = subscribers(&redis);
    assert_eq!(before.len(), 2);
    let paths: Vec<_> = jobs.iter().map(|job| format!("/v1/jobs/{job}")).collect();
    let reads = join_all(paths.iter().map(|path| asker.get(path)));
    let paused = async {
        // The owner finds all questions when it continues, and answers them at once.
        owner.signal("STOP");
        tokio::time::sleep(PAUSE).await;
        owner.signal("CONT");
    };
    for answer in tokio::join!(reads, paused).0 {
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() > BYTES);
    }
    assert_eq!(subscribers(&redis), before, "a process that was cut off has connected again");
}

/// Moving them takes longer than Redis may be silent, but something replies all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_redis_refuses_none_of_many_long_jobs_at_once() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let owner = start(&redis, &upstream).await;
    let asker = start(&redis, &upstream).await;
    owner.pause("work").await;
    let body = "x".repeat(900_000);
    let add = async |program: &Program, number: usize| {
        let job = json!({ "id": number.to_string(), "request": { "method": "POST", "body": body } });
        program.post("/v1/lanes/work/jobs", &job).await.status
    };
    let adds = (0..100).map(|number| add(if number % 2 == 0 { &asker } else { &owner }, number));
    assert_eq!(join_all(adds).await, [202; 100]);
}
