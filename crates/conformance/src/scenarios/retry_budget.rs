//! How many retries of a lane may start in addition to its first attempts.

use eclusa_core::gate::{CallResult, Reason};
use eclusa_core::retry::{RetryBudget, RetryPolicy};
use eclusa_core::{NewJob, Outcome, Spec, Status, Store};

use crate::harness::{Harness, LEASE, Open, ends};
use crate::rules::{bucket, cache, chain, failure, free, gates, job, lane, lasting, of, secs, via, wants};

/// One retry per second, and beyond that this share of the first attempts.
fn retries(share_percent: u8) -> RetryPolicy {
    let budget = RetryBudget::new(share_percent, bucket(1, 1, secs(1))).expect("a budget that can be");
    RetryPolicy::default().with_budget(Some(budget))
}

fn budget(share_percent: u8) -> Spec {
    lane(|lane| lane.retry = retries(share_percent))
}

/// What starts in the next `rounds` seconds.
async fn started_within<S: Store>(q: &Harness<S>, rounds: u32) -> Vec<u128> {
    let mut started = Vec::new();
    for _ in 0..rounds {
        q.pass(secs(1));
        // It reports immediately when there is more to do, and comes to an end.
        for _ in 0..10 {
            let answer = q.dispatch(10).await;
            started.extend(answer.grants.iter().map(|grant| grant.job.0));
            if answer.next > q.now() {
                break;
            }
        }
    }
    started
}

/// Starts all waiting jobs and fails them; they are retried after a second.
async fn fail_all<S: Store>(q: &Harness<S>, jobs: impl IntoIterator<Item = NewJob>) {
    q.accept(jobs).await;
    let retry = || Outcome::Retry { after: secs(1), failure: failure("unavailable") };
    let grants = q.take(100).await;
    q.settle_all(CallResult::Failed, grants.iter().map(|grant| (grant.lease, retry()))).await;
}

pub async fn retries_beyond_the_budget_wait_and_first_attempts_pass<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &budget(0));
    fail_all(&q, [job(1), job(2), job(3)]).await;
    q.pass(secs(1));
    q.accept([job(4)]).await;
    let answer = q.dispatch(10).await;
    assert_eq!(answer.grants.iter().map(|grant| grant.job.0).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(answer.next, q.now() + secs(1));
    let (view, why) = (q.job(2).await, q.why(2).await);
    assert_eq!((view.status, view.attempts), (Status::Pending, 1));
    assert_eq!((why.reason, why.eta), (Some(Reason::RetryBackoff), Some(q.now() + secs(1))));
    assert_eq!(q.lane().await.pending, 2);
    q.pass(secs(1));
    let grant = q.next().await;
    assert_eq!((grant.job.0, grant.attempt), (2, 2));
    assert_eq!(q.starts(9).await, []);
    q.pass(secs(1));
    assert_eq!(q.starts(9).await, [3]);
}

pub async fn a_share_of_the_first_attempts_may_be_retried_at_once<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &budget(20));
    fail_all(&q, (1..=30).map(job)).await;
    q.pass(secs(1));
    assert_eq!(q.starts(100).await, [1, 2, 3, 4, 5, 6, 7], "one a second, and a fifth of thirty");
    q.accept((101..=110).map(job)).await;
    let mut started = q.starts(100).await;
    started.extend(q.starts(100).await);
    started.sort_unstable();
    assert_eq!(started, [vec![8, 9], (101..=110).collect()].concat());
}

pub async fn the_used_budget_returns_with_time<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &budget(100));
    fail_all(&q, (1..=5).map(job)).await;
    q.pass(secs(30));
    assert_eq!(q.starts(9).await, [1], "the first attempts are long ago");
    for number in 2..=5 {
        q.pass(secs(1));
        assert_eq!(q.starts(9).await, [number]);
    }
}

pub async fn a_retry_that_waits_for_the_budget_is_no_dead_letter<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &budget(0));
    fail_all(&q, [job(1), lasting(secs(5), job(2)), job(3)]).await;
    q.pass(secs(1));
    assert_eq!(q.starts(9).await, [1]);
    q.cancel(3).await;
    q.pause(crate::rules::LANE, true).await;
    q.pass(secs(5));
    let swept = q.sweep().await;
    assert_eq!(ends(&swept.ended), [(2, "ttl_expired")]);
    assert_eq!((q.letters().await, q.lane().await.pending), (vec![], 0));
}

pub async fn a_tenant_whose_jobs_fail_does_not_use_up_the_budget_of_others<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &budget(0));
    let flood = (1..=5).map(|n| of("flood", n));
    fail_all(&q, flood.chain([of("small", 100)])).await;
    q.pass(secs(1));
    let mut started = q.starts(9).await;
    for _ in 0..3 {
        q.pass(secs(1));
        started.extend(q.starts(9).await);
    }
    assert!(started.contains(&100), "{started:?}");
}

pub async fn a_job_whose_worker_vanished_is_recovered_regardless_of_the_budget<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &budget(0));
    fail_all(&q, [job(1), job(9)]).await;
    q.pass(secs(1));
    q.accept([job(2)]).await;
    assert_eq!(q.starts(9).await, [1, 2]);
    q.pass(LEASE);
    q.accept([job(3)]).await;
    let mut started = q.starts(9).await;
    started.sort_unstable();
    assert_eq!(started, [1, 2, 3], "the second is no retry, and the ninth has to wait");
}

pub async fn a_retry_whose_upstream_is_closed_leaves_the_budget_to_others<S: Store>(open: Open<S>) {
    let closes = gates(free(), |gates| gates.bucket = Some(bucket(4, 1, secs(600))));
    let rules = chain(&[("closes", closes), ("open", free())], |lane| lane.retry = retries(0));
    let q = Harness::new(open, &rules);
    let to =
        |upstream, numbers: std::ops::RangeInclusive<u128>| numbers.map(move |n| via(&[upstream], job(n)));
    fail_all(&q, to("closes", 1..=2).chain(to("open", 11..=12))).await;
    assert_eq!(started_within(&q, 1).await, [1], "the others wait for the budget");
    q.accept(to("closes", 3..=3)).await;
    assert_eq!(q.starts(9).await, [3], "with that it is closed");
    assert_eq!(started_within(&q, 2).await, [11, 12], "the second has nowhere to go");
}

pub async fn a_retry_of_a_tenant_at_its_limit_leaves_the_budget_to_others<S: Store>(open: Open<S>) {
    let rules = lane(|lane| {
        lane.retry = retries(0);
        lane.tenant_limits.rate = [("limited".to_owned(), bucket(3, 1, secs(600)))].into_iter().collect();
    });
    let q = Harness::new(open, &rules);
    let limited = (1..=2).map(|n| of("limited", n));
    fail_all(&q, limited.chain((11..=12).map(|n| of("other", n)))).await;
    assert_eq!(started_within(&q, 1).await, [11], "the others wait for the budget");
    q.accept([of("limited", 3)]).await;
    assert_eq!(q.starts(9).await, [3], "with that it is at its limit");
    assert_eq!(started_within(&q, 2).await, [12], "those of the tenant wait for its own limit");
}

pub async fn a_removed_backlog_of_retries_counts_against_nobody<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &budget(0));
    let flood = (1..=20).map(|n| of("flood", n));
    fail_all(&q, flood.chain((101..=109).map(|n| of("steady", n)))).await;
    assert_eq!(started_within(&q, 1).await, [101]);
    for number in 1..=19 {
        q.cancel(number).await;
    }
    let started = started_within(&q, 5).await;
    assert!(started.contains(&20), "{started:?}");
}

pub async fn a_retry_that_waits_for_the_budget_lets_its_equals_start<S: Store>(open: Open<S>) {
    let rules = lane(|lane| {
        lane.retry = retries(0);
        lane.cache = Some(cache());
    });
    let q = Harness::new(open, &rules);
    fail_all(&q, [job(8), wants("k", job(1))]).await;
    q.accept([wants("k", job(2))]).await;
    let second = q.next().await;
    q.accept([wants("k", job(3))]).await;
    q.pass(secs(1));
    assert_eq!(q.starts(9).await, [8], "the others wait for the second");
    q.retry(&second, CallResult::Failed, secs(60)).await;
    assert_eq!(q.starts(9).await, [3], "the first is a retry, and the budget is used up");
}
