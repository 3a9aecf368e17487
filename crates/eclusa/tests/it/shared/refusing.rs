//! A server that replies, but refuses to write.

use std::time::Duration;

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;
use tokio::time::Instant;

use super::{lane, start};
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

/// While the server refuses with these words, jobs are refused too. Afterwards a job from before is done, and a new one.
async fn refused_for_a_while(
    redis: &RedisServer,
    words: &str,
    begin: impl AsyncFnOnce(),
    end: impl AsyncFnOnce(),
) {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(redis, &lane(&upstream.url(), "", "")).await;
    program.pause("work").await;
    let before = program.enqueue("work", &json!({ "request": { "path": "/before" } })).await;
    begin().await;
    let refused = program.post("/v1/lanes/work/jobs", &json!({ "request": { "path": "/meanwhile" } })).await;
    assert_eq!((refused.status, refused.header("retry-after").is_empty()), (503, false));
    assert!(refused.text().contains(words), "{}", refused.text());
    end().await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program.resume("work").await;
    let after = program.enqueue("work", &json!({ "request": { "path": "/after" } })).await;
    for job in [&before, &after] {
        assert_eq!(program.ended(job).await["status"], "completed");
    }
}

/// NOREPLICAS
#[tokio::test]
async fn a_server_that_misses_its_replicas_takes_nothing_in_meanwhile() {
    let redis = RedisServer::start();
    let needs = |replicas| redis.command(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    refused_for_a_while(&redis, "NOREPLICAS", async || drop(needs("1")), async || drop(needs("0"))).await;
}

/// LOADING
#[tokio::test]
async fn a_server_that_loads_its_file_takes_nothing_in_meanwhile() {
    // Each key takes 10 ms. It answers only now and then.
    let settings = ["--enable-debug-command", "yes", "--key-load-delay", "10000"];
    let often = ["--loading-process-events-interval-bytes", "1024"];
    let redis = RedisServer::with(&[&settings[..], &often].concat());
    redis.command(&["DEBUG", "POPULATE", "400"]);
    let url = redis.url();
    let reload = move || {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd("DEBUG").arg("RELOAD").query::<()>(&mut connection).unwrap();
    };
    let loads = std::sync::Mutex::new(None);
    let begin = async || {
        *loads.lock().unwrap() = Some(tokio::task::spawn_blocking(reload));
        while !redis.command(&["INFO", "persistence"]).contains("loading:1") {
            tokio::task::yield_now().await;
        }
    };
    let end = async || {
        let loads = loads.lock().unwrap().take().unwrap();
        loads.await.unwrap();
    };
    refused_for_a_while(&redis, "loading the dataset", begin, end).await;
}
