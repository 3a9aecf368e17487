//! How accurate estimated starts are: loads in virtual time, and how far from its estimate each job started.

use eclusa_core::gate::{BreakerSpec, BucketSpec, CallResult, GateSpecs, WindowSpec};
use eclusa_core::{
    Chain, Dispatch, Engine, Enqueued, JobId, LaneSpec, Name, NewJob, Outcome, Settlement, Span, Spec, Time,
    UpstreamSpec,
};
use std::collections::BTreeMap;

/// How often something may happen, in milliseconds.
const STEP: usize = 10;

/// A load: what the upstream allows, when jobs come, how long calls take and when they fail.
struct Load {
    gates: GateSpecs,
    /// How many jobs arrive at this time, in milliseconds.
    come: fn(u64) -> u64,
    takes: fn(u64) -> u64,
    fails: fn(u64) -> bool,
    until: u64,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn at(ms: u64) -> Time {
    Time::from_millis(1_000_000 + ms)
}

/// How many milliseconds after its estimate each job started; negative if before.
fn errors(load: &Load) -> Vec<i64> {
    let lane = LaneSpec::new(name("a"), Chain::new(vec![name("up")]).unwrap());
    let upstream = UpstreamSpec::new(name("up"), load.gates.clone());
    let mut engine = Engine::new(&Spec::new(vec![lane], vec![upstream]).unwrap());
    let (mut quoted, mut running, mut errors) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut number = 0_u128;
    for ms in (0..load.until).step_by(STEP) {
        let now = at(ms);
        let ended: Vec<_> = running.range(..=(ms, u64::MAX)).map(|(key, lease)| (*key, *lease)).collect();
        for (key, (lease, fails)) in ended {
            running.remove(&key);
            let (result, outcome) = if fails {
                (CallResult::Failed, Outcome::Release)
            } else {
                (CallResult::Success, Outcome::Done)
            };
            engine.settle(
                vec![Settlement { lease, report: result.into(), outcome, answer: None, unsent: None }],
                now,
            );
        }
        for _ in 0..(load.come)(ms) {
            number += 1;
            let answer = engine.enqueue(vec![NewJob::new(JobId(number), name("a"), "acme", *b"x")], now);
            let Enqueued::Accepted(place) = &answer.jobs[0] else { panic!("{answer:?}") };
            quoted.insert(JobId(number), place.eta.unwrap());
        }
        let lease = Span::from_secs(60);
        let ask =
            Dispatch { lane: name("a"), max: 100, lease, nonce: ms + 1, wait: Span::ZERO, denied: None };
        for grant in engine.dispatch(&ask, now).grants {
            if let Some(eta) = quoted.remove(&grant.job) {
                errors.push(now.as_millis().cast_signed() - eta.as_millis().cast_signed());
            }
            let ends = ms + (load.takes)(grant.lease.number);
            running.insert((ends, grant.lease.number), (grant.lease, (load.fails)(ms)));
        }
    }
    assert!(errors.len() > 100, "{}", errors.len());
    errors
}

/// The error in milliseconds, early or late, that this percentage of jobs does not exceed.
fn percentile(errors: &[i64], percent: usize) -> u64 {
    let mut off: Vec<u64> = errors.iter().map(|error| error.unsigned_abs()).collect();
    off.sort_unstable();
    off[(off.len() - 1) * percent / 100]
}

fn report(what: &str, load: &Load, p50: u64, p90: u64, p99: u64) {
    let errors = errors(load);
    let found = [50, 90, 99].map(|percent| percentile(&errors, percent));
    let late = errors.iter().filter(|error| **error > 0).count() * 100 / errors.len();
    println!("{what}: {} jobs, off by ms p50/p90/p99 {found:?}, {late} % late", errors.len());
    assert!(found[0] <= p50 && found[1] <= p90 && found[2] <= p99, "{what}: {found:?}");
}

fn rate(per_second: u32, burst: u32) -> GateSpecs {
    let mut gates = GateSpecs::default();
    gates.bucket = Some(BucketSpec::new(burst, per_second, Span::from_secs(1)).unwrap());
    gates
}

#[test]
fn quotes_of_a_steady_load() {
    let come = |ms: u64| u64::from(ms.is_multiple_of(110)) + if ms == 0 { 50 } else { 0 };
    let load = Load { gates: rate(10, 1), come, takes: |_| 30, fails: |_| false, until: 120_000 };
    report("steady, 10/s", &load, 10, 10, 20);
    let gates = GateSpecs::default().with_slots("max_concurrent", 5).unwrap();
    let come = |ms: u64| u64::from(ms.is_multiple_of(200)) + if ms == 0 { 20 } else { 0 };
    let takes = |number: u64| 500 + number * 7919 % 1_000;
    let load = Load { gates, come, takes, fails: |_| false, until: 300_000 };
    // The last percent arrived before anything was measured.
    report("steady, 5 slots", &load, 500, 1_500, 10_000);
}

#[test]
fn quotes_of_a_bursty_load() {
    let come = |ms: u64| if ms.is_multiple_of(20_000) { 60 } else { 0 };
    let load = Load { gates: rate(5, 20), come, takes: |_| 30, fails: |_| false, until: 120_000 };
    report("bursts of 60, 5/s", &load, 10, 10, 20);
    let mut gates = GateSpecs::default();
    gates.window = Some(WindowSpec::per_minute(60).unwrap());
    let come = |ms: u64| if ms.is_multiple_of(120_000) { 100 } else { 0 };
    let load = Load { gates, come, takes: |_| 300, fails: |_| false, until: 600_000 };
    report("bursts of 100, 60 a minute", &load, 300, 500, 500);
    let gates = GateSpecs::default().with_slots("max_concurrent", 5).unwrap();
    let come = |ms: u64| if ms.is_multiple_of(30_000) { 60 } else { 0 };
    let takes = |number: u64| 500 + number * 7919 % 1_000;
    let load = Load { gates, come, takes, fails: |_| false, until: 300_000 };
    report("bursts of 60, 5 slots", &load, 1_000, 4_000, 15_000);
}

#[test]
fn quotes_while_a_breaker_is_open() {
    let mut gates = rate(5, 5);
    gates.breaker = Some(BreakerSpec::new(3, Span::from_secs(30), 1).unwrap());
    let come = |ms: u64| u64::from(ms.is_multiple_of(250));
    // It is down in the third minute: earlier jobs do not know.
    let fails = |ms: u64| (120_000..150_000).contains(&ms);
    let load = Load { gates, come, takes: |_| 30, fails, until: 400_000 };
    report("breaker open", &load, 10, 100, 15_000);
}
