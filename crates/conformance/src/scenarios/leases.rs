//! Leases are fenced and expire; the jobs of lost workers are recovered.

use eclusa_core::gate::CallResult;
use eclusa_core::retry::{OnAmbiguous, RetryPolicy};
use eclusa_core::{Advanced, LeaseId, Outcome, Settled, Span, Status, Store};

use crate::harness::{Harness, LEASE, Open, numbers};
use crate::rules::{chain, free, high, id, job, lane, low, millis, of, plain, secs, slots, upstream};

pub async fn a_lease_is_good_for_one_settlement<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.done(&grant).await;
    assert_eq!(q.dead(&grant).await, Settled::Ended(Status::Completed), "what the first settlement did");
    assert_eq!(q.status(1).await, Status::Completed);
    assert_eq!((q.lane().await.totals.completed, q.letters().await), (1, vec![]));
}

pub async fn a_stale_lease_changes_nothing_in_any_verb<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("ses", slots(1)), ("smtp", free())], |_| {}));
    q.accept([job(1)]).await;
    let old = q.next().await;
    q.pass(LEASE);
    let new = q.next().await;
    assert_ne!(old.lease, new.lease);
    let before = (q.job(1).await, q.upstream("ses").await);
    assert_eq!(q.settle(old.lease, CallResult::Failed, Outcome::Done).await, Settled::Stale);
    assert_eq!(q.retry(&old, CallResult::Failed, secs(1)).await, Settled::Stale);
    assert_eq!(q.dead(&old).await, Settled::Stale);
    assert_eq!(q.release(&old).await, Settled::Stale);
    assert_eq!(q.settle(old.lease, CallResult::Success, Outcome::awaiting(Span::ZERO)).await, Settled::Stale);
    assert_eq!(q.advance(&old, CallResult::Failed).await, Advanced::Stale);
    assert!(!q.extend(old.lease, secs(60)).await);
    assert_eq!((q.job(1).await, q.upstream("ses").await), before);
    q.done(&new).await;
}

pub async fn a_lease_that_was_never_granted_is_stale<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let grant = q.next().await;
    let LeaseId { epoch, number, nonce } = grant.lease;
    let forged = [
        LeaseId { epoch: epoch + 1, ..grant.lease },
        LeaseId { number: number + 1, ..grant.lease },
        LeaseId { nonce: nonce + 1, ..grant.lease },
    ];
    for lease in forged {
        assert_eq!(q.settle(lease, CallResult::Success, Outcome::Done).await, Settled::Stale);
    }
    q.done(&grant).await;
}

pub async fn every_grant_has_its_own_lease<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=100).map(job)).await;
    let leases: std::collections::BTreeSet<_> = q.take(100).await.iter().map(|grant| grant.lease).collect();
    assert_eq!(leases.len(), 100);
    let nonces: std::collections::BTreeSet<_> = leases.iter().map(|lease| lease.nonce).collect();
    assert_eq!(nonces.len(), 1, "all are of one ask");
}

pub async fn a_lost_workers_job_is_recovered_when_its_lease_ends<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let _lost = q.next().await;
    q.pass(millis(9_999));
    assert_eq!(q.starts(10).await, []);
    assert_eq!(q.sweep().await.recovered, []);
    q.pass(millis(1));
    assert_eq!(q.sweep().await.recovered, [crate::rules::id(1)]);
    assert_eq!(q.status(1).await, Status::Queued);
    let again = q.next().await;
    assert_eq!((again.job.0, again.attempt), (1, 2));
}

pub async fn a_dispatch_takes_lost_jobs_up_without_a_sweeper<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let _lost = q.next().await;
    q.pass(LEASE);
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn a_dispatch_says_when_running_leases_end<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let _running = q.next().await;
    assert_eq!(q.dispatch(10).await.next, q.now() + LEASE);
    assert_eq!(q.sweep().await.next, q.now() + LEASE);
}

pub async fn a_recovered_job_is_at_the_front_of_its_own_line_only<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([low(1), low(2), job(3), high(4)]).await;
    assert_eq!(q.starts(3).await, [4, 3, 1]);
    q.accept([high(5), job(6)]).await;
    q.pass(LEASE);
    q.sweep().await;
    assert_eq!(q.starts(10).await, [4, 5, 3, 6, 1, 2]);
}

pub async fn a_recovered_job_does_not_jump_another_tenants_turn<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.fairness = Some(crate::rules::weights(1, &[]))));
    q.accept([of("a", 1), of("a", 2), of("b", 3)]).await;
    assert_eq!(q.starts(1).await, [1]);
    q.pass(LEASE);
    assert_eq!(q.starts(10).await, [3, 1, 2]);
}

pub async fn extending_keeps_a_lease_alive<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let grant = q.next().await;
    for _ in 0..5 {
        q.pass(secs(6));
        assert!(q.extend(grant.lease, LEASE).await);
    }
    assert_eq!(q.starts(10).await, []);
    q.done(&grant).await;
}

pub async fn an_extended_lease_ends_when_it_was_extended_to<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.pass(secs(5));
    assert!(q.extend(grant.lease, LEASE).await);
    q.pass(millis(9_999));
    assert_eq!(q.starts(10).await, []);
    q.pass(millis(1));
    assert_eq!(q.starts(10).await, [1]);
    assert!(!q.extend(grant.lease, LEASE).await);
}

pub async fn a_lost_worker_leaks_no_slot<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(2)));
    q.accept((1..=4).map(job)).await;
    for _ in 0..5 {
        assert_eq!(q.starts(10).await, [1, 2]);
        assert_eq!(q.upstream("ses").await.in_flight, 2);
        q.pass(LEASE);
    }
}

pub async fn a_released_job_goes_back_to_the_front_and_has_spent_no_attempt<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    assert_eq!(q.release(&grant).await, Settled::Requeued);
    let view = q.job(1).await;
    assert_eq!((view.status, view.attempts, view.lease), (Status::Queued, 0, None));
    let grants = q.take(10).await;
    assert_eq!(numbers(&grants), [1, 2]);
    assert_eq!(grants[0].attempt, 1);
}

pub async fn a_job_that_lost_ten_workers_fails<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    for attempt in 1..=10 {
        assert_eq!(q.next().await.attempt, attempt);
        q.pass(LEASE);
    }
    assert_eq!(q.take(10).await, []);
    assert_eq!(q.status(1).await, Status::Failed);
    assert_eq!(q.letters().await, [1]);
}

pub async fn a_lane_that_must_not_send_twice_ends_a_lost_job<S: Store>(open: Open<S>) {
    let rules = lane(|lane| lane.retry = RetryPolicy::default().on_ambiguous(OnAmbiguous::Stop));
    let q = Harness::new(open, &rules);
    q.accept([job(1)]).await;
    let _lost = q.next().await;
    q.pass(LEASE);
    assert_eq!(q.take(10).await, []);
    let view = q.job(1).await;
    assert_eq!(view.status, Status::Failed);
    assert!(view.last_failure.is_some_and(|failure| failure.reason.as_str().contains("vanished")));
}

pub async fn a_late_settlement_counts_while_nobody_took_the_job_up<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.pass(secs(60));
    q.done(&grant).await;
    assert_eq!(q.starts(10).await, []);
}

pub async fn a_dispatch_says_which_jobs_it_took_up<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    assert_eq!(q.dispatch(1).await.recovered, []);
    q.pass(LEASE);
    let answer = q.dispatch(1).await;
    assert_eq!((answer.recovered, answer.grants.len()), (vec![id(1)], 1));
}
