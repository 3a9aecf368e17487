//! Upstreams with several keys, each with its own limits.

use eclusa_core::gate::{CallResult, GateSpecs, Reason};
use eclusa_core::{
    Admission, Advanced, GateOwner, Outcome, Settled, Settlement, Spec, Status, Store, UpstreamSpec,
};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{
    LANE, UP, breaker, chain, closing, cooldown, failure, free, job, millis, name, rpm, secs, slots,
};

/// One lane over `ses`, which has these keys, and then over `spare`.
fn keyed(own: GateSpecs, keys: &[(&str, GateSpecs)]) -> Spec {
    let plain = chain(&[(UP, own), ("spare", slots(1))], |_| {});
    let mut upstreams = plain.upstreams().to_vec();
    let key =
        |(key, rules): &(&str, GateSpecs)| UpstreamSpec::new(name(UP).with_key(&name(key)), rules.clone());
    upstreams.extend(keys.iter().map(key));
    Spec::new(plain.lanes().to_vec(), upstreams).expect("rules that fit together")
}

async fn starts<S: Store>(q: &Harness<S>, max: usize) -> Vec<String> {
    q.take(max).await.iter().map(|grant| grant.upstream.to_string()).collect()
}

pub async fn the_key_with_the_fewest_calls_is_used_and_the_first_of_equal_ones<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keyed(free(), &[("b", slots(2)), ("a", slots(3))]));
    q.accept((1..=7).map(job)).await;
    let grants = q.take(6).await;
    let at: Vec<_> = grants.iter().map(|grant| grant.upstream.as_str()).collect();
    assert_eq!(at, ["ses/b", "ses/a", "ses/b", "ses/a", "ses/a", "spare"]);
    assert_eq!(starts(&q, 10).await, [""; 0], "all keys are in use");
    assert_eq!((q.upstream(UP).await.in_flight, q.upstream("ses/a").await.in_flight), (5, 3));
    q.done(&grants[1]).await;
    assert_eq!(starts(&q, 10).await, ["ses/a"]);
}

pub async fn a_job_knows_the_upstream_and_not_the_key<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keyed(free(), &[("a", slots(1))]));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    assert_eq!((grant.upstream.key(), grant.upstream.without_key()), (Some("a"), name(UP)));
    let view = q.job(1).await;
    assert_eq!((view.upstream, view.at), (Some(name(UP)), Some(grant.upstream.clone())));
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::To(name("spare")));
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::To(name("spare")), "asked again");
    assert_eq!((q.upstream(UP).await.in_flight, q.upstream("ses/a").await.in_flight), (0, 0));
    assert_eq!(q.advance_from(grant.lease, "spare", CallResult::Failed).await, Advanced::Exhausted);
    assert_eq!(q.dead(&grant).await, Settled::Ended(Status::Failed));
}

pub async fn an_advance_to_an_upstream_with_keys_names_one<S: Store>(open: Open<S>) {
    let spec = keyed(free(), &[("a", slots(1)), ("b", slots(1))]);
    let q = Harness::new(open, &spec);
    q.accept([crate::rules::via(&["spare", UP], job(1))]).await;
    let grant = q.next().await;
    let to = Advanced::To(name(UP).with_key(&name("a")));
    assert_eq!(q.advance(&grant, CallResult::Failed).await, to);
    assert_eq!(q.advance(&grant, CallResult::Failed).await, to, "asked again");
    assert_eq!(q.upstream("ses/a").await.in_flight, 1);
    assert_eq!(q.advance_from(grant.lease, UP, CallResult::Failed).await, Advanced::Exhausted);
}

pub async fn the_upstreams_own_gates_count_the_calls_of_all_keys<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keyed(rpm(3), &[("a", rpm(2)), ("b", rpm(2))]));
    q.accept((1..=6).map(job)).await;
    assert_eq!(starts(&q, 10).await, ["ses/a", "ses/b", "ses/a", "spare"]);
    let why = q.why(6).await;
    let named = why.gates.into_iter().map(|(owner, _)| match owner {
        GateOwner::Upstream(name) => name.to_string(),
        other => panic!("{other:?}"),
    });
    assert_eq!(named.collect::<Vec<_>>(), ["ses", "ses/a", "ses/b", "spare"]);
}

pub async fn only_the_throttled_key_rests<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keyed(free(), &[("a", cooldown()), ("b", cooldown())]));
    q.accept((1..=8).map(job)).await;
    let grant = q.next().await;
    q.retry(&grant, CallResult::Throttled, secs(60)).await;
    let grants = q.take(2).await;
    assert!(grants.iter().all(|grant| grant.upstream.as_str() == "ses/b"), "{grants:?}");
    q.retry(&grants[0], CallResult::Failed, secs(60)).await;
    let spare = q.next().await;
    assert_eq!(spare.upstream, name("spare"));
    let denial = q.denial(UP).await;
    assert_eq!((denial.reason, denial.at), (Reason::Cooldown, q.now() + secs(10)));
    q.pass(secs(10));
    assert_eq!(q.next().await.upstream.key(), Some("a"), "both have cooled down, and b has a call");
}

pub async fn a_retry_after_closes_only_the_key_that_received_it<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keyed(free(), &[("a", slots(9)), ("b", slots(9))]));
    q.accept((1..=4).map(job)).await;
    let grant = q.next().await;
    let outcome = Outcome::Retry { after: secs(90), failure: failure("429") };
    let report = closing(secs(30), None);
    q.settle_fully(Settlement { lease: grant.lease, report, outcome, answer: None, unsent: None }).await;
    assert_eq!(starts(&q, 2).await, ["ses/b", "ses/b"]);
    let until = q.now() + secs(30);
    let shut = |view: eclusa_core::UpstreamView| view.gates.iter().find_map(|gate| gate.denies_until);
    assert_eq!(shut(q.upstream("ses/a").await), Some(until));
    assert_eq!(shut(q.upstream(UP).await), None);
    q.reset(UP).await;
    assert_eq!(shut(q.upstream("ses/a").await), None, "set right by hand, with its keys");
}

pub async fn when_all_keys_deny_the_earliest_time_is_returned<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keyed(free(), &[("a", rpm(1)), ("b", rpm(1))]));
    let first = q.call(UP).await;
    q.pass(secs(1));
    let second = q.call(UP).await;
    q.settle(first, CallResult::Success, Outcome::Release).await;
    q.pass(secs(4));
    q.settle(second, CallResult::Success, Outcome::Release).await;
    let denial = q.denial(UP).await;
    assert_eq!((denial.reason, denial.at), (Reason::Window, q.now() + secs(56)));
}

pub async fn a_breaker_counts_the_results_of_all_keys<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keyed(breaker(2, secs(30)), &[("a", slots(1)), ("b", slots(1))]));
    q.accept((1..=4).map(job)).await;
    for grant in q.take(2).await {
        q.retry(&grant, CallResult::Failed, secs(90)).await;
    }
    assert_eq!((q.upstream(UP).await.failures, starts(&q, 10).await), (2, vec!["spare".to_owned()]));
    q.pass(secs(30));
    let probe = q.next().await;
    assert_eq!(probe.upstream.key(), Some("a"));
    q.done(&probe).await;
    assert_eq!(q.upstream(UP).await.failures, 0);
}

pub async fn an_awaited_job_keeps_the_slot_of_its_key<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keyed(free(), &[("a", slots(1)), ("b", slots(1))]));
    q.accept((1..=3).map(job)).await;
    let grants = q.take(2).await;
    let lease = match q.settle(grants[0].lease, CallResult::Success, Outcome::awaiting(secs(600))).await {
        Settled::Awaiting(lease) => lease,
        other => panic!("{other:?}"),
    };
    assert_eq!(starts(&q, 10).await, ["spare"]);
    assert_eq!(
        q.job(1).await.at,
        Some(name(UP).with_key(&name("a"))),
        "for questions to the upstream about it"
    );
    q.accept([job(4)]).await;
    q.settle(lease, CallResult::Success, Outcome::Done).await;
    assert_eq!(starts(&q, 10).await, ["ses/a"]);
}

pub async fn a_lost_call_frees_its_key_when_its_lease_ends<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keyed(free(), &[("a", slots(1))]));
    let Admission::Granted { upstream, .. } = q.admit_to(LANE, &[UP]).await else { panic!("it is free") };
    assert_eq!(upstream.as_str(), "ses/a");
    let denial = q.denial(UP).await;
    assert_eq!((denial.reason, denial.at), (Reason::Concurrency, q.now() + LEASE));
    q.pass(millis(9_999));
    q.denial(UP).await;
    q.pass(millis(1));
    q.call(UP).await;
    assert_eq!((q.upstream(UP).await.in_flight, q.upstream("ses/a").await.in_flight), (1, 1));
}
