//! Upstreams that work on a job and report later.

use eclusa_core::gate::CallResult;
use eclusa_core::{Grant, LeaseId, Outcome, Settled, Spec, Status, Store};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{UP, chain, failure, free, job, millis, rpm, secs, slots, upstream};

async fn submitted<S: Store>(q: &Harness<S>, grant: &Grant) -> LeaseId {
    match q.settle(grant.lease, CallResult::Success, Outcome::awaiting(secs(600))).await {
        Settled::Awaiting(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn narrow() -> Spec {
    let one = free().with_slots("concurrency", 1).expect("more than zero");
    chain(&[(UP, slots(2))], |lane| lane.gates = one)
}

pub async fn an_awaiting_job_has_its_own_fence<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    let awaiting = submitted(&q, &grant).await;
    assert_ne!(awaiting, grant.lease);
    assert_eq!(q.dead(&grant).await, Settled::Awaiting(awaiting), "what the first settlement did");
    let view = q.job(1).await;
    assert_eq!((view.status, view.lease), (Status::Processing, Some(awaiting)));
    assert_eq!(q.answered(awaiting, "image").await.0, Settled::Ended(Status::Completed));
    assert_eq!(q.job(1).await.result.as_deref(), Some(&b"image"[..]));
}

pub async fn an_awaiting_job_frees_the_lane_and_keeps_its_slot_at_the_upstream<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &narrow());
    q.accept((1..=4).map(job)).await;
    let first = submitted(&q, &q.next().await).await;
    let _second = submitted(&q, &q.next().await).await;
    assert_eq!(q.upstream(UP).await.in_flight, 2);
    assert_eq!(q.lane().await.processing, 2);
    assert_eq!(q.starts(10).await, [], "the upstream is full");
    q.settle(first, CallResult::Success, Outcome::Done).await;
    assert_eq!(q.starts(10).await, [3]);
}

pub async fn the_place_of_an_awaiting_job_comes_free_sixty_seconds_after_the_submits_answer<S: Store>(
    open: Open<S>,
) {
    let q = Harness::new(open, &upstream(rpm(1)));
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    q.pass(secs(3));
    let awaiting = submitted(&q, &grant).await;
    q.pass(secs(20));
    q.cancel(1).await;
    q.settle(awaiting, CallResult::Success, Outcome::Done).await;
    q.pass(millis(39_999));
    assert_eq!(q.starts(10).await, []);
    q.pass(millis(1));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn an_awaiting_job_is_not_recovered_when_its_workers_lease_would_have_ended<S: Store>(
    open: Open<S>,
) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1)]).await;
    submitted(&q, &q.next().await).await;
    q.pass(LEASE);
    assert_eq!(q.sweep().await.recovered, []);
    assert_eq!(q.take(10).await, []);
}

pub async fn the_timeout_ends_an_awaiting_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &narrow());
    q.accept([job(1)]).await;
    let lease = submitted(&q, &q.next().await).await;
    q.pass(millis(599_999));
    q.sweep().await;
    assert_eq!(q.status(1).await, Status::Processing);
    q.pass(millis(1));
    q.sweep().await;
    let view = q.job(1).await;
    assert_eq!(view.status, Status::Failed);
    assert!(view.last_failure.is_some_and(|failure| failure.reason.as_str().contains("report back")));
    assert_eq!(q.letters().await, [1]);
    assert_eq!((q.upstream(UP).await.in_flight, q.lane().await.processing), (0, 0));
    assert_eq!(q.settle(lease, CallResult::Success, Outcome::Done).await, Settled::Stale);
}

pub async fn an_awaiting_job_may_fail_and_be_tried_again<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &narrow());
    q.accept([job(1)]).await;
    let lease = submitted(&q, &q.next().await).await;
    let outcome = Outcome::Retry { after: secs(1), failure: failure("no GPU") };
    assert_eq!(q.settle(lease, CallResult::Failed, outcome).await, Settled::RetryAt(q.now() + secs(1)));
    q.pass(secs(1));
    let again = q.next().await;
    assert_eq!(again.attempt, 2);
    assert_eq!(q.upstream(UP).await.in_flight, 1);
}

pub async fn a_cancelled_awaiting_job_keeps_its_slot_until_the_upstream_reports<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(1)));
    q.accept([job(1), job(2)]).await;
    let lease = submitted(&q, &q.next().await).await;
    q.cancel(1).await;
    assert_eq!(q.starts(10).await, []);
    assert_eq!(q.settle(lease, CallResult::Success, Outcome::Done).await, Settled::Released);
    assert_eq!(q.status(1).await, Status::Cancelled);
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn an_awaiting_job_does_not_expire_by_its_ttl<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[(UP, free())], |lane| lane.ttl = Some(secs(5))));
    q.accept([job(1)]).await;
    let lease = submitted(&q, &q.next().await).await;
    q.pass(secs(60));
    q.sweep().await;
    assert_eq!(q.settle(lease, CallResult::Success, Outcome::Done).await, Settled::Ended(Status::Completed));
}
