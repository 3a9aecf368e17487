//! Calls without a job.

use eclusa_core::gate::{CallResult, Reason};
use eclusa_core::{Admission, Advanced, Outcome, Settled, Status, Store, Tokens, UpstreamView};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{
    UP, breaker, bucket, cooldown, free, gates, hold, job, name, rate, secs, slots, upstream,
};

pub async fn a_call_without_a_job_shares_the_gates_with_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rate(10, 10)));
    for _ in 0..6 {
        q.call(UP).await;
    }
    q.accept((1..=9).map(job)).await;
    assert_eq!(q.take(10).await.len(), 4);
    assert_eq!(q.denial(UP).await.reason, Reason::RateLimit);
}

pub async fn a_call_without_a_job_holds_its_slot_until_it_is_settled<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(1)));
    let lease = q.call(UP).await;
    let denial = q.denial(UP).await;
    assert_eq!((denial.reason, denial.at), (Reason::Concurrency, q.now() + LEASE));
    assert_eq!(q.settle(lease, CallResult::Success, Outcome::Release).await, Settled::Released);
    assert_eq!(q.settle(lease, CallResult::Success, Outcome::Release).await, Settled::Stale);
    q.call(UP).await;
}

pub async fn a_call_without_a_lease_checks_the_rate_and_not_the_breaker<S: Store>(open: Open<S>) {
    let rules = gates(breaker(1, secs(300)), |gates| gates.bucket = Some(bucket(2, 1, secs(60))));
    let q = Harness::new(open, &upstream(rules));
    q.record(UP, CallResult::Failed).await;
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen);
    for _ in 0..2 {
        assert!(matches!(q.admit_rate(UP).await, Admission::Granted { .. }));
    }
    assert!(
        matches!(q.admit_rate(UP).await, Admission::Denied { denial, .. } if denial.reason == Reason::RateLimit)
    );
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen, "the breaker is as it was");
}

pub async fn a_call_without_a_lease_is_no_probe<S: Store>(open: Open<S>) {
    let rules = gates(breaker(1, secs(30)), |gates| gates.bucket = Some(bucket(10, 1, secs(60))));
    let q = Harness::new(open, &upstream(rules));
    let half_opened = async || q.upstream(UP).await.breaker.expect("there is a breaker").half_opened;
    q.record(UP, CallResult::Failed).await;
    q.pass(secs(30));
    for _ in 0..2 {
        assert!(matches!(q.admit_rate(UP).await, Admission::Granted { .. }));
    }
    assert_eq!(half_opened().await, 0, "nobody has probed");
    let probe = q.call(UP).await;
    assert!(matches!(q.admit_rate(UP).await, Admission::Granted { .. }));
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen, "the probe is out as before");
    assert_eq!(half_opened().await, 1);
    q.settle(probe, CallResult::Success, Outcome::Release).await;
    q.call(UP).await;
}

pub async fn a_call_without_a_job_whose_caller_is_lost_frees_its_slot<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(1)));
    let lease = q.call(UP).await;
    q.pass(secs(5));
    assert!(q.extend(lease, LEASE).await);
    q.pass(secs(5));
    q.denial(UP).await;
    q.pass(secs(5));
    q.call(UP).await;
    assert_eq!(q.sweep().await.recovered, [], "there is no job to recover");
}

pub async fn a_denial_returns_the_stores_time<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(1)));
    let granted_at = q.now();
    assert_eq!(q.admit_fully(None, &[UP], Vec::new()).await.now, granted_at);
    // The caller's clock may be wrong; the wait is counted in the store's time.
    q.step_back(secs(3_600));
    let denied = q.admit_fully(None, &[UP], Vec::new()).await;
    let Admission::Denied { denial, .. } = denied.admission else { panic!("{denied:?}") };
    assert_eq!((denied.now, denial.at), (granted_at, granted_at + LEASE));
}

pub async fn a_call_that_nobody_settles_costs_its_token_and_nothing_else<S: Store>(open: Open<S>) {
    let rules = gates(breaker(1, secs(30)), |gates| {
        gates.cooldown = cooldown().cooldown;
        gates.bucket = rate(10, 10).bucket;
    });
    let q = Harness::new(open, &upstream(rules));
    let lease = q.call(UP).await;
    let left = |view: UpstreamView| (view.failures, view.in_flight, view.tokens);
    assert_eq!(left(q.upstream(UP).await), (0, 1, Some(Tokens::whole(9))));
    q.pass(LEASE);
    q.sweep().await;
    assert_eq!(left(q.upstream(UP).await), (0, 0, Some(Tokens::whole(10))));
    assert_eq!(q.settle(lease, CallResult::Failed, Outcome::Release).await, Settled::Stale);
    assert!(!q.extend(lease, LEASE).await);
    q.call(UP).await;
}

pub async fn a_call_without_a_job_has_no_chain_to_advance_along<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(1)));
    let lease = q.call(UP).await;
    assert_eq!(q.advance_from(lease, UP, CallResult::Failed).await, Advanced::Stale);
    assert_eq!(q.upstream(UP).await.in_flight, 1);
}

pub async fn a_call_takes_from_scoped_buckets<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let scoped = || vec![hold(UP, "cpf:1", bucket(2, 1, secs(60)), 2)];
    let Admission::Granted { lease, .. } = q.admit(UP, scoped()).await else {
        panic!("the bucket is full");
    };
    let Admission::Denied { denial, .. } = q.admit(UP, scoped()).await else {
        panic!("the bucket is empty");
    };
    assert_eq!((denial.reason, denial.at), (Reason::RateLimit, q.now() + secs(1)), "while a call holds them");
    q.settle(lease, CallResult::NotSent, Outcome::Release).await;
    let Admission::Granted { lease, .. } = q.admit(UP, scoped()).await else { panic!("they came back") };
    q.settle(lease, CallResult::Success, Outcome::Release).await;
    let Admission::Denied { denial, .. } = q.admit(UP, scoped()).await else { panic!("they are spent") };
    assert_eq!((denial.reason, denial.at), (Reason::RateLimit, q.now() + secs(120)));
}

pub async fn a_call_to_an_unknown_upstream_is_refused<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    assert_eq!(q.admit("nobody", Vec::new()).await, Admission::UnknownUpstream(name("nobody")));
}

pub async fn a_call_to_an_unknown_upstream_still_recovers_lost_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1)]).await;
    q.next().await;
    q.pass(LEASE);
    let answer = q.admit_fully(None, &["nowhere"], Vec::new()).await;
    assert_eq!(answer.admission, Admission::UnknownUpstream(name("nowhere")));
    assert_eq!(answer.now, q.now());
    assert_eq!(q.status(1).await, Status::Queued);
}
