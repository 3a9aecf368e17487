//! "Política de Prioridade e Preempção": which job is evicted when the queue is full.

use eclusa::fake::Answer;
use serde_json::json;

use super::{Proxy, cpf};

/// A full queue of jobs with these priorities, and their ids.
async fn full_of(priorities: &[&str]) -> (Proxy, Vec<String>) {
    let size = priorities.len().to_string();
    let proxy = Proxy::start(Answer::status(200), &[("QUEUE_MAX_SIZE", &size)]).await;
    proxy.program.pause("score").await;
    let mut jobs = Vec::new();
    for (number, priority) in (0..).zip(priorities) {
        jobs.push(proxy.take_in_as(&cpf(number), priority).await);
    }
    (proxy, jobs)
}

/// A new job of this priority replaces `victim`, which is dropped, counted and logged; no other job is.
async fn takes_the_place_of(proxy: &Proxy, priority: &str, victim: &str, priority_of_victim: &str) {
    let before = proxy.jobs_total("dropped").await;
    let new = proxy.take_in_as(&cpf(1_000), priority).await;
    assert_eq!(proxy.job(&new).await["status"], "queued");
    let dropped = proxy.job(victim).await;
    assert_eq!((&dropped["status"], &dropped["reason"]), (&json!("dropped"), &json!("preempted")));
    assert_eq!(proxy.jobs_total("dropped").await, before + 1);
    assert_eq!(proxy.drops("preempted", priority_of_victim).await, 1);
    let fields = [("jobId", victim), ("reason", "preempted"), ("priority", priority_of_victim)];
    proxy.program.logged("Job dropped", &fields).await;
}

/// A new job of this priority is refused, counted and logged; no job is dropped.
async fn is_refused(proxy: &Proxy, priority: &str, jobs: &[String]) {
    let answer = proxy.ask(&cpf(1_000), &[("eclusa-priority", priority)]).await;
    assert_eq!((answer.status, answer.header("content-type")), (503, "application/problem+json"));
    assert_eq!(answer.json()["type"], "urn:eclusa:problem:queue-full");
    assert!(answer.header("retry-after").parse::<u32>().unwrap() > 0);
    assert_eq!(proxy.jobs_total("dropped").await, 1);
    assert_eq!(proxy.drops("queue_full", priority).await, 1);
    let line = proxy.program.logged("Job dropped", &[("reason", "queue_full"), ("priority", priority)]).await;
    assert!(line["jobId"].is_string(), "{line}");
    for job in jobs {
        assert_eq!(proxy.job(job).await["status"], "queued");
    }
}

#[tokio::test]
async fn a_high_job_takes_the_place_of_a_low_one_first() {
    let (proxy, jobs) = full_of(&["low", "normal", "low"]).await;
    takes_the_place_of(&proxy, "high", &jobs[2], "low").await;
    assert_eq!(proxy.job(&jobs[0]).await["status"], "queued");
    assert_eq!(proxy.job(&jobs[1]).await["status"], "queued");
}

#[tokio::test]
async fn a_high_job_takes_the_place_of_a_normal_one_where_there_is_no_low_one() {
    let (proxy, jobs) = full_of(&["normal", "high", "normal"]).await;
    takes_the_place_of(&proxy, "high", &jobs[2], "normal").await;
    assert_eq!(proxy.job(&jobs[0]).await["status"], "queued");
}

#[tokio::test]
async fn a_normal_job_takes_the_place_of_a_low_one() {
    let (proxy, jobs) = full_of(&["normal", "low", "high"]).await;
    takes_the_place_of(&proxy, "normal", &jobs[1], "low").await;
}

#[tokio::test]
async fn a_low_job_evicts_nothing() {
    let (proxy, jobs) = full_of(&["low", "normal", "high"]).await;
    is_refused(&proxy, "low", &jobs).await;
}

#[tokio::test]
async fn a_normal_job_takes_no_place_of_a_normal_or_high_one() {
    let (proxy, jobs) = full_of(&["normal", "high", "normal"]).await;
    is_refused(&proxy, "normal", &jobs).await;
}

#[tokio::test]
async fn a_high_job_takes_no_place_of_a_high_one() {
    let (proxy, jobs) = full_of(&["high", "high", "high"]).await;
    is_refused(&proxy, "high", &jobs).await;
}

/// "A capacidade total é controlada por `QUEUE_MAX_SIZE` (soma dos três níveis)", 100 by default.
#[tokio::test]
async fn a_hundred_jobs_of_all_priorities_together_may_wait() {
    let proxy = Proxy::start_bare(Answer::status(200), &[("JOB_TTL_MS", "600000")]).await;
    proxy.program.pause("score").await;
    for (number, priority) in (0..100).zip(["high", "normal", "low"].into_iter().cycle()) {
        proxy.take_in_as(&cpf(number), priority).await;
    }
    assert_eq!(proxy.program.metric("proxy_queue_size", &[("lane", "score")]).await, 100);
    let queued = proxy.program.get("/v1/lanes/score").await.json()["queued"].clone();
    assert_eq!(queued, json!({ "high": 34, "normal": 33, "low": 33 }));
    is_refused(&proxy, "low", &[]).await;
}
