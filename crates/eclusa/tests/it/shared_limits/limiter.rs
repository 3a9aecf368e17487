//! The rate limiter.

use std::time::Duration;

use eclusa::limits::{Limits, Rate};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use super::{LIMITER, limiter_of, worker, worker_without_refill};
use crate::limits::acquire;
use crate::redis_server::RedisServer;

#[tokio::test]
async fn ac06_two_processes_that_make_fifteen_calls_get_exactly_ten_through() {
    let redis = RedisServer::start();
    let (a, b) = tokio::join!(worker_without_refill(&redis), worker_without_refill(&redis));
    let (calls, wish) = ([&a, &b].into_iter().cycle().take(15), json!({}));
    let mut answers = join_all(calls.map(|worker| acquire(worker, "pncp", &wish))).await;
    let denied: Vec<_> = answers.extract_if(.., |answer| answer.status != 200).collect();
    assert_eq!((answers.len(), denied.len()), (10, 5));
    assert!(denied.iter().all(|answer| answer.status == 429 && answer.json()["reason"] == "rate_limit"));

    // The library is a third process and continues from their state.
    let limiter = limiter_of(&Limits::new(Some(&redis.url())));
    assert!(!limiter.acquire().await);
    // The keys in Redis only display the state.
    redis.command(&["DEL", LIMITER]);
    assert!(!limiter.acquire().await);

    let limiter = limiter_of(&Limits::new(Some(&RedisServer::shared().0.url())));
    let granted = join_all((0..15).map(|_| limiter.acquire())).await;
    assert_eq!(granted.into_iter().filter(|granted| *granted).count(), 10);
}

/// Ten at once, then ten per second: the last of fifteen waits half a second.
#[tokio::test]
async fn ac07_a_caller_over_the_limit_waits_instead_of_failing() {
    let redis = RedisServer::start();
    let (a, b) = tokio::join!(worker(&redis, &[]), worker(&redis, &[]));
    let calls = [&a, &b].into_iter().cycle().take(15);
    let (start, wish) = (Instant::now(), json!({ "wait": "30s" }));
    let answers = join_all(calls.map(|worker| acquire(worker, "pncp", &wish))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    assert!(start.elapsed() > Duration::from_millis(450), "{:?}", start.elapsed());

    for place in [None, Some(redis.url())] {
        let limits = Limits::new(place.as_deref());
        let rate = Rate { calls: 10, per: Duration::from_secs(1), burst: 10 };
        let (start, limiter) = (Instant::now(), limits.rate_limiter("own", rate).unwrap());
        let granted = join_all((0..15).map(|_| limiter.acquire_within(Duration::from_secs(30)))).await;
        assert!(granted.into_iter().all(|granted| granted));
        assert!(start.elapsed() > Duration::from_millis(450), "{:?}", start.elapsed());
        // A wait that cannot succeed is refused at once.
        let rate = Rate { calls: 1, per: Duration::from_hours(1), burst: 1 };
        let (start, limiter) = (Instant::now(), limits.rate_limiter("slow", rate).unwrap());
        assert!(limiter.acquire_within(Duration::ZERO).await);
        assert!(!limiter.acquire_within(Duration::from_mins(30)).await);
        assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn ac10_health_shows_the_calls_of_the_last_minute() {
    let redis = RedisServer::start();
    let (a, b) = tokio::join!(worker_without_refill(&redis), worker_without_refill(&redis));
    for _ in 0..5 {
        assert_eq!(acquire(&a, "pncp", &json!({})).await.status, 200);
    }
    let health = b.get("/v1/health").await.json();
    let limiter = &health["rateLimiters"]["pncp"];
    assert!(limiter["requestsLastMinute"].as_u64().unwrap() >= 5, "{limiter}");
    let tokens = limiter["tokensAvailable"].as_f64().unwrap();
    assert!((5.0..6.0).contains(&tokens), "{limiter}");
    assert_eq!(health["rateLimiters"]["pcp"], json!({ "tokensAvailable": 10.0, "requestsLastMinute": 0 }));
}
