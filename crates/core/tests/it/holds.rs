//! A job that starts tells what held its lane while it waited.

use eclusa_core::gate::{BucketSpec, CallResult, GateSpecs, Reason, WindowSpec};
use eclusa_core::{
    Chain, Denied, Dispatch, Engine, EventKind, Hold, JobId, LaneSpec, Name, NewJob, Outcome, Patterns,
    Report, Restorer, Settlement, Span, Spec, Time, Tokens, UpstreamSpec, Waited,
};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn at(ms: u64) -> Time {
    Time::from_millis(1_000_000 + ms)
}

/// Two calls a minute to `up`, any number to `free`.
fn engine() -> Engine {
    let lane = LaneSpec::new(name("work"), Chain::new(vec![name("up")]).unwrap());
    let mut gates = GateSpecs::default();
    gates.window = Some(WindowSpec::per_minute(2).unwrap());
    let upstreams =
        vec![UpstreamSpec::new(name("up"), gates), UpstreamSpec::new(name("free"), GateSpecs::default())];
    Engine::new(&Spec::new(vec![lane], upstreams).unwrap())
}

fn enqueue(engine: &mut Engine, ids: std::ops::RangeInclusive<u128>, ms: u64) {
    let jobs = ids.map(|id| NewJob::new(JobId(id), name("work"), "acme", *b"x")).collect();
    engine.enqueue(jobs, at(ms));
}

/// A lane whose tenants start one job a minute each, at an upstream without limits.
fn one_a_minute_per_tenant() -> Engine {
    let mut lane = LaneSpec::new(name("work"), Chain::new(vec![name("free")]).unwrap());
    lane.tenant_limits.rate = Patterns::of_all(one_a_minute());
    let upstream = UpstreamSpec::new(name("free"), GateSpecs::default());
    Engine::new(&Spec::new(vec![lane], vec![upstream]).unwrap())
}

fn one_a_minute() -> BucketSpec {
    BucketSpec::new(1, 1, Span::from_secs(60)).unwrap()
}

/// Starts what may start, and completes it.
fn run(engine: &mut Engine, ms: u64) -> Vec<u128> {
    let (lease, wait) = (Span::from_secs(10), Span::ZERO);
    let ask = Dispatch { lane: name("work"), max: 100, lease, nonce: ms + 1, wait, denied: None };
    let grants = engine.dispatch(&ask, at(ms)).grants;
    let done = |lease| {
        let report = Report::from(CallResult::Success);
        Settlement { lease, report, outcome: Outcome::Done, answer: None, unsent: None }
    };
    engine.settle(grants.iter().map(|grant| done(grant.lease)).collect(), at(ms));
    grants.iter().map(|grant| grant.job.0).collect()
}

fn waited(engine: &Engine, job: u128) -> Option<Waited> {
    let view = engine.job(JobId(job)).unwrap();
    view.timeline.iter().find_map(|event| match &event.kind {
        EventKind::StartedAfter(_, waited) => Some(**waited),
        _ => None,
    })
}

fn restored(engine: &mut Engine) -> Engine {
    let mut chunk = Engine::begin_chunk();
    engine.save_changes(&mut chunk).unwrap();
    let mut restorer = Restorer::default();
    restorer.apply(&chunk).unwrap();
    restorer.finish(2).unwrap()
}

#[test]
fn a_job_that_waited_for_the_window_says_so_after_a_restart_too() {
    for restart in [false, true] {
        let mut engine = engine();
        enqueue(&mut engine, 1..=5, 0);
        assert_eq!(run(&mut engine, 0), [1, 2]);
        if restart {
            engine = restored(&mut engine);
        }
        assert_eq!(run(&mut engine, 60_000), [3, 4]);
        enqueue(&mut engine, 6..=6, 119_500);
        assert_eq!(run(&mut engine, 120_000), [5, 6]);
        let window = |since, until| Waited { reason: Reason::Window, since: at(since), until: at(until) };
        assert_eq!((waited(&engine, 1), waited(&engine, 2)), (None, None), "they started at once");
        assert_eq!(
            (waited(&engine, 3), waited(&engine, 4)),
            (Some(window(0, 60_000)), Some(window(0, 60_000)))
        );
        assert_eq!(waited(&engine, 5), Some(window(0, 120_000)));
        assert_eq!(waited(&engine, 6), None, "half a second is not worth mentioning");
    }
}

#[test]
fn a_paused_lane_is_a_reason_and_another_upstream_is_none() {
    let mut engine = engine();
    engine.pause(&name("work"), true, at(0));
    enqueue(&mut engine, 1..=3, 0);
    assert!(run(&mut engine, 0).is_empty());
    engine.pause(&name("work"), false, at(5_000));
    assert_eq!(run(&mut engine, 5_000), [1, 2]);
    let paused = Waited { reason: Reason::Paused, since: at(0), until: at(5_000) };
    assert_eq!(waited(&engine, 1), Some(paused));
    let other = NewJob { chain: Some(vec![name("free")]), ..NewJob::new(JobId(4), name("work"), "b", *b"x") };
    engine.enqueue(vec![other], at(10_000));
    assert_eq!(run(&mut engine, 20_000), [4], "job 3 waits for the window of the other upstream");
    assert_eq!(waited(&engine, 4), None);
}

/// Enqueues three jobs that share a bucket of one token per minute, and one of another tenant that comes later.
#[track_caller]
fn waits_at_a_bucket(mut engine: Engine, job: impl Fn(u128, &str) -> NewJob, upstream: Option<Name>) {
    engine.enqueue((1..=3).map(|id| job(id, "acme")).collect(), at(0));
    assert_eq!(run(&mut engine, 0), [1]);
    engine.enqueue(vec![job(4, "bolt")], at(10_000));
    assert_eq!(run(&mut engine, 20_000), [4], "others pass");
    let ask = Dispatch {
        lane: name("work"),
        max: 100,
        lease: Span::from_secs(10),
        nonce: 1_000_000,
        wait: Span::ZERO,
        denied: None,
    };
    let answer = engine.dispatch(&ask, at(30_000));
    let denied = Denied { upstream, reason: Reason::RateLimit };
    assert_eq!((answer.grants, answer.denied), (vec![], Some(denied)), "parked by an earlier dispatch");
    assert_eq!((run(&mut engine, 60_000), run(&mut engine, 120_000)), (vec![2], vec![3]));
    let limit = |until| Some(Waited { reason: Reason::RateLimit, since: at(0), until: at(until) });
    assert_eq!((waited(&engine, 1), waited(&engine, 4)), (None, None));
    assert_eq!((waited(&engine, 2), waited(&engine, 3)), (limit(60_000), limit(120_000)));
}

#[test]
fn a_job_that_waited_for_its_scoped_bucket_says_so() {
    let job = |id, tenant: &str| {
        let hold = Hold::new(name("free"), &format!("scope:{tenant}"), one_a_minute(), Tokens::ONE).unwrap();
        let chain = Some(vec![name("free")]);
        NewJob { chain, holds: vec![hold], ..NewJob::new(JobId(id), name("work"), tenant, *b"x") }
    };
    waits_at_a_bucket(engine(), job, Some(name("free")));
}

#[test]
fn a_job_that_waited_for_a_limit_of_its_tenant_says_so() {
    let job = |id, tenant: &str| NewJob::new(JobId(id), name("work"), tenant, *b"x");
    waits_at_a_bucket(one_a_minute_per_tenant(), job, None);
}

#[test]
fn the_longer_of_two_holds_is_told() {
    let mut engine = engine();
    let job = |id| {
        let hold = Hold::new(name("up"), "scope:a", one_a_minute(), Tokens::ONE).unwrap();
        NewJob { holds: vec![hold], ..NewJob::new(JobId(id), name("work"), "acme", *b"x") }
    };
    engine.enqueue(vec![job(1), job(2)], at(0));
    assert_eq!(run(&mut engine, 0), [1]);
    engine.pause(&name("work"), true, at(10_000));
    assert!(run(&mut engine, 10_000).is_empty());
    engine.pause(&name("work"), false, at(70_000));
    assert_eq!(run(&mut engine, 70_000), [2]);
    let limit = Waited { reason: Reason::RateLimit, since: at(0), until: at(70_000) };
    assert_eq!(waited(&engine, 2), Some(limit));
}

#[test]
fn a_paused_lane_says_since_when_after_a_restart_too() {
    let since = |engine: &Engine, ms| engine.lane_view(&name("work"), at(ms)).unwrap().paused_since;
    let mut engine = engine();
    engine.pause(&name("work"), true, at(0));
    assert!(run(&mut engine, 5_000).is_empty());
    engine.pause(&name("work"), true, at(6_000));
    let mut engine = restored(&mut engine);
    assert_eq!(since(&engine, 7_000), Some(at(0)), "paused once, with nothing to start");
    enqueue(&mut engine, 1..=1, 8_000);
    assert!(run(&mut engine, 9_000).is_empty());
    assert_eq!(since(&engine, 9_000), Some(at(0)));
    engine.pause(&name("work"), false, at(10_000));
    assert_eq!(since(&engine, 10_000), None);
    engine.pause(&name("work"), true, at(20_000));
    assert_eq!(since(&engine, 20_000), Some(at(20_000)), "nobody asked for jobs in between");
}
