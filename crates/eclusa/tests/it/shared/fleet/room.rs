//! Redis has no space, on disk or in memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{Accepted, Fleet, Load, times};
use crate::program::{Answer, PATIENCE, Program};
use crate::redis_server::RedisServer;

/// The target is one second after there is space again, plus a margin for a busy machine.
const AFTER_ROOM: Duration = Duration::from_secs(8);
/// Longer than the term (500 ms) and `store.timeout` (2 s): long enough for everything that reacts to silence.
const OUTAGE: Duration = Duration::from_secs(3);

/// Enqueues a unique job, because a refused one may still be stored.
async fn attempt(program: &Program) -> Answer {
    static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
    let path = format!("/attempt/{}", ATTEMPTS.fetch_add(1, Ordering::Relaxed));
    program.post("/v1/lanes/work/jobs", &json!({ "request": { "path": path } })).await
}

/// Enqueues jobs until one gets this answer.
async fn until(program: &Program, answered: impl Fn(&Answer) -> bool) -> Answer {
    let answer = async {
        loop {
            let answer = attempt(program).await;
            if answered(&answer) {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, answer).await.unwrap()
}

/// A failed BGSAVE makes Redis refuse every write (`stop-writes-on-bgsave-error`), while it still answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_save_costs_nothing_and_starts_no_fight_for_the_term() {
    let redis = RedisServer::start();
    redis.command(&["CONFIG", "SET", "save", "3600 1000000"]);
    let fleet = Fleet::start(redis, 3).await;
    let load = Load::on(&fleet);
    for _ in 0..times(1, 10) {
        load.resumes(Instant::now(), 50).await;
        let before = fleet.takeovers();
        fleet.redis.break_saves();
        let broken = Instant::now();
        // While Redis replies to anything, a caller may also wait.
        let attempts = fleet.programs.values().map(attempt);
        let attempts = attempts.map(|attempt| tokio::time::timeout_at(broken + OUTAGE, attempt));
        for answer in futures_util::future::join_all(attempts).await.into_iter().flatten() {
            assert_eq!((answer.status, answer.header("retry-after").is_empty()), (503, false));
            assert!(answer.text().contains("MISCONF"), "{}", answer.text());
        }
        tokio::time::sleep_until(broken + OUTAGE).await;
        fleet.redis.repair_saves();
        let took = load.resumes(Instant::now(), 10).await;
        println!("intake resumed {took:?} after the server could save again");
        assert!(took < AFTER_ROOM, "{took:?}");
        for program in fleet.programs.values() {
            program.until("/readyz", |answer| answer.status == 200).await;
        }
        // An owner that cannot append counts as silent: another process may have taken over.
        let takeovers = fleet.takeovers() - before;
        assert!(takeovers <= 1, "{takeovers} takeovers");
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}

/// Intake stops, also at a new owner; existing jobs run and end; then intake resumes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_lets_a_fleet_finish_its_work() {
    let mut fleet = Fleet::start(RedisServer::start(), 3).await;
    let mut accepted = Accepted::new();
    for round in 0..times(1, 10) {
        let program = fleet.programs.values().next().unwrap();
        program.pause("work").await;
        for number in 0..100 {
            let path = format!("/before/{round}/{number}");
            let id = program.enqueue("work", &json!({ "request": { "path": path } })).await;
            accepted.insert(path, id);
        }
        fleet.redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
        for program in fleet.programs.values() {
            let answer = until(program, |answer| answer.status != 202).await;
            assert_eq!((answer.status, answer.header("retry-after").is_empty()), (503, false));
            assert!(answer.text().contains("`maxmemory`"), "{}", answer.text());
        }
        let owner = fleet.owner().await;
        fleet.kill(&owner).await;
        let program = fleet.programs.values().next().unwrap();
        program.until("/readyz", |answer| answer.status == 200).await;
        assert_eq!(until(program, |answer| answer.status != 202).await.status, 503);
        program.resume("work").await;
        fleet.idle().await;
        fleet.redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
        fleet.add().await;
        let room = Instant::now();
        for program in fleet.programs.values() {
            until(program, |answer| answer.status == 202).await;
        }
        assert!(room.elapsed() < AFTER_ROOM, "{:?}", room.elapsed());
    }
    fleet.check(&accepted).await;
}
