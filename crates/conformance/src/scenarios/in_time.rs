//! Lanes that refuse jobs that cannot start before they expire.

use eclusa_core::gate::CallResult;
use eclusa_core::{Enqueued, NewJob, Spec, Store};

use crate::harness::{Harness, Open, ends};
use crate::rules::{breaker, chain, delayed, high, job, lasting, rate, rpm, secs, slots};

/// A lane with `admit = "in_time"`, to upstreams with these gates.
fn in_time(upstreams: &[(&str, eclusa_core::gate::GateSpecs)]) -> Spec {
    chain(upstreams, |lane| {
        lane.in_time = true;
        lane.ttl = Some(secs(10));
    })
}

async fn late<S: Store>(q: &Harness<S>, job: NewJob) -> u64 {
    match q.put(job).await {
        Enqueued::NotInTime { eta, late } => {
            assert!(eta > q.now());
            late.as_millis()
        }
        other => panic!("{other:?}"),
    }
}

pub async fn a_job_that_cannot_start_before_it_expires_is_refused<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &in_time(&[("a", rate(1, 1))]));
    // One starts now, ten more within ten seconds.
    q.accept((1..=11).map(job)).await;
    assert_eq!(late(&q, job(12)).await, 1_000, "a second later it would be in time");
    assert!(q.find(12).await.is_none());
    q.accept([lasting(secs(11), job(13))]).await;
    q.next().await;
    for _ in 0..2 {
        q.pass(secs(1));
        q.next().await;
    }
    assert!(q.put(job(12)).await.is_accepted(), "an id that was refused may come again");
    assert_eq!(q.lane().await.totals.refused, 1);
}

pub async fn an_urgent_job_is_in_time_where_others_are_not<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &in_time(&[("a", rate(1, 1))]));
    q.accept((1..=11).map(job)).await;
    late(&q, job(12)).await;
    q.accept([high(13)]).await;
}

pub async fn the_refusal_is_reported_as_an_end<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &in_time(&[("a", rpm(1))]));
    q.accept([job(1)]).await;
    let answer = q.enqueue(vec![job(2)]).await;
    assert_eq!(ends(&answer.ended), [(2, "not_in_time")]);
}

pub async fn nothing_is_evicted_for_a_job_that_is_refused<S: Store>(open: Open<S>) {
    let mut rules = in_time(&[("a", rpm(1))]);
    rules = {
        let lane = eclusa_core::LaneSpec {
            capacity: eclusa_core::Capacity::new(1, 1 << 20).expect("room for one"),
            ..rules.lanes()[0].clone()
        };
        Spec::new(vec![lane], rules.upstreams().to_vec()).expect("rules that fit together")
    };
    let q = Harness::new(open, &rules);
    q.call_ends("a", CallResult::Success).await;
    let low = NewJob { level: eclusa_core::Level::Low, ..lasting(secs(90), job(1)) };
    q.accept([low]).await;
    late(&q, high(2)).await;
    assert_eq!(q.lane().await.totals.preempted, 0);
}

pub async fn an_open_breaker_is_waited_for_only_within_the_ttl<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &in_time(&[("a", breaker(1, secs(30)))]));
    q.call_ends("a", CallResult::Failed).await;
    assert_eq!(late(&q, job(1)).await, 20_000);
    q.pass(secs(20));
    q.accept([job(1)]).await;
}

pub async fn another_upstream_of_the_chain_makes_it_in_time<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &in_time(&[("a", breaker(1, secs(30))), ("b", rate(1, 1))]));
    q.call_ends("a", CallResult::Failed).await;
    q.accept((1..=11).map(job)).await;
    late(&q, job(12)).await;
}

pub async fn a_job_delayed_beyond_its_ttl_is_refused<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &in_time(&[("a", slots(1))]));
    assert_eq!(late(&q, delayed(secs(15), job(1))).await, 5_000);
    q.accept([delayed(secs(5), job(1))]).await;
}

pub async fn slots_come_free_as_fast_as_they_did<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", slots(1))], |_| {}));
    q.accept((1..=10).map(job)).await;
    // Each call takes two seconds, while others wait.
    for _ in 0..5 {
        let grant = q.next().await;
        q.pass(secs(2));
        q.done(&grant).await;
    }
    q.next().await;
    assert_eq!(q.why(7).await.eta, Some(q.now() + secs(2)));
    assert_eq!(q.why(10).await.eta, Some(q.now() + secs(8)));
}
