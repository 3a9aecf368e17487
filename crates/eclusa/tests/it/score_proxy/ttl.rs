//! "TTL (Time To Live)": a job that waits too long is dropped, and the next one is taken.

use eclusa::fake::{Answer, Latch};
use serde_json::json;

use super::super::program::{Program, end, millis};
use super::{Proxy, cpf};

async fn expired(program: &Program, job: &str, priority: &str) {
    program.logged("Job dropped", &[("jobId", job), ("reason", "ttl_expired"), ("priority", priority)]).await;
}

/// After `JOB_TTL_MS`, a job that was not reached is dropped with its reason and frees its place.
#[tokio::test]
async fn a_job_that_waits_longer_than_its_ttl_is_dropped() {
    let proxy = Proxy::start(Answer::status(200), &[("JOB_TTL_MS", "200"), ("QUEUE_MAX_SIZE", "1")]).await;
    proxy.program.pause("score").await;
    let job = proxy.take_in_as(&cpf(1), "low").await;
    expired(&proxy.program, &job, "low").await;
    let dropped = proxy.program.ended(&job).await;
    assert_eq!((&dropped["status"], &dropped["reason"]), (&json!("dropped"), &json!("ttl_expired")));
    assert_eq!(millis(&dropped["expiresAt"]) - millis(&dropped["createdAt"]), 200);
    assert!(end(&dropped) > millis(&dropped["expiresAt"]), "{dropped}");
    assert_eq!((proxy.jobs_total("dropped").await, proxy.drops("ttl_expired", "low").await), (1, 1));
    assert_eq!(proxy.program.metric("proxy_queue_size", &[("lane", "score")]).await, 0);
    proxy.take_in(&cpf(2), &[]).await;
    assert!(proxy.bureau.requests().is_empty());
}

/// "descartado com motivo `ttl_expired` e o próximo é avaliado".
#[tokio::test]
async fn the_next_job_is_taken_in_place_of_an_expired_one() {
    let proxy = Proxy::start(Answer::status(200), &[]).await;
    proxy.program.pause("score").await;
    let late = proxy.take_in(&cpf(1), &[("eclusa-ttl", "100ms"), ("eclusa-priority", "high")]).await;
    let next = proxy.take_in(&cpf(2), &[]).await;
    expired(&proxy.program, &late, "high").await;
    proxy.program.resume("score").await;
    assert_eq!(proxy.program.finished(&next).await["status"], "completed");
    let seen: Vec<_> = proxy.bureau.requests().into_iter().map(|seen| seen.query.unwrap()).collect();
    assert_eq!(seen, [format!("cpf={}", cpf(2))]);
}

/// The TTL limits waiting: a running call may take longer.
#[tokio::test]
async fn a_call_under_way_is_not_dropped() {
    let latch = Latch::default();
    let proxy = Proxy::start(Answer::status(200).after(&latch), &[("JOB_TTL_MS", "2000")]).await;
    let running = proxy.take_in(&cpf(1), &[]).await;
    proxy.bureau.wait_for(1).await;
    proxy.program.pause("score").await;
    let waiting = proxy.take_in(&cpf(2), &[]).await;
    expired(&proxy.program, &waiting, "normal").await;
    latch.open();
    assert_eq!(proxy.program.finished(&running).await["status"], "completed");
}
