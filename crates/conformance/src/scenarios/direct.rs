//! Calls in a direct lane: now or not at all, under the gates of the lane and of an upstream.

use eclusa_core::gate::{CallResult, GateSpecs, HEALTHY_AFTER, NotUntil, Reason};
use eclusa_core::{Admission, LeaseId, Name, Outcome, Settled, Spec, Store, Time};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{
    LANE, UP, breaker, bucket, chain, free, hold, job, name, one_per, rate, rpm, secs, slots,
};

/// A lane with these gates to one upstream without limits.
fn gated(gates: GateSpecs) -> Spec {
    chain(&[(UP, free())], |lane| lane.gates = gates)
}

fn two(first: GateSpecs, second: GateSpecs) -> Spec {
    chain(&[("ses", first), ("smtp", second)], |_| {})
}

/// A call in the lane, which must be granted.
async fn granted<S: Store>(q: &Harness<S>) -> (LeaseId, Name) {
    match q.admit_to(LANE, &[]).await {
        Admission::Granted { lease, upstream, lease_expires, .. } => {
            assert_eq!(lease_expires, q.now() + LEASE);
            (lease, upstream)
        }
        denied => panic!("{denied:?}"),
    }
}

/// Who denies a call in the lane, and until when.
async fn denied<S: Store>(q: &Harness<S>) -> (Option<Name>, NotUntil) {
    match q.admit_to(LANE, &[]).await {
        Admission::Denied { upstream, denial, .. } => (upstream, denial),
        other => panic!("{other:?}"),
    }
}

pub async fn a_call_counts_in_the_window_of_its_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &gated(rpm(2)));
    let (lease, _) = granted(&q).await;
    granted(&q).await;
    let (upstream, denial) = denied(&q).await;
    let freed = q.now() + LEASE + secs(60);
    assert_eq!((upstream, denial.reason, denial.at), (None, Reason::Window, freed));
    q.pass(secs(1));
    q.settle(lease, CallResult::Success, Outcome::Release).await;
    assert_eq!(denied(&q).await.1.at, q.now() + secs(60));
    q.pass(secs(60));
    granted(&q).await;
}

pub async fn a_call_that_may_not_probe_waits_until_others_have_closed_the_breaker<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[(UP, breaker(1, secs(30)))], |_| {}));
    let half_open = q.now() + secs(30);
    q.record(UP, CallResult::Failed).await;
    let waits_until = async |time| {
        for answer in [q.admit_unreported(LANE).await, q.admit_without_probing(UP).await] {
            let Admission::Denied { upstream, denial, quota, .. } = answer else { panic!("{answer:?}") };
            let expected = NotUntil { reason: Reason::CircuitOpen, at: time };
            assert_eq!((upstream, denial, quota), (Some(name(UP)), expected, None));
        }
    };
    waits_until(half_open).await;
    q.pass(secs(30));
    waits_until(half_open + HEALTHY_AFTER).await;
    let (probe, _) = granted(&q).await;
    waits_until(q.now() + LEASE).await;
    q.settle(probe, CallResult::Success, Outcome::Release).await;
    assert!(matches!(q.admit_unreported(LANE).await, Admission::Granted { .. }));
    assert!(matches!(q.admit_without_probing(UP).await, Admission::Granted { .. }));
}

pub async fn a_call_takes_from_the_bucket_of_its_lane_and_returns_the_token_if_unsent<S: Store>(
    open: Open<S>,
) {
    let q = Harness::new(open, &gated(one_per(secs(10))));
    let (lease, _) = granted(&q).await;
    assert_eq!(denied(&q).await.1.reason, Reason::RateLimit);
    q.settle(lease, CallResult::NotSent, Outcome::Release).await;
    let (lease, _) = granted(&q).await;
    q.settle(lease, CallResult::Success, Outcome::Release).await;
    assert_eq!(denied(&q).await.1.at, q.now() + secs(10), "what was sent is spent");
}

/// Nothing was sent, so nothing is spent; but it counts as a failure of the upstream.
pub async fn a_call_that_found_no_connection_is_a_failure_and_spends_nothing<S: Store>(open: Open<S>) {
    let once = || {
        let mut gates = one_per(secs(10));
        gates.window = rpm(1).window;
        gates
    };
    let mut limits = once();
    limits.breaker = breaker(3, secs(30)).breaker;
    let spec = chain(&[(UP, limits)], |lane| lane.gates = once());
    let q = Harness::new(open, &spec);
    for failures in 1..=3 {
        let (lease, _) = granted(&q).await;
        q.settle(lease, CallResult::Unreachable, Outcome::Release).await;
        let up = q.upstream(UP).await;
        assert_eq!((up.failures, up.in_flight), (failures, 0));
    }
    let opens = NotUntil { reason: Reason::CircuitOpen, at: q.now() + secs(30) };
    assert_eq!(denied(&q).await, (Some(name(UP)), opens));
}

pub async fn a_call_holds_a_slot_of_its_lane_until_it_is_settled<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &gated(slots(1)));
    let (lease, _) = granted(&q).await;
    assert_eq!(denied(&q).await, (None, NotUntil { reason: Reason::Concurrency, at: q.now() + LEASE }));
    assert_eq!(q.settle(lease, CallResult::Success, Outcome::Release).await, Settled::Released);
    granted(&q).await;
}

pub async fn a_call_whose_caller_is_lost_frees_its_slot_of_the_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &gated(slots(1)));
    granted(&q).await;
    q.pass(LEASE);
    granted(&q).await;
    assert_eq!(q.upstream(UP).await.in_flight, 1);
}

pub async fn a_call_shares_the_gates_of_its_lane_with_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &gated(slots(2)));
    granted(&q).await;
    q.accept([job(1), job(2)]).await;
    assert_eq!(q.starts(10).await, [1]);
    assert_eq!(denied(&q).await.1.reason, Reason::Concurrency);
}

pub async fn a_call_goes_to_the_first_upstream_that_admits_it<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two(breaker(1, secs(30)), free()));
    assert_eq!(granted(&q).await.1, name("ses"));
    q.record("ses", CallResult::Failed).await;
    assert_eq!(granted(&q).await.1, name("smtp"));
    assert_eq!(q.upstream("ses").await.in_flight, 1, "nothing was taken there");
}

pub async fn a_call_may_name_its_own_chain<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two(free(), free()));
    let own = q.admit_to(LANE, &["smtp", "ses"]).await;
    assert!(matches!(own, Admission::Granted { upstream, .. } if upstream == name("smtp")));
    assert_eq!(q.admit_to(LANE, &["ses", "nobody"]).await, Admission::UnknownUpstream(name("nobody")));
    assert_eq!(q.upstream("ses").await.in_flight, 0);
}

pub async fn when_all_deny_the_one_that_opens_first_is_named<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two(one_per(secs(60)), one_per(secs(20))));
    granted(&q).await;
    granted(&q).await;
    let (upstream, denial) = denied(&q).await;
    assert_eq!((upstream, denial.at), (Some(name("smtp")), q.now() + secs(20)));
}

pub async fn a_call_that_the_upstream_denies_takes_nothing_from_the_lane<S: Store>(open: Open<S>) {
    let spec = chain(&[(UP, slots(1))], |lane| lane.gates = rate(1, 2));
    let q = Harness::new(open, &spec);
    let (lease, _) = granted(&q).await;
    for _ in 0..5 {
        assert_eq!(denied(&q).await.0, Some(name(UP)));
    }
    let Admission::Denied { gate: Some(gate), sooner, .. } = q.admit_to(LANE, &[]).await else {
        panic!("the slot is taken");
    };
    assert_eq!((gate.reason, gate.level, gate.limit), (Reason::Concurrency, 1, Some(1)));
    assert!(sooner, "the call may end before its lease");
    q.settle(lease, CallResult::Success, Outcome::Release).await;
    granted(&q).await;
}

pub async fn a_call_that_the_lane_denies_takes_nothing_from_the_upstream<S: Store>(open: Open<S>) {
    let spec = chain(&[(UP, rate(1, 2))], |lane| lane.gates = slots(1));
    let q = Harness::new(open, &spec);
    let (lease, _) = granted(&q).await;
    for _ in 0..5 {
        assert_eq!(denied(&q).await.0, None);
    }
    q.settle(lease, CallResult::Success, Outcome::Release).await;
    granted(&q).await;
}

pub async fn a_call_takes_only_the_holds_of_the_upstream_it_goes_to<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two(free(), free()));
    let holds =
        || vec![hold("ses", "a", bucket(1, 1, secs(60)), 1), hold("smtp", "b", bucket(1, 1, secs(9)), 1)];
    let mut went = Vec::new();
    for _ in 0..2 {
        match q.admit_fully(Some(LANE), &[], holds()).await.admission {
            Admission::Granted { upstream, lease, .. } => {
                went.push(upstream);
                q.settle(lease, CallResult::Success, Outcome::Release).await;
            }
            denied => panic!("{denied:?}"),
        }
    }
    assert_eq!(went, [name("ses"), name("smtp")]);
    let Admission::Denied { upstream, denial, .. } = q.admit_fully(Some(LANE), &[], holds()).await.admission
    else {
        panic!("both buckets are empty");
    };
    assert_eq!((upstream, denial.at), (Some(name("smtp")), q.now() + secs(9)));
}

pub async fn a_paused_lane_denies_calls<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &gated(free()));
    q.pause(LANE, true).await;
    assert_eq!(denied(&q).await, (None, NotUntil { reason: Reason::Paused, at: Time::NEVER }));
    q.pause(LANE, false).await;
    granted(&q).await;
}

pub async fn a_call_in_an_unknown_lane_is_refused<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &gated(free()));
    assert_eq!(q.admit_to("nowhere", &[]).await, Admission::UnknownLane);
}

pub async fn an_unreported_call_takes_tokens_and_holds_nothing<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[(UP, slots(1))], |lane| lane.gates = rpm(2)));
    for _ in 0..2 {
        let Admission::Granted { lease, .. } = q.admit_unreported(LANE).await else { panic!("not granted") };
        assert_eq!(q.settle(lease, CallResult::Success, Outcome::Release).await, Settled::Stale);
    }
    assert_eq!(q.upstream(UP).await.in_flight, 0);
    let denial = denied(&q).await.1;
    assert_eq!((denial.reason, denial.at), (Reason::Window, q.now() + secs(60)));
}

/// For the lane, a call that advances along the chain is one call: it takes no second token, place or slot there.
pub async fn a_call_that_advances_along_the_chain_passes_its_lane_once<S: Store>(open: Open<S>) {
    let spec = chain(&[("ses", rpm(9)), ("smtp", one_per(secs(60)))], |lane| {
        lane.gates = rpm(1).with_slots("concurrency", 1).expect("more than zero");
        lane.gates.bucket = one_per(secs(60)).bucket;
    });
    let q = Harness::new(open, &spec);
    let (first, upstream) = granted(&q).await;
    assert_eq!((upstream, denied(&q).await.0), (name("ses"), None), "the lane has had its one");
    let failed = || Some((first, CallResult::Failed.into()));
    let went_on = q.go_on(LANE, &["smtp"], failed()).await;
    let Admission::Granted { lease, upstream, .. } = went_on else { panic!("{went_on:?}") };
    assert_eq!((upstream, q.upstream("ses").await.in_flight), (name("smtp"), 0));
    assert_eq!(q.settle(first, CallResult::Success, Outcome::Release).await, Settled::Stale);
    assert_eq!(denied(&q).await.0, None, "its slot is still taken");
    q.settle(lease, CallResult::NotSent, Outcome::Release).await;
    assert_eq!(denied(&q).await.1.at, q.now() + secs(60), "the first was sent, so that its token is spent");
    q.pass(secs(60));
    // A call that was never sent returns the token, even if it advanced.
    let (first, _) = granted(&q).await;
    let unsent = Some((first, CallResult::Unreachable.into()));
    let Admission::Granted { lease, .. } = q.go_on(LANE, &["smtp"], unsent).await else { panic!("denied") };
    q.settle(lease, CallResult::NotSent, Outcome::Release).await;
    let (first, _) = granted(&q).await;
    q.settle(q.call("smtp").await, CallResult::Success, Outcome::Release).await;
    let denied = q.go_on(LANE, &["smtp"], Some((first, CallResult::Failed.into()))).await;
    assert!(matches!(denied, Admission::Denied { .. }), "{denied:?}");
    let lane = q.lane().await;
    let slots = lane.gates.iter().find(|gate| gate.reason == Reason::Concurrency).expect("it has slots");
    assert_eq!(slots.level, 0, "a call that cannot go on is over");
}
