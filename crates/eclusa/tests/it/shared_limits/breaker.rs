//! The breaker.

use std::sync::Arc;

use eclusa::limits::Limits;
use futures_util::future::join_all;
use serde_json::json;

use super::{DEGRADED_UNTIL, FAILURES, breaker_of, lives_for, worker};
use crate::limits::{breaker, report};
use crate::redis_server::RedisServer;

/// All questions to a breaker have the same answers in this process and on Redis.
#[tokio::test]
async fn ac01_a_shared_breaker_has_the_interface_of_a_local_one() {
    let redis = RedisServer::start();
    for place in [None, Some(redis.url())] {
        let breaker = breaker_of(&Limits::new(place.as_deref()));
        let seen = |key: &str| place.as_ref().map(|_| redis.command(&["GET", key]));
        assert!(!breaker.is_degraded().await && breaker.try_recover().await);
        for _ in 0..50 {
            assert!(!breaker.is_degraded().await);
            breaker.record_failure().await;
        }
        assert!(breaker.is_degraded().await && !breaker.try_recover().await);
        assert_eq!(seen(FAILURES), place.as_ref().map(|_| "50".to_owned()));
        assert_ne!(seen(DEGRADED_UNTIL).as_deref(), Some(""));
        breaker.record_success().await;
        assert!(!breaker.is_degraded().await && breaker.try_recover().await);
        assert_eq!(seen(FAILURES), place.as_ref().map(|_| "0".to_owned()));
    }
}

#[tokio::test]
async fn ac02_fifty_failures_of_one_process_degrade_the_portal_in_another() {
    let redis = RedisServer::start();
    let (a, b) = tokio::join!(worker(&redis, &[]), worker(&redis, &[]));
    join_all((0..49).map(|_| report(&a, "pncp", "failure"))).await;
    assert_eq!(breaker(&b, "pncp").await["degraded"], false);
    let state = report(&a, "pncp", "failure").await;
    let known = breaker(&b, "pncp").await;
    assert_eq!((&known["degraded"], &known["degradedUntil"]), (&json!(true), &state["degradedUntil"]));
    assert!(breaker_of(&Limits::new(Some(&redis.url()))).is_degraded().await);
    assert_eq!(breaker(&b, "pcp").await["degraded"], false);
}

#[tokio::test]
async fn ac03_ten_failures_at_once_are_ten() {
    let redis = RedisServer::start();
    let library = Arc::new(breaker_of(&Limits::new(Some(&redis.url()))));
    let tasks = (0..10).map(|_| {
        let library = library.clone();
        tokio::spawn(async move { library.record_failure().await })
    });
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
    assert_eq!(redis.command(&["GET", FAILURES]), "10");

    let (a, b) = tokio::join!(worker(&redis, &[]), worker(&redis, &[]));
    join_all([&a, &b].repeat(5).into_iter().map(|worker| report(worker, "pcp", "failure"))).await;
    assert_eq!(redis.command(&["GET", "circuit_breaker:pcp:failures"]), "10");
}

#[tokio::test]
async fn ac04_a_success_resets_the_state_in_redis() {
    let redis = RedisServer::start();
    let (library, worker) = (breaker_of(&Limits::new(Some(&redis.url()))), worker(&redis, &[]).await);
    for by_library in [true, false] {
        join_all((0..50).map(|_| library.record_failure())).await;
        assert!(library.is_degraded().await);
        let state = breaker(&worker, "pncp").await;
        assert_eq!(state["degradedUntil"], redis.command(&["GET", DEGRADED_UNTIL]));
        assert_eq!(redis.command(&["GET", FAILURES]), "50");
        if by_library {
            library.record_success().await;
        } else {
            report(&worker, "pncp", "success").await;
        }
        assert_eq!(redis.command(&["GET", FAILURES]), "0");
        assert_eq!(redis.command(&["EXISTS", DEGRADED_UNTIL]), "0");
        assert!(!library.is_degraded().await);
    }
}

#[tokio::test]
async fn a_process_that_starts_or_takes_over_resets_nothing() {
    let redis = RedisServer::start();
    let rules = [("PCP_CIRCUIT_BREAKER_THRESHOLD", "2")];
    let first = worker(&redis, &rules).await;
    report(&first, "pcp", "failure").await;
    let second = worker(&redis, &rules).await;
    assert_eq!(breaker(&second, "pcp").await["failures"], 1);
    let open = report(&second, "pcp", "failure").await;
    assert_eq!(open["degraded"], true);
    let third = worker(&redis, &rules).await;
    first.kill().await;
    for program in [&second, &third] {
        program.until("/readyz", |answer| answer.status == 200).await;
        assert_eq!(breaker(program, "pcp").await["degradedUntil"], open["degradedUntil"]);
    }
}

/// One second must really pass.
#[tokio::test]
async fn ac05_it_recovers_when_its_time_is_over_without_being_asked_to() {
    let redis = RedisServer::start();
    let short = [("PCP_CIRCUIT_BREAKER_THRESHOLD", "2"), ("PCP_CIRCUIT_BREAKER_COOLDOWN", "1")];
    let worker = worker(&redis, &short).await;
    report(&worker, "pcp", "failure").await;
    assert_eq!(report(&worker, "pcp", "failure").await["degraded"], true);
    let left = lives_for(&redis, "circuit_breaker:pcp:degraded_until");
    assert!((-2..=1000).contains(&left), "{left}");
    worker.until("/v1/breakers/pcp", |answer| answer.json()["degraded"] == false).await;
    assert_eq!(redis.command(&["EXISTS", "circuit_breaker:pcp:degraded_until"]), "0");
}

/// The keys display the breaker's state; foreign writes to them change nothing.
#[tokio::test]
async fn foreign_writes_to_redis_change_nothing() {
    let redis = RedisServer::start();
    let worker = worker(&redis, &[]).await;
    assert_eq!(report(&worker, "pncp", "failure").await["failures"], 1);
    redis.command(&["SET", FAILURES, "49"]);
    redis.command(&["SET", DEGRADED_UNTIL, "2099-01-01T00:00:00.000Z"]);
    assert_eq!(breaker(&worker, "pncp").await["degraded"], false);
    assert_eq!(report(&worker, "pncp", "failure").await["failures"], 2);
    assert_eq!(redis.command(&["GET", FAILURES]), "2", "it shows the truth again");
    assert_eq!(redis.command(&["EXISTS", DEGRADED_UNTIL]), "0");
}
