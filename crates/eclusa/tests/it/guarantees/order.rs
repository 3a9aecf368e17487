//! Priority, first in first out, turns of tenants, and expiry.

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::json;

use super::super::program::{Program, millis, starts};
use super::{config, job, paths};

/// A program that makes one call at a time, so that the upstream sees the exact order.
async fn one_at_a_time(lane: &str) -> (Program, FakeUpstream) {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&config(&upstream, lane, "max_concurrent = 1"), &[]).await;
    program.pause("work").await;
    (program, upstream)
}

async fn enqueue_as(program: &Program, number: usize, tenant: &str, priority: &str) -> String {
    let mut job = job(number);
    (job["tenant"], job["priority"]) = (json!(tenant), json!(priority));
    program.enqueue("work", &job).await
}

#[tokio::test]
async fn the_most_urgent_goes_first_and_equals_go_in_turn() {
    let (program, upstream) = one_at_a_time("fairness = false").await;
    let mut last = String::new();
    for number in 0..30 {
        let priority = ["low", "high", "normal"][number % 3];
        let id = enqueue_as(&program, number, "one", priority).await;
        if priority == "low" {
            last = id;
        }
    }
    program.resume("work").await;
    program.ended(&last).await;
    let expected: Vec<String> = [1, 2, 0]
        .into_iter()
        .flat_map(|level| (level..30).step_by(3))
        .map(|number| format!("/{number}"))
        .collect();
    assert_eq!(paths(&upstream), expected);
}

/// Tenants take turns of at most three while another waits; each tenant's own jobs stay in order.
#[tokio::test]
async fn a_tenant_that_floods_the_lane_does_not_keep_others_waiting() {
    let (program, upstream) = one_at_a_time("").await;
    for number in 0..12 {
        enqueue_as(&program, number, "flood", "normal").await;
    }
    let mut last = String::new();
    for number in 12..16 {
        last = enqueue_as(&program, number, "small", "normal").await;
    }
    program.resume("work").await;
    assert_eq!(program.ended(&last).await["status"], "completed");
    upstream.wait_for(16).await;
    let order: Vec<usize> = paths(&upstream).iter().map(|path| path[1..].parse().unwrap()).collect();
    for (from, to) in [(0, 12), (12, 16)] {
        let own: Vec<usize> = order.iter().copied().filter(|number| (from..to).contains(number)).collect();
        assert!(own.is_sorted(), "{order:?}");
    }
    // Three of one tenant, three of the other, three again, then the rest.
    let last = order.iter().position(|number| *number == 15).unwrap();
    assert!(last <= 9, "{order:?}");
    let tenants: Vec<bool> = order[..=last].iter().map(|number| *number < 12).collect();
    assert!(tenants.windows(4).all(|four| four.iter().any(|flood| *flood != four[0])), "{order:?}");
}

/// However long an upstream takes, jobs that expired meanwhile are not sent.
#[tokio::test]
async fn nothing_starts_after_it_expired() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Behaviour::script([Answer::status(200).after(&latch)])).await.unwrap();
    let program = Program::start(&config(&upstream, "", "max_concurrent = 1"), &[]).await;
    let first = program.enqueue("work", &job(0)).await;
    upstream.wait_for(1).await;
    let mut short = job(1);
    short["ttl"] = json!("200ms");
    let short = program.enqueue("work", &short).await;
    let last = program.enqueue("work", &job(2)).await;
    program.logged("Job dropped", &[("jobId", &short), ("reason", "ttl_expired")]).await;
    latch.open();
    for id in [&first, &last] {
        assert_eq!(program.ended(id).await["status"], "completed");
    }
    assert_eq!(paths(&upstream), ["/0", "/2"]);
    assert_eq!(starts(&program.ended(&short).await), [0; 0]);
}

/// A retry that would start too late is not scheduled: the job ends with its failure.
#[tokio::test]
async fn a_retry_that_would_start_too_late_is_not_made() {
    let upstream = FakeUpstream::start(Answer::status(503)).await.unwrap();
    let lane = "ttl = \"20s\"\nretry = { attempts = 5, base = \"60s\", cap = \"60s\" }";
    let program = Program::start(&config(&upstream, lane, ""), &[]).await;
    let id = program.enqueue("work", &job(0)).await;
    let ended = program.finished(&id).await;
    assert_eq!((&ended["status"], &ended["lastFailure"]["code"]), (&json!("failed"), &json!("503")));
    assert!(starts(&ended).iter().all(|at| *at <= millis(&ended["expiresAt"])), "{ended}");
    assert_eq!(upstream.requests().len(), 1);
}
