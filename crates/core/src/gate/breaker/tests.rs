use super::*;

const fn at(secs: u64) -> Time {
    Time::from_millis(1_000_000 + secs * 1_000)
}

const fn lease(number: u64) -> LeaseId {
    LeaseId { epoch: 1, number, nonce: 0 }
}

fn spec() -> BreakerSpec {
    BreakerSpec::new(5, Span::from_secs(30), 1).unwrap()
}

fn opened() -> Breaker {
    let mut breaker = Breaker::default();
    for n in 0..5 {
        assert_eq!(breaker.admits(&spec(), at(0)), Ok(()));
        breaker.report(&spec(), lease(n), 0, CallResult::Failed, at(0));
    }
    breaker
}

#[test]
fn five_failures_in_a_row_open_it_for_thirty_seconds() {
    let breaker = opened();
    assert_eq!(breaker.state(at(29)), BreakerState::Open);
    assert_eq!(breaker.admits(&spec(), at(29)), Err(NotUntil::new(Reason::CircuitOpen, at(30))));
    assert_eq!(breaker.state(at(30)), BreakerState::HalfOpen);
}

#[test]
fn success_and_permanent_rejections_reset_the_count_and_429_is_no_failure() {
    let mut breaker = Breaker::default();
    for result in [CallResult::Success, CallResult::Rejected] {
        (0..4).for_each(|n| breaker.report(&spec(), lease(n), 0, CallResult::TimedOut, at(0)));
        breaker.report(&spec(), lease(9), 0, result, at(0));
        assert_eq!(breaker.failures(at(0)), 0);
    }
    (0..50).for_each(|n| breaker.report(&spec(), lease(n), 0, CallResult::Throttled, at(0)));
    assert_eq!((breaker.failures(at(0)), breaker.state(at(0))), (0, BreakerState::Closed));
}

#[test]
fn half_open_lets_one_probe_in_and_its_result_decides() {
    for (result, state) in [
        (CallResult::Success, BreakerState::Closed),
        (CallResult::Failed, BreakerState::Open),
        (CallResult::Unreachable, BreakerState::Open),
        (CallResult::Throttled, BreakerState::Open),
        (CallResult::NotSent, BreakerState::HalfOpen),
    ] {
        let mut breaker = opened();
        breaker.take(lease(10), at(40), at(30));
        assert_eq!(breaker.admits(&spec(), at(31)), Err(NotUntil::new(Reason::CircuitOpen, at(40))));
        let generation = breaker.generation();
        breaker.report(&spec(), lease(10), generation, result, at(31));
        assert_eq!(breaker.state(at(31)), state, "{result:?}");
    }
}

#[test]
fn a_probe_whose_worker_died_is_replaced() {
    let mut breaker = opened();
    breaker.take(lease(10), at(40), at(30));
    assert_eq!(breaker.admits(&spec(), at(40)), Ok(()));
    breaker.take(lease(11), at(50), at(40));
    breaker.extend(lease(11), at(60), at(41));
    assert_eq!(breaker.admits(&spec(), at(55)), Err(NotUntil::new(Reason::CircuitOpen, at(60))));
    assert_eq!(breaker.half_opened, 2);
}

#[test]
fn late_results_of_an_older_generation_change_nothing() {
    let mut breaker = opened();
    breaker.report(&spec(), lease(7), 0, CallResult::Success, at(1));
    assert_eq!(breaker.state(at(1)), BreakerState::Open);
    breaker.take(lease(10), at(40), at(30));
    breaker.report(&spec(), lease(8), 0, CallResult::Failed, at(31));
    assert_eq!(breaker.state(at(31)), BreakerState::HalfOpen);
}

#[test]
fn callers_without_a_lease_count_too() {
    let mut breaker = Breaker::default();
    (0..50).for_each(|_| breaker.record(&spec(), CallResult::Failed, at(0)));
    assert_eq!((breaker.failures(at(1)), breaker.degraded_until(at(1))), (5, Some(at(30))));
    breaker.record(&spec(), CallResult::Success, at(2));
    assert_eq!((breaker.failures(at(2)), breaker.degraded_until(at(2))), (0, None));
}

#[test]
fn a_breaker_recovers_without_a_probe_only_after_its_open_window() {
    let mut breaker = Breaker::default();
    breaker.record(&spec(), CallResult::Failed, at(0));
    assert!(!breaker.recover(at(60)));
    assert_eq!(breaker.failures(at(60)), 1, "a closed breaker goes on counting");

    let mut breaker = opened();
    assert!(!breaker.recover(at(29)));
    assert_eq!((breaker.failures(at(29)), breaker.state(at(29))), (5, BreakerState::Open));
    breaker.take(lease(10), at(40), at(30));
    let generation = breaker.generation();
    assert!(breaker.recover(at(31)));
    assert_eq!(
        (breaker.failures(at(31)), breaker.state(at(31)), breaker.closed),
        (0, BreakerState::Closed, 1)
    );
    breaker.report(&spec(), lease(10), generation, CallResult::Failed, at(32));
    assert_eq!(breaker.failures(at(32)), 0, "the probe is of an older generation");
}

#[test]
fn a_half_open_breaker_without_probes_is_healthy_after_five_minutes() {
    let healed = at(30) + HEALTHY_AFTER;
    let mut breaker = opened();
    assert_eq!((breaker.failures(at(329)), breaker.state(at(329))), (5, BreakerState::HalfOpen));
    assert_eq!((breaker.failures(healed), breaker.state(healed)), (0, BreakerState::Closed));
    assert_eq!(breaker.view(healed).closed, 1);
    breaker.record(&spec(), CallResult::Failed, healed);
    assert_eq!((breaker.failures(healed), breaker.state(healed)), (1, BreakerState::Closed));
    assert_eq!(breaker.view(healed).closed, 1);
}

#[test]
fn a_running_probe_keeps_the_breaker_half_open_and_decides() {
    for (result, state) in
        [(CallResult::Failed, BreakerState::Open), (CallResult::Success, BreakerState::Closed)]
    {
        let mut breaker = opened();
        breaker.take(lease(10), at(400), at(300));
        assert_eq!(breaker.state(at(350)), BreakerState::HalfOpen);
        breaker.report(&spec(), lease(10), 1, result, at(350));
        assert_eq!(breaker.state(at(350)), state);
    }
    let mut breaker = opened();
    breaker.take(lease(10), at(400), at(300));
    assert_eq!((breaker.state(at(400)), breaker.failures(at(400))), (BreakerState::Closed, 0));
    breaker.extend(lease(10), at(500), at(400));
    assert_eq!(breaker.state(at(400)), BreakerState::Closed, "what is over cannot be extended");
    breaker.take(lease(11), at(410), at(400));
    breaker.report(&spec(), lease(10), 1, CallResult::Failed, at(405));
    assert_eq!(breaker.failures(at(405)), 0, "its lease is over and its generation too");
}

#[test]
fn a_late_report_counts_from_when_it_happened_unless_the_breaker_changed_since() {
    let mut breaker = Breaker::default();
    (0..5).for_each(|n| breaker.record_late(&spec(), CallResult::Failed, at(n), at(n + 5)));
    assert_eq!(breaker.degraded_until(at(20)), Some(at(39)));
    breaker.record_late(&spec(), CallResult::Success, at(8), at(15));
    assert_eq!(breaker.degraded_until(at(20)), Some(at(39)), "it began before the breaker opened");
    breaker.record_late(&spec(), CallResult::Success, at(10), at(15));
    assert_eq!((breaker.degraded_until(at(20)), breaker.failures(at(20))), (None, 0));
    assert_eq!([14, 15].map(|s| breaker.generation_at(at(s))), [1, 2]);
}

#[test]
fn zeroes_are_refused_and_name_their_field() {
    let secs = Span::from_secs;
    assert_eq!(BreakerSpec::new(0, secs(1), 1).unwrap_err().field, "breaker.failures");
    assert_eq!(BreakerSpec::new(1, secs(0), 1).unwrap_err().field, "breaker.open_for");
    assert_eq!(BreakerSpec::new(1, secs(1), 0).unwrap_err().field, "breaker.probes");
}
