//! The owner is killed while very many jobs wait.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Accepted, Fleet, Setup, times};
use crate::program::{PATIENCE, Program};
use crate::redis_server::RedisServer;

/// The target is one second, plus a margin for a busy machine and an unoptimised build.
const AFTER_A_KILL: Duration = Duration::from_secs(10);
/// Jobs per batch.
const BATCH: usize = 1_000;

/// Enqueues `count` jobs.
async fn fill(program: &Program, count: usize) -> Accepted {
    let mut accepted = Accepted::new();
    for first in (0..count).step_by(BATCH) {
        let paths: Vec<_> = (first..first + BATCH).map(|number| format!("/work/{number}")).collect();
        let jobs: Vec<Value> = paths.iter().map(|path| json!({ "request": { "path": path } })).collect();
        let answer = program.post("/v1/lanes/work/jobs/batch", &Value::Array(jobs)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        for (path, job) in paths.into_iter().zip(answer.json().as_array().unwrap()) {
            accepted.insert(path, job["jobId"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned());
        }
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_resume_soon_and_all_jobs_run_once() {
    // An unoptimised build takes much longer to read and build this many jobs.
    let mut fleet = Fleet::with(RedisServer::start(), 3, Setup { term: "300ms", ..Setup::default() }).await;
    let owner = fleet.owner().await;
    fleet.programs[&owner].pause("work").await;
    let mut accepted = fill(&fleet.programs[&owner], times(5_000, 100_000)).await;
    fleet.kill(&owner).await;
    let killed = Instant::now();
    let program = fleet.programs.values().next().unwrap();
    let one_more = async {
        for attempt in 0.. {
            // A refused job may still be stored.
            let path = format!("/work/attempt/{attempt}");
            let answer = program.post("/v1/lanes/work/jobs", &json!({ "request": { "path": path } })).await;
            if answer.status == 202 {
                return (path, answer.json()["jobId"].as_str().unwrap().to_owned());
            }
        }
        unreachable!("it is tried for ever")
    };
    let one_more = tokio::time::timeout(PATIENCE, one_more).await;
    let one_more = one_more.unwrap_or_else(|_| panic!("nobody decides\n{}", fleet.last_words()));
    let took = killed.elapsed();
    println!("decisions resumed {took:?} after the kill with {} jobs waiting", accepted.len());
    assert!(took < AFTER_A_KILL, "{took:?}");
    accepted.extend([one_more]);
    program.resume("work").await;
    fleet.check(&accepted).await;
}
