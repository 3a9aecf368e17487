//! Limits per tenant when rules change, and what is kept of them.

use std::num::NonZeroU32;
use std::sync::Arc;

use eclusa_core::gate::{BucketSpec, CallResult, GateSpecs};
use eclusa_core::{
    Admission, Admit, Chain, Dispatch, Engine, Grant, JobId, LaneSpec, Name, NewJob, Outcome, Patterns,
    ProcessId, Registration, Restorer, Settlement, Span, Spec, Time, UpstreamSpec,
};

const NOW: Time = Time::from_millis(1_700_000_000_000);

fn after(secs: u64) -> Time {
    NOW + Span::from_secs(secs)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A lane with a rate per minute and a concurrency per tenant.
fn spec(per_minute: Option<u32>, slots: Option<u32>, fair: bool) -> Spec {
    let mut lane = LaneSpec::new(name("mail"), Chain::new(vec![name("up")]).unwrap());
    let rate = per_minute.map(|count| BucketSpec::new(count, count, Span::from_secs(60)).unwrap());
    lane.tenant_limits.rate = rate.map(Patterns::of_all).unwrap_or_default();
    let slots = slots.and_then(NonZeroU32::new);
    lane.tenant_limits.concurrency = slots.map(Patterns::of_all).unwrap_or_default();
    if !fair {
        lane.fairness = None;
    }
    Spec::new(vec![lane], vec![UpstreamSpec::new(name("up"), GateSpecs::default())]).unwrap()
}

fn rules(engine: &mut Engine, spec: Spec, now: Time) {
    let process = ProcessId::EMBEDDED;
    engine.register(Registration { process, stamp: 0, about: "".into(), spec: Arc::new(spec) }, now);
}

fn enqueue(engine: &mut Engine, tenant: &str, ids: std::ops::Range<u128>) {
    let jobs = ids.map(|id| NewJob::new(JobId(id), name("mail"), tenant, *b"x"));
    engine.enqueue(jobs.collect(), NOW);
}

fn take(engine: &mut Engine, now: Time) -> Vec<Grant> {
    take_as(engine, 1, now)
}

fn take_as(engine: &mut Engine, nonce: u64, now: Time) -> Vec<Grant> {
    let lease = Span::from_secs(600);
    let ask = Dispatch { lane: name("mail"), max: 100, lease, nonce, wait: Span::ZERO, denied: None };
    engine.dispatch(&ask, now).grants
}

fn starts(engine: &mut Engine, now: Time) -> Vec<u128> {
    take(engine, now).iter().map(|grant| grant.job.0).collect()
}

fn end(engine: &mut Engine, grants: &[Grant], now: Time) {
    let settlement = |grant: &Grant| {
        let (lease, report) = (grant.lease, CallResult::Success.into());
        Settlement { lease, report, outcome: Outcome::Done, answer: None, unsent: None }
    };
    engine.settle(grants.iter().map(settlement).collect(), now);
}

fn restarted(engine: &mut Engine, journal: &mut Vec<Vec<u8>>) -> Engine {
    let mut chunk = Engine::begin_chunk();
    engine.save_changes(&mut chunk).unwrap();
    journal.push(chunk);
    let mut restorer = Restorer::default();
    journal.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
    restorer.finish(journal.len() as u64).unwrap()
}

/// Asks for a direct call of `tenant`; returns whether it is admitted.
fn call(engine: &mut Engine, tenant: &str, now: Time) -> bool {
    let (lane, tenant, chain, holds) = (Some(name("mail")), Some(tenant.into()), Vec::new(), Vec::new());
    let lease = Span::from_secs(600);
    let ask =
        Admit { lane, tenant, chain, holds, correlation: None, lease, nonce: 1, after: None, probe: true };
    matches!(engine.admit(&ask, now).admission, Admission::Granted { .. })
}

#[test]
fn a_changed_limit_applies_to_tenants_that_only_make_direct_calls() {
    for tenant in ["a", "a/b%2Fc"] {
        let mut engine = Engine::new(&spec(Some(1), Some(1), true));
        assert_eq!([0, 0].map(|secs| call(&mut engine, tenant, after(secs))), [true, false]);
        rules(&mut engine, spec(Some(10), Some(2), true), after(0));
        assert_eq!([5, 6, 7].map(|secs| call(&mut engine, tenant, after(secs))), [false, true, false]);
    }
}

#[test]
fn a_changed_rate_keeps_what_is_spent() {
    for fair in [true, false] {
        let mut engine = Engine::new(&spec(Some(10), None, fair));
        enqueue(&mut engine, "a", 0..30);
        assert_eq!(starts(&mut engine, NOW).len(), 10);
        rules(&mut engine, spec(Some(20), None, fair), NOW);
        assert_eq!(starts(&mut engine, NOW), [], "nothing is minted");
        assert_eq!(starts(&mut engine, after(3)), [10], "one each three seconds now");
        rules(&mut engine, spec(Some(1), None, fair), after(3));
        assert_eq!(starts(&mut engine, after(60)), []);
        assert_eq!(starts(&mut engine, after(63)), [11]);
        rules(&mut engine, spec(None, None, fair), after(63));
        assert_eq!(starts(&mut engine, after(63)).len(), 18, "no limit any more");
    }
}

#[test]
fn added_slots_are_available_at_once_and_removed_ones_as_calls_end() {
    let mut engine = Engine::new(&spec(None, Some(1), true));
    enqueue(&mut engine, "a", 0..9);
    let mut running = take(&mut engine, NOW);
    assert_eq!(running.len(), 1);
    rules(&mut engine, spec(None, Some(3), true), NOW);
    running.extend(take(&mut engine, after(1)));
    assert_eq!(running.len(), 3);
    rules(&mut engine, spec(None, Some(2), true), after(1));
    end(&mut engine, &running[..1], after(2));
    assert_eq!(starts(&mut engine, after(2)), []);
    end(&mut engine, &running[1..2], after(2));
    assert_eq!(starts(&mut engine, after(2)), [3]);
}

#[test]
fn a_new_limit_applies_to_waiting_jobs() {
    for fair in [true, false] {
        let mut engine = Engine::new(&spec(None, None, fair));
        enqueue(&mut engine, "a", 0..5);
        enqueue(&mut engine, "b", 5..7);
        rules(&mut engine, spec(Some(2), None, fair), NOW);
        assert_eq!(starts(&mut engine, NOW), [0, 1, 5, 6]);
    }
}

#[test]
fn a_restart_keeps_rates_and_slots() {
    let (mut engine, mut journal) = (Engine::new(&spec(Some(3), Some(2), true)), Vec::new());
    enqueue(&mut engine, "a", 0..9);
    let running = take(&mut engine, NOW);
    assert_eq!(running.len(), 2);
    let mut engine = restarted(&mut engine, &mut journal);
    assert_eq!(take_as(&mut engine, 2, after(1)), [], "both slots are taken");
    end(&mut engine, &running, after(1));
    let mut engine = restarted(&mut engine, &mut journal);
    let third: Vec<_> = take_as(&mut engine, 3, after(1)).iter().map(|grant| grant.job.0).collect();
    assert_eq!(third, [2], "slots are free, and one token was left");
}

#[test]
fn a_tenant_with_a_full_bucket_costs_nothing() {
    let mut engine = Engine::new(&spec(Some(60), Some(2), true));
    let kept = |engine: &Engine| {
        let records = engine.snapshot().unwrap();
        let of_tenant = |record: &&Vec<u8>| record.windows(5).any(|part| part == b"/mail");
        records.iter().filter(of_tenant).count()
    };
    for tenant in 0..50 {
        enqueue(&mut engine, &format!("a/{tenant}"), 10 * tenant..10 * tenant + 2);
    }
    assert_eq!(kept(&engine), 0, "what only waits has taken nothing");
    let running = take(&mut engine, NOW);
    assert_eq!((running.len(), kept(&engine)), (100, 2 * 50 + 100));
    end(&mut engine, &running, after(1));
    engine.sweep(after(60));
    assert_eq!(kept(&engine), 0);
}
