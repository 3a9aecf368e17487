//! A gateway and a program that uses the library, each with its own gate for the same API.

use std::sync::mpsc;

use eclusa::limits::Limits;
use tokio::sync::oneshot;

use super::limiter_of;
use crate::limits::{breaker, report};
use crate::program::Program;
use crate::redis_server::RedisServer;

/// A gateway with a breaker for the API, and no rate.
async fn gateway(redis: &RedisServer) -> Program {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\nprefix = \"\"\n\
         [upstreams.pncp]\nurl = \"http://127.0.0.1:9\"\nbreaker = {{ failures = 2, open_for = \"1h\" }}\n",
        redis.url()
    );
    Program::start(&config, &[]).await
}

/// Nine of ten calls are left, and both gates hold.
async fn both_hold(gateway: &Program, limits: &Limits) {
    let limiter = limiter_of(limits);
    for _ in 0..9 {
        assert!(limiter.acquire().await);
    }
    assert!(!limiter.acquire().await, "the rate of the library");
    for _ in 0..2 {
        report(gateway, "pncp", "failure").await;
    }
    assert_eq!(breaker(gateway, "pncp").await["degraded"], true, "the breaker of the gateway");
}

#[tokio::test]
async fn a_gateway_leaves_the_limiter_of_the_library_alone() {
    let redis = RedisServer::start();
    let limits = Limits::new(Some(&redis.url()));
    assert!(limiter_of(&limits).acquire().await);
    let gateway = gateway(&redis).await;
    both_hold(&gateway, &limits).await;
}

#[tokio::test]
async fn a_program_that_limits_itself_leaves_the_breaker_of_the_gateway_alone() {
    let redis = RedisServer::start();
    let gateway = gateway(&redis).await;
    let limits = Limits::new(Some(&redis.url()));
    assert!(limiter_of(&limits).acquire().await);
    both_hold(&gateway, &limits).await;
}

/// The owner runs on threads of its own.
#[tokio::test]
async fn a_program_that_blocks_its_runtime_still_decides_for_others() {
    let redis = RedisServer::start();
    let url = redis.url();
    let ((owns, owning), (end, ended)) = (oneshot::channel(), mpsc::channel::<()>());
    let library = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let limits = Limits::new(Some(&url));
            assert!(limiter_of(&limits).acquire().await);
            owns.send(()).unwrap();
            // Blocks the thread, and everything else on this runtime.
            ended.recv().unwrap_err();
        });
    });
    owning.await.unwrap();
    let epoch = || redis.command(&["HGET", "{main}:term", "epoch"]);
    let owned = epoch();
    let gateway = gateway(&redis).await;
    gateway.until("/readyz", |answer| answer.status == 200).await;
    for degraded in [false, true] {
        assert_eq!(report(&gateway, "pncp", "failure").await["degraded"], degraded);
    }
    assert_eq!((epoch(), owned.is_empty()), (owned, false), "another process took over");
    drop(end);
    library.join().unwrap();
}
