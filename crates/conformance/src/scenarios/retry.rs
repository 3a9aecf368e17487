//! Retries after failed attempts.

use eclusa_core::gate::CallResult;
use eclusa_core::{Outcome, Settled, Status, Store};

use crate::harness::{Harness, Open};
use crate::rules::{failure, job, lane, millis, name, plain, secs};

pub async fn a_failed_attempt_waits_and_is_tried_again<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let grant = q.next().await;
    assert_eq!(q.retry(&grant, CallResult::Failed, secs(4)).await, Settled::RetryAt(q.now() + secs(4)));
    let view = q.job(1).await;
    assert_eq!((view.status, view.due_at, view.attempts), (Status::Pending, Some(q.now() + secs(4)), 1));
    let last = view.last_failure.expect("it failed");
    assert_eq!((last.reason.as_str(), last.code.as_deref()), ("unavailable", Some("503")));
    assert_eq!(last.upstream, Some(name("ses")));
    let answer = q.dispatch(10).await;
    assert_eq!((answer.grants.len(), answer.next), (0, q.now() + secs(4)));
    q.pass(secs(4));
    assert_eq!(q.next().await.attempt, 2);
}

pub async fn every_attempt_counts_as_a_start_of_the_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2)]).await;
    assert_eq!(q.lane().await.totals.started, 0);
    q.retry(&q.next().await, CallResult::Failed, secs(1)).await;
    q.pass(secs(1));
    q.serve(2).await;
    let totals = q.lane().await.totals;
    assert_eq!((totals.accepted, totals.started, totals.completed), (2, 3, 2));
}

pub async fn a_retried_job_is_ahead_of_later_ones<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2), job(3)]).await;
    let grant = q.next().await;
    q.retry(&grant, CallResult::Failed, secs(1)).await;
    q.pass(secs(1));
    assert_eq!(q.starts(10).await, [1, 2, 3]);
}

pub async fn others_pass_a_job_in_backoff<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    q.retry(&grant, CallResult::Failed, secs(60)).await;
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_retry_that_would_come_too_late_ends_the_job_now_with_its_last_failure<S: Store>(
    open: Open<S>,
) {
    let q = Harness::new(open, &lane(|lane| lane.ttl = Some(secs(10))));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.pass(secs(5));
    assert_eq!(q.retry(&grant, CallResult::Failed, millis(5_001)).await, Settled::Ended(Status::Failed));
    let view = q.job(1).await;
    assert_eq!((view.status, view.dropped), (Status::Failed, None));
    assert!(view.last_failure.is_some_and(|failure| failure.reason.as_str() == "unavailable"));
    assert_eq!(q.letters().await, [1]);
}

pub async fn a_retry_at_the_last_moment_is_still_made<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.ttl = Some(secs(10))));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.retry(&grant, CallResult::Failed, secs(10)).await;
    q.pass(secs(10));
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn a_retry_that_nobody_reaches_in_time_is_dropped<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.ttl = Some(secs(10))));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.retry(&grant, CallResult::Failed, secs(5)).await;
    q.pass(secs(11));
    assert_eq!(q.take(10).await, []);
    assert_eq!(q.status(1).await, Status::Dropped);
}

pub async fn attempts_count_up_and_the_last_failure_is_the_newest<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    for attempt in 1..=5 {
        let grant = q.next().await;
        assert_eq!(grant.attempt, attempt);
        let reason = failure(&format!("failure {attempt}"));
        let outcome = match attempt {
            5 => Outcome::Dead(reason),
            _ => Outcome::Retry { after: secs(1), failure: reason },
        };
        q.settle(grant.lease, CallResult::Failed, outcome).await;
        q.pass(secs(1));
    }
    let view = q.job(1).await;
    assert_eq!((view.status, view.attempts), (Status::Failed, 5));
    let last = view.last_failure.expect("it failed");
    assert_eq!(last.reason.as_str(), "failure 5");
    assert_eq!(last.at + secs(1), q.now(), "the store says when it failed");
}

pub async fn a_lane_may_fail_a_job_without_a_dead_letter<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let grant = q.next().await;
    let outcome = Outcome::Failed(failure("refused"));
    assert_eq!(q.settle(grant.lease, CallResult::Rejected, outcome).await, Settled::Ended(Status::Failed));
    assert_eq!(q.letters().await, []);
    assert_eq!(q.lane().await.totals.failed, 1);
}
