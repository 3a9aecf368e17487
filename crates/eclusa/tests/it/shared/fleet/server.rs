//! Redis is killed, restarts with older data, hangs or is slow, while the owner is alive.

use std::time::Duration;

use tokio::time::Instant;

use super::{Fleet, Load, Setup, times};
use crate::redis_server::RedisServer;

/// The target is `store.term` (500 ms here) plus two seconds, plus a margin for a busy machine.
const AFTER_LOSS: Duration = Duration::from_secs(8);

/// Every acknowledged job is done, whatever happens to Redis.
async fn survives(redis: RedisServer, trouble: impl AsyncFn(&mut RedisServer, &Load)) {
    let mut fleet = Fleet::start(redis, 3).await;
    let load = Load::on(&fleet);
    for _ in 0..times(2, 20) {
        load.resumes(Instant::now(), 50).await;
        trouble(&mut fleet.redis, &load).await;
        let over = Instant::now();
        let took = load.resumes(over, 3).await;
        println!("intake resumed after {took:?}");
        assert!(took < AFTER_LOSS, "{took:?}");
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_killed_and_starts_with_its_file() {
    let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    survives(redis, async |redis, _| {
        redis.kill();
        redis.start_again();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_starts_again_empty() {
    survives(RedisServer::start(), async |redis, _| {
        redis.stop();
        redis.start_again();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_emptied() {
    survives(RedisServer::start(), async |redis, _| drop(redis.command(&["FLUSHALL"]))).await;
}

/// With the default settings, and nothing else on the machine: intake resumes within `store.term` plus two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intake_resumes_two_seconds_and_a_term_after_redis_was_emptied() {
    let setup = Setup { term: "2s", ..Setup::default() };
    let fleet = Fleet::with(RedisServer::start(), 3, setup).await;
    let load = Load::on(&fleet);
    for _ in 0..times(1, 10) {
        load.resumes(Instant::now(), 50).await;
        fleet.redis.command(&["FLUSHALL"]);
        let took = load.resumes(Instant::now(), 3).await;
        println!("intake resumed {took:?} after Redis was emptied");
        assert!(took < Duration::from_secs(2 + 2), "{took:?}\n{}", fleet.last_words());
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}

/// Redis returns to an older state, like a promoted replica that lacks the last appends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_returns_to_an_older_state() {
    survives(RedisServer::start(), async |redis, load| {
        redis.command(&["SAVE"]);
        load.resumes(Instant::now(), 50).await;
        redis.stop();
        redis.start_again();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_hangs_longer_than_the_timeout() {
    survives(RedisServer::start(), async |redis, _| {
        redis.pause();
        tokio::time::sleep(Duration::from_secs(3)).await;
        redis.resume();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_slow() {
    survives(RedisServer::start(), async |redis, load| {
        let before = load.refusals();
        for _ in 0..20 {
            redis.command(&["CLIENT", "PAUSE", "80"]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(load.refusals(), before, "a slow server is no outage");
    })
    .await;
}
