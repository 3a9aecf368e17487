//! Breakers and cooldowns: what failures do to an upstream.

use eclusa_core::gate::{BreakerSpec, BreakerState, CallResult, Reason};
use eclusa_core::{Outcome, Report, RetryAfter, Store};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{UP, breaker, chain, cooldown, free, gates, job, millis, name, secs, upstream};

pub async fn failures_in_a_row_open_the_breaker<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(3, secs(30))));
    for _ in 0..2 {
        q.call_ends(UP, CallResult::Failed).await;
    }
    assert_eq!(q.upstream(UP).await.failures, 2);
    q.call_ends(UP, CallResult::TimedOut).await;
    let denial = q.denial(UP).await;
    assert_eq!((denial.reason, denial.at), (Reason::CircuitOpen, q.now() + secs(30)));
    assert_eq!(q.upstream(UP).await.degraded_until, Some(q.now() + secs(30)));
}

pub async fn a_success_or_a_rejection_between_failures_keeps_the_breaker_closed<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(3, secs(30))));
    for well in [CallResult::Success, CallResult::Rejected, CallResult::Success] {
        q.call_ends(UP, CallResult::Failed).await;
        q.call_ends(UP, CallResult::Failed).await;
        q.call_ends(UP, well).await;
    }
    assert_eq!(q.upstream(UP).await.failures, 0);
}

pub async fn too_many_requests_is_no_failure_for_the_breaker<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(2, secs(30))));
    q.call_ends(UP, CallResult::Failed).await;
    for _ in 0..5 {
        q.call_ends(UP, CallResult::Throttled).await;
    }
    assert_eq!(q.upstream(UP).await.failures, 1);
    q.call_ends(UP, CallResult::Failed).await;
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen);
}

/// A store whose only upstream has just gone half open.
async fn half_open<S: Store>(open: Open<S>) -> Harness<S> {
    let q = Harness::new(open, &upstream(breaker(1, secs(30))));
    q.call_ends(UP, CallResult::Failed).await;
    q.pass(millis(29_999));
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen);
    q.pass(millis(1));
    q
}

pub async fn half_open_lets_one_probe_pass<S: Store>(open: Open<S>) {
    let q = half_open(open).await;
    q.accept((1..=10).map(job)).await;
    assert_eq!(q.starts(10).await, [1]);
    assert_eq!(q.take(10).await, []);
    let denial = q.denial(UP).await;
    assert_eq!((denial.reason, denial.at), (Reason::CircuitOpen, q.now() + LEASE));
}

pub async fn half_open_lets_as_many_probes_pass_as_the_rule_says<S: Store>(open: Open<S>) {
    let rule = BreakerSpec::new(1, secs(30), 3).expect("a breaker that can be");
    let q = Harness::new(open, &upstream(gates(free(), |gates| gates.breaker = Some(rule))));
    q.call_ends(UP, CallResult::Failed).await;
    q.pass(secs(30));
    q.accept((1..=10).map(job)).await;
    assert_eq!(q.starts(10).await, [1, 2, 3]);
}

pub async fn a_good_probe_closes_the_breaker_and_forgets_failures<S: Store>(open: Open<S>) {
    for well in [CallResult::Success, CallResult::Rejected] {
        let q = half_open(open).await;
        q.call_ends(UP, well).await;
        assert_eq!(q.upstream(UP).await.failures, 0);
        let _two = (q.call(UP).await, q.call(UP).await);
    }
}

pub async fn a_bad_probe_opens_the_breaker_again<S: Store>(open: Open<S>) {
    for bad in [CallResult::Failed, CallResult::TimedOut, CallResult::Throttled] {
        let q = half_open(open).await;
        q.call_ends(UP, bad).await;
        let denial = q.denial(UP).await;
        assert_eq!((denial.reason, denial.at), (Reason::CircuitOpen, q.now() + secs(30)));
    }
}

pub async fn a_probe_that_was_not_sent_leaves_its_place_to_another<S: Store>(open: Open<S>) {
    let q = half_open(open).await;
    q.call_ends(UP, CallResult::NotSent).await;
    q.call(UP).await;
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen);
}

pub async fn a_dead_probe_does_not_keep_the_breaker_half_open_forever<S: Store>(open: Open<S>) {
    let q = half_open(open).await;
    q.call(UP).await;
    q.pass(millis(9_999));
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen);
    q.pass(millis(1));
    q.call_ends(UP, CallResult::Success).await;
    q.call(UP).await;
}

pub async fn an_extended_probe_keeps_its_place<S: Store>(open: Open<S>) {
    let q = half_open(open).await;
    let probe = q.call(UP).await;
    q.pass(secs(5));
    assert!(q.extend(probe, secs(60)).await);
    q.pass(secs(30));
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen);
}

pub async fn late_failures_from_before_the_opening_do_not_prolong_it<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(1, secs(30))));
    let (first, late) = (q.call(UP).await, q.call(UP).await);
    q.settle(first, CallResult::Failed, Outcome::Release).await;
    q.pass(secs(5));
    q.settle(late, CallResult::Failed, Outcome::Release).await;
    assert_eq!(q.denial(UP).await.at, q.now() + secs(25));
}

pub async fn a_late_success_from_before_the_opening_does_not_close_it<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(1, secs(30))));
    let (first, late) = (q.call(UP).await, q.call(UP).await);
    q.settle(first, CallResult::Failed, Outcome::Release).await;
    q.settle(late, CallResult::Success, Outcome::Release).await;
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen);
}

pub async fn a_late_failure_does_not_reopen_a_breaker_that_closed<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(1, secs(5))));
    let (first, late) = (q.call(UP).await, q.call(UP).await);
    q.settle(first, CallResult::Failed, Outcome::Release).await;
    q.pass(secs(5));
    q.call_ends(UP, CallResult::Success).await;
    q.settle(late, CallResult::Failed, Outcome::Release).await;
    q.call(UP).await;
}

pub async fn an_open_breaker_sends_jobs_down_the_chain<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", breaker(1, secs(30))), ("b", free())], |_| {}));
    q.call_ends("a", CallResult::Failed).await;
    q.accept([job(1)]).await;
    assert_eq!(q.next().await.upstream, name("b"));
}

pub async fn a_reset_closes_the_breaker_and_ends_cooldown_and_retry_after<S: Store>(open: Open<S>) {
    let rules = gates(breaker(1, secs(30)), |gates| gates.cooldown = cooldown().cooldown);
    let q = Harness::new(open, &upstream(rules));
    let late = q.call(UP).await;
    let lease = q.call(UP).await;
    let retry_after = RetryAfter { wait: secs(90), bucket: None };
    let report = Report { retry_after: Some(retry_after), ..CallResult::Failed.into() };
    q.settle(lease, report, Outcome::Release).await;
    q.denial(UP).await;
    let view = q.reset(UP).await.expect("the upstream is known");
    assert_eq!((view.failures, view.degraded_until), (0, None));
    q.settle(late, CallResult::Success, Outcome::Release).await;
    q.call(UP).await;
    assert_eq!(q.reset("nobody").await, None);
}

pub async fn a_breaker_recovers_without_a_probe_once_its_open_window_is_over<S: Store>(open: Open<S>) {
    let rules = gates(breaker(2, secs(30)), |gates| gates.cooldown = cooldown().cooldown);
    let q = Harness::new(open, &upstream(rules));
    let lease = q.call(UP).await;
    let retry_after = RetryAfter { wait: secs(90), bucket: None };
    q.settle(lease, Report { retry_after: Some(retry_after), ..CallResult::Failed.into() }, Outcome::Release)
        .await;
    q.record(UP, CallResult::Failed).await;
    q.pass(secs(30));
    let view = q.recover(UP).await.expect("the upstream is known");
    assert_eq!((view.failures, view.degraded_until), (0, None));
    assert_eq!(view.breaker.map(|breaker| breaker.state), Some(BreakerState::Closed));
    assert_eq!(q.denial(UP).await.reason, Reason::UpstreamRetryAfter, "what else was said still holds");
    q.pass(secs(60));
    let _two = (q.call(UP).await, q.call(UP).await);
    assert_eq!(q.recover("nobody").await, None);
}

pub async fn a_breaker_that_is_open_or_closed_does_not_recover<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(2, secs(30))));
    q.record(UP, CallResult::Failed).await;
    q.pass(secs(60));
    let view = q.recover(UP).await.expect("the upstream is known");
    assert_eq!((view.failures, view.degraded_until), (1, None), "a closed one goes on counting");
    q.record(UP, CallResult::Failed).await;
    q.pass(millis(29_999));
    let view = q.recover(UP).await.expect("the upstream is known");
    assert_eq!((view.failures, view.degraded_until), (2, Some(q.now() + millis(1))));
    assert_eq!(q.denial(UP).await.reason, Reason::CircuitOpen);
}

pub async fn a_breaker_without_probes_is_healthy_after_five_minutes<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(2, secs(30))));
    q.record(UP, CallResult::Failed).await;
    q.record(UP, CallResult::Failed).await;
    q.pass(millis(329_999));
    let shown = |view: &eclusa_core::UpstreamView| (view.failures, view.breaker.map(|breaker| breaker.state));
    assert_eq!(shown(&q.upstream(UP).await), (2, Some(BreakerState::HalfOpen)));
    q.pass(millis(1));
    assert_eq!(shown(&q.upstream(UP).await), (0, Some(BreakerState::Closed)));
    let _two = (q.call(UP).await, q.call(UP).await);
    q.record(UP, CallResult::Failed).await;
    assert_eq!(shown(&q.upstream(UP).await), (1, Some(BreakerState::Closed)));
}

pub async fn callers_without_a_lease_share_the_breaker<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(2, secs(30))));
    q.record(UP, CallResult::Failed).await;
    let view = q.record(UP, CallResult::Failed).await.expect("the upstream is known");
    assert_eq!((view.failures, view.degraded_until), (2, Some(q.now() + secs(30))));
    q.accept([job(1)]).await;
    assert_eq!(q.starts(10).await, []);
    q.record(UP, CallResult::Failed).await;
    q.pass(secs(10));
    assert_eq!(q.denial(UP).await.at, q.now() + secs(20), "failures while it is open are no news");
    let view = q.record(UP, CallResult::Success).await.expect("the upstream is known");
    assert_eq!((view.failures, view.degraded_until), (0, None));
    assert_eq!(q.starts(10).await, [1]);
    assert_eq!(q.record("nobody", CallResult::Success).await, None);
}

pub async fn a_lost_worker_does_not_count_as_a_failure_of_the_upstream<S: Store>(open: Open<S>) {
    let q = Harness::new(
        open,
        &upstream(gates(breaker(1, secs(30)), |gates| gates.cooldown = cooldown().cooldown)),
    );
    q.accept([job(1)]).await;
    let _lost = q.next().await;
    q.pass(LEASE);
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn consecutive_errors_lengthen_the_cooldown<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(cooldown()));
    let mut rests = Vec::new();
    for error in [CallResult::Failed, CallResult::TimedOut, CallResult::Throttled].into_iter().cycle().take(6)
    {
        q.call_ends(UP, error).await;
        let denial = q.denial(UP).await;
        assert_eq!(denial.reason, Reason::Cooldown);
        let rest = denial.at.since(q.now());
        rests.push(rest.as_millis() / 1_000);
        q.pass(rest);
    }
    assert_eq!(rests, [10, 30, 60, 120, 120, 120]);
}

pub async fn a_success_resets_the_cooldown<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(cooldown()));
    q.call_ends(UP, CallResult::Failed).await;
    q.pass(secs(10));
    q.call_ends(UP, CallResult::Failed).await;
    q.pass(secs(30));
    q.call_ends(UP, CallResult::Success).await;
    q.call_ends(UP, CallResult::Failed).await;
    assert_eq!(q.denial(UP).await.at, q.now() + secs(10));
}

pub async fn errors_are_forgotten_after_ten_minutes<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(cooldown()));
    for wait in [10, 600] {
        q.call_ends(UP, CallResult::Failed).await;
        q.pass(secs(wait));
    }
    q.call_ends(UP, CallResult::Failed).await;
    assert_eq!(q.denial(UP).await.at, q.now() + secs(10));
}
