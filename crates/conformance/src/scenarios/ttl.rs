//! No start after `expiresAt`.

use eclusa_core::gate::CallResult;
use eclusa_core::{Advanced, DropReason, Ended, Outcome, Settled, Status, Store};

use crate::harness::{Harness, Open, ends};
use crate::rules::{
    LANE, breaker, capacity, chain, delayed, failure, free, high, job, lane, lasting, low, millis, plain,
    secs,
};

pub async fn a_job_may_start_until_it_expires_and_not_after<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([lasting(secs(5), job(1)), lasting(secs(5), job(2))]).await;
    q.pass(secs(5));
    assert_eq!(q.starts(1).await, [1]);
    q.pass(millis(1));
    let answer = q.dispatch(10).await;
    assert_eq!(answer.grants, []);
    assert_eq!(ends(&answer.ended), [(2, "ttl_expired")]);
    let view = q.job(2).await;
    assert_eq!((view.status, view.dropped), (Status::Dropped, Some(DropReason::TtlExpired)));
}

pub async fn an_expired_job_is_dropped_and_the_next_is_taken<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([lasting(secs(1), high(1)), lasting(secs(1), job(2)), job(3), low(4)]).await;
    q.pass(secs(2));
    assert_eq!(q.starts(1).await, [3]);
    assert_eq!(q.lane().await.totals.expired, 2);
}

pub async fn a_job_that_expires_behind_open_breakers_says_which_call_was_avoided<S: Store>(open: Open<S>) {
    let brittle = || breaker(1, secs(30));
    let q = Harness::new(open, &chain(&[("ses", brittle()), ("smtp", brittle())], |_| {}));
    let avoided = |ended: &[Ended]| -> Vec<Option<String>> {
        ended.iter().map(|ended| ended.avoided.as_ref().map(ToString::to_string)).collect()
    };
    // While one of two breakers is closed, something else blocks the job.
    q.record("ses", CallResult::Failed).await;
    q.accept([lasting(secs(1), job(1))]).await;
    q.pass(secs(2));
    assert_eq!(avoided(&q.sweep().await.ended), [None]);
    q.record("smtp", CallResult::Failed).await;
    q.accept([lasting(secs(1), job(2)), lasting(secs(1), delayed(secs(10), job(3)))]).await;
    q.pass(secs(2));
    assert_eq!(avoided(&q.sweep().await.ended), [Some("ses".to_owned()), None], "the other was not yet due");
    // Nor does one start in a paused lane.
    q.pause(LANE, true).await;
    q.accept([lasting(secs(1), job(4))]).await;
    q.pass(secs(2));
    assert_eq!(avoided(&q.sweep().await.ended), [None]);
}

pub async fn a_job_with_a_day_to_live_starts_until_the_day_is_over<S: Store>(open: Open<S>) {
    let day = secs(24 * 3_600);
    let q = Harness::new(open, &lane(|lane| lane.ttl = Some(day)));
    q.pause(LANE, true).await;
    q.accept([job(1)]).await;
    q.pass(millis(1));
    q.accept([job(2)]).await;
    let begun = q.now();
    q.pass(millis(24 * 3_600 * 1_000 - 2));
    q.pause(LANE, false).await;
    let grant = q.next().await;
    assert_eq!((grant.job.0, grant.expires_at), (1, begun + millis(24 * 3_600 * 1_000 - 1)));
    let late = Outcome::Retry { after: secs(1), failure: failure("unavailable") };
    assert_eq!(q.settle(grant.lease, CallResult::Failed, late).await, Settled::Ended(Status::Failed));
    assert_eq!(q.letters().await, [1], "no retry fits into what is left of the day");
    q.pass(millis(3));
    let swept = q.sweep().await;
    assert_eq!(ends(&swept.ended), [(2, "ttl_expired")]);
}

pub async fn the_lane_sets_the_ttl_unless_the_job_does<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.ttl = Some(secs(10))));
    q.accept([job(1), lasting(secs(60), job(2))]).await;
    assert_eq!(q.job(1).await.expires_at, q.now() + secs(10));
    assert_eq!(q.job(2).await.expires_at, q.now() + secs(60));
    q.pass(secs(11));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_job_without_a_ttl_waits_forever<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    q.pass(secs(10 * 365 * 86_400));
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn the_sweeper_drops_expired_jobs_that_nobody_reaches_and_frees_their_room<S: Store>(
    open: Open<S>,
) {
    let q = Harness::new(open, &lane(|lane| lane.capacity = capacity(2)));
    q.accept([lasting(secs(5), low(1)), lasting(secs(5), low(2))]).await;
    assert_eq!(q.sweep().await.next, q.now() + millis(5_001));
    q.pass(millis(5_001));
    let swept = q.sweep().await;
    assert_eq!(ends(&swept.ended), [(1, "ttl_expired"), (2, "ttl_expired")]);
    assert!(q.put(low(3)).await.is_accepted());
}

pub async fn a_scheduled_job_expires_before_its_time_comes<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([lasting(secs(5), delayed(secs(60), job(1)))]).await;
    q.pass(secs(6));
    assert_eq!(q.sweep().await.ended.len(), 1);
    assert_eq!(q.status(1).await, Status::Dropped);
}

pub async fn a_job_that_expires_while_it_runs_still_completes<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.ttl = Some(secs(5))));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.pass(secs(8));
    assert_eq!(q.sweep().await.ended, []);
    q.done(&grant).await;
    assert_eq!(q.status(1).await, Status::Completed);
}

pub async fn an_expired_job_is_not_moved_on_to_another_upstream<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("ses", free()), ("smtp", free())], |lane| lane.ttl = Some(secs(5))));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.pass(secs(6));
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::Exhausted);
    q.retry(&grant, CallResult::Failed, secs(1)).await;
    assert_eq!(q.status(1).await, Status::Failed);
    assert_eq!(q.upstream("smtp").await.in_flight, 0);
}

pub async fn a_lost_job_that_expired_meanwhile_is_dropped<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.ttl = Some(secs(5))));
    q.accept([job(1)]).await;
    let _lost = q.next().await;
    q.pass(secs(11));
    assert_eq!(q.take(10).await, []);
    assert_eq!(q.job(1).await.dropped, Some(DropReason::TtlExpired));
}

pub async fn a_clock_that_steps_back_revives_nothing<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([lasting(secs(5), job(1)), job(2)]).await;
    q.pass(secs(6));
    q.sweep().await;
    q.step_back(secs(60));
    assert_eq!(q.starts(10).await, [2]);
    assert_eq!(q.status(1).await, Status::Dropped);
}
