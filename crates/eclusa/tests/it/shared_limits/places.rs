//! Where the state is kept, and for how long.

use std::time::Duration;

use eclusa::limits::{Limits, Rate};
use serde_json::{Value, json};

use super::{DEGRADED_UNTIL, EXAMPLE, FAILURES, LIMITER, breaker_of, lives_for, worker};
use crate::limits::{acquire, breaker, report};
use crate::program::{PATIENCE, Program};
use crate::redis_server::RedisServer;

const FIVE_MINUTES: i64 = 300_000;

#[tokio::test]
async fn ac08_without_redis_limits_are_the_process_s_own() {
    let mut redis = RedisServer::start();
    for (program, kind) in
        [(Program::start_example(EXAMPLE, &[]).await, "embedded"), (worker(&redis, &[]).await, "redis")]
    {
        assert_eq!(program.get("/v1/health").await.json()["store"]["kind"], kind);
        assert_eq!(report(&program, "pcp", "failure").await["failures"], 1);
        program.stop().await;
    }

    let limits = Limits::new(Some(&redis.url()));
    let rate = Rate { calls: 10, per: Duration::from_hours(1), burst: 10 };
    let (breaker, limiter) = (breaker_of(&limits), limits.rate_limiter("own", rate).unwrap());
    assert!(!breaker.is_degraded().await && limiter.acquire().await);
    redis.stop();
    for _ in 0..50 {
        breaker.record_failure().await;
    }
    assert!(breaker.is_degraded().await);
    let mut granted = 0;
    while limiter.acquire().await {
        granted += 1;
    }
    assert!((4..=9).contains(&granted), "its part of what was left: {granted}");

    // It restarts empty and gets the whole state again, including what was learned meanwhile, automatically.
    redis.start_again();
    let healed = async {
        while redis.command(&["GET", FAILURES]) != "50" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, healed).await.unwrap();
    assert!(breaker.is_degraded().await);
    assert_eq!(redis.command(&["EXISTS", DEGRADED_UNTIL]), "1");
}

#[tokio::test]
async fn ac09_health_shows_the_shared_state() {
    let redis = RedisServer::start();
    let (a, b) = tokio::join!(worker(&redis, &[]), worker(&redis, &[]));
    for _ in 0..30 {
        report(&a, "pncp", "failure").await;
    }
    assert_eq!(redis.command(&["GET", FAILURES]), "30");
    for worker in [&a, &b] {
        let health = worker.get("/v1/health").await.json();
        let expected = json!({ "failures": 30, "degraded": false, "degradedUntil": null });
        assert_eq!((&health["status"], &health["circuitBreakers"]["pncp"]), (&json!("ok"), &expected));
    }
}

/// What a worker does and sees, independent of where the state is kept.
async fn unchanged_caller(program: &Program) -> Vec<Value> {
    let mut seen = Vec::new();
    for verb in ["failure", "success", "failure", "failure", "try-recover", "success", "reset"] {
        let mut state = report(program, "pncp", verb).await;
        assert_eq!(breaker(program, "pncp").await, state);
        state["degradedUntil"] = state["degradedUntil"].is_string().into();
        seen.push(state);
    }
    // The remaining limit depends on the time of the request.
    let answer = acquire(program, "pncp", &json!({ "wait": "5s" })).await;
    let leave = answer.json();
    assert!(leave["remaining"].is_u64());
    seen.extend([answer.status.into(), leave["granted"].clone()]);
    let lease = leave["leaseId"].as_str().unwrap();
    for verb in ["extend", "settle", "settle"] {
        let path = format!("/v1/limits/leases/{lease}/{verb}");
        let body = if verb == "settle" { json!({ "status": 200 }) } else { Value::Null };
        seen.push(program.post(&path, &body).await.json());
    }
    seen
}

#[tokio::test]
async fn ac11_callers_need_not_know_where_the_state_is() {
    let redis = RedisServer::start();
    let threshold = ("PNCP_CIRCUIT_BREAKER_THRESHOLD", "2");
    let local = Program::start_example(EXAMPLE, &[threshold]).await;
    let shared = worker(&redis, &[threshold]).await;
    let seen = unchanged_caller(&shared).await;
    assert_eq!(seen, unchanged_caller(&local).await);
    assert_eq!((&seen[3]["state"], &seen[4]["state"]), (&json!("open"), &json!("open")));
    assert_eq!((&seen[7], &seen[8], &seen[10]), (&json!(200), &json!(true), &json!({ "settled": true })));
}

#[tokio::test]
async fn a_library_shares_limits_with_a_gateway_of_the_same_prefix() {
    let redis = RedisServer::start();
    let rules = "[upstreams.pncp]\nurl = \"http://127.0.0.1:9\"\nbreaker = { failures = 50 }";
    let gateway = Program::start(
        &format!("[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\n{rules}", redis.url()),
        &[],
    )
    .await;
    breaker_of(&Limits::new(Some(&redis.url())).with_prefix("eclusa:")).record_failure().await;
    assert_eq!(breaker(&gateway, "pncp").await["failures"], 1);
    breaker_of(&Limits::new(Some(&redis.url()))).record_failure().await;
    assert_eq!(breaker(&gateway, "pncp").await["failures"], 1);
}

#[tokio::test]
async fn ac12_keys_live_five_minutes_unless_they_are_needed_longer() {
    let redis = RedisServer::start();
    let program = worker(&redis, &[("PNCP_CIRCUIT_BREAKER_THRESHOLD", "2")]).await;
    assert_eq!(acquire(&program, "pncp", &json!({})).await.status, 200);
    report(&program, "pncp", "failure").await;
    report(&program, "pncp", "failure").await;
    for (key, most) in [(FAILURES, FIVE_MINUTES), (LIMITER, FIVE_MINUTES), (DEGRADED_UNTIL, 120_000)] {
        let left = lives_for(&redis, key);
        assert!((1..=most).contains(&left), "{key} {left}");
    }
    // Nothing is forgotten with them.
    for key in [FAILURES, LIMITER, DEGRADED_UNTIL] {
        redis.command(&["PEXPIRE", key, "0"]);
    }
    let known = breaker(&program, "pncp").await;
    assert_eq!((&known["failures"], &known["degraded"]), (&json!(2), &json!(true)));

    let ten_minutes = [("PCP_CIRCUIT_BREAKER_THRESHOLD", "1"), ("PCP_CIRCUIT_BREAKER_COOLDOWN", "600")];
    let program = worker(&redis, &ten_minutes).await;
    report(&program, "pcp", "failure").await;
    for what in ["failures", "degraded_until"] {
        let left = lives_for(&redis, &format!("circuit_breaker:pcp:{what}"));
        assert!((FIVE_MINUTES + 1..=600_000).contains(&left), "{what} {left}");
    }
}

/// The owner has the whole state and stores it again.
#[tokio::test]
async fn a_server_that_is_emptied_forgets_nothing() {
    let redis = RedisServer::start();
    let library = breaker_of(&Limits::new(Some(&redis.url())));
    let program = worker(&redis, &[]).await;
    assert_eq!(report(&program, "pncp", "failure").await["failures"], 1);
    redis.command(&["FLUSHALL"]);
    assert_eq!(program.get("/v1/health").await.json()["circuitBreakers"]["pncp"]["failures"], 1);
    redis.command(&["FLUSHALL"]);
    assert_eq!(report(&program, "pncp", "failure").await["failures"], 2);
    redis.command(&["FLUSHALL"]);
    library.record_failure().await;
    assert_eq!(redis.command(&["GET", FAILURES]), "3");
}
