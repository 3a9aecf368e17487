//! Which rules are in force, how registrations end, and what happens to lanes and upstreams without rules.

use std::sync::Arc;

use eclusa_core::gate::{BreakerSpec, BucketSpec, CallResult, GateSpecs, Reason};
use eclusa_core::retry::{OnAmbiguous, RetryPolicy};
use eclusa_core::{
    Admission, Admit, Capacity, Chain, Dispatch, Engine, Enqueued, JobId, LaneSpec, Level, Name, NewJob,
    ProcessId, Registration, Restorer, Span, Spec, Status, Time, UpstreamSpec,
};

const NOW: Time = Time::from_millis(1_700_000_000_000);
const LEASE: Span = Span::from_secs(10);

fn after(secs: u64) -> Time {
    NOW + Span::from_secs(secs)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn lane(text: &str) -> LaneSpec {
    LaneSpec::new(name(text), Chain::new(vec![name("up")]).unwrap())
}

/// These lanes to one upstream.
fn spec(lanes: &[&str], slots: u32) -> Spec {
    let gates = GateSpecs::default().with_slots("max_concurrent", slots).unwrap();
    let lanes = lanes.iter().map(|text| lane(text)).collect();
    Spec::new(lanes, vec![UpstreamSpec::new(name("up"), gates)]).unwrap()
}

fn register(engine: &mut Engine, process: u64, stamp: u64, spec: Spec, now: Time) {
    let (process, about) = (ProcessId(process), format!("process {process}").into());
    engine.register(Registration { process, stamp, about, spec: Arc::new(spec) }, now);
}

fn slots(engine: &Engine) -> Option<i64> {
    engine.upstream_view(&name("up"), NOW)?.gates.first()?.limit
}

fn job(id: u128, lane: &str) -> NewJob {
    NewJob::new(JobId(id), name(lane), "acme", *b"x")
}

fn enqueue(engine: &mut Engine, id: u128, lane: &str, now: Time) -> Enqueued {
    engine.enqueue(vec![job(id, lane)], now).jobs.remove(0)
}

fn starts(engine: &mut Engine, lane: &str, now: Time) -> Vec<u128> {
    let ask = Dispatch { lane: name(lane), max: 10, lease: LEASE, nonce: 1, wait: Span::ZERO, denied: None };
    engine.dispatch(&ask, now).grants.iter().map(|grant| grant.job.0).collect()
}

fn admit(engine: &mut Engine, now: Time) -> Admission {
    let ask = Admit {
        lane: None,
        tenant: None,
        chain: vec![name("up")],
        holds: Vec::new(),
        correlation: None,
        lease: LEASE,
        nonce: 2,
        after: None,
        probe: true,
    };
    engine.admit(&ask, now).admission
}

fn saved(engine: &mut Engine) -> Vec<u8> {
    let mut chunk = Engine::begin_chunk();
    engine.save_changes(&mut chunk).unwrap();
    chunk
}

fn restored(chunks: &[Vec<u8>]) -> Engine {
    let mut restorer = Restorer::default();
    chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
    restorer.finish(1).unwrap()
}

#[test]
fn the_highest_stamp_wins_and_the_process_breaks_ties() {
    let mut engine = Engine::default();
    register(&mut engine, 5, 100, spec(&["a"], 5), NOW);
    register(&mut engine, 7, 90, spec(&["a"], 7), NOW);
    assert_eq!(slots(&engine), Some(5));
    register(&mut engine, 8, 100, spec(&["a"], 8), NOW);
    assert_eq!(slots(&engine), Some(8));
    engine.unregister(ProcessId(8), NOW);
    assert_eq!(slots(&engine), Some(5));
    engine.unregister(ProcessId(5), NOW);
    assert_eq!(slots(&engine), Some(7));
    let differs: Vec<_> = engine.registrations().map(|view| view.differs).collect();
    assert_eq!(differs, [0]);
}

#[test]
fn a_reload_replaces_the_rules_of_its_process_and_a_late_one_changes_nothing() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, spec(&["a", "b"], 1), NOW);
    register(&mut engine, 1, 20, spec(&["a"], 2), NOW);
    register(&mut engine, 1, 15, spec(&["b"], 3), NOW);
    assert_eq!(slots(&engine), Some(2));
    assert!(enqueue(&mut engine, 1, "a", NOW).is_accepted());
    assert_eq!(enqueue(&mut engine, 2, "b", NOW), Enqueued::UnknownLane);
    saved(&mut engine);
    register(&mut engine, 1, 20, spec(&["a"], 2), after(1));
    assert!(!engine.has_changes(), "the same once more is nothing new");
}

#[test]
fn registrations_show_live_processes_and_where_rules_differ() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, spec(&["a", "b"], 1), NOW);
    register(&mut engine, 2, 20, spec(&["a", "c"], 2), after(5));
    assert!(engine.heard_from(ProcessId(1), after(9)));
    let views: Vec<_> = engine.registrations().collect();
    let shown: Vec<_> = views
        .iter()
        .map(|view| (view.process.0, view.stamp, &*view.about, view.last_heard, view.differs))
        .collect();
    assert_eq!(
        shown,
        [(1, 10, "process 1", Some(after(9)), 1), (2, 20, "process 2", Some(after(5)), 0)],
        "only the upstream differs"
    );
}

#[test]
fn a_registration_ends_after_thirty_seconds_of_silence_and_not_before() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, spec(&["a"], 1), NOW);
    assert!(engine.heard_from(ProcessId(1), after(20)));
    engine.sweep(after(49));
    assert!(enqueue(&mut engine, 1, "a", after(49)).is_accepted());
    assert_eq!(enqueue(&mut engine, 2, "a", after(50)), Enqueued::UnknownLane);
    assert!(!engine.heard_from(ProcessId(1), after(50)), "it must register again");
    register(&mut engine, 1, 10, spec(&["a"], 1), after(51));
    assert_eq!(starts(&mut engine, "a", after(51)), [1]);
}

#[test]
fn all_processes_count_as_live_after_a_restore() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, spec(&["a"], 1), NOW);
    let mut engine = restored(&[saved(&mut engine)]);
    assert_eq!(engine.registrations().map(|view| view.last_heard).collect::<Vec<_>>(), [None]);
    assert!(enqueue(&mut engine, 1, "a", after(1_000)).is_accepted());
    engine.sweep(after(1_029));
    assert_eq!(engine.registrations().count(), 1);
    engine.sweep(after(1_030));
    assert_eq!(engine.registrations().count(), 0);
    assert_eq!(starts(&mut engine, "a", after(1_030)), []);
}

#[test]
fn the_process_of_an_embedded_store_is_never_silent() {
    let mut engine = Engine::new(&spec(&["a"], 1));
    assert_eq!(engine.sweep(after(1)).next, Time::NEVER);
    assert!(enqueue(&mut engine, 1, "a", after(1_000_000)).is_accepted());
}

#[test]
fn a_lane_and_an_upstream_without_rules_keep_what_they_have_and_wait() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, spec(&["a"], 1), NOW);
    enqueue(&mut engine, 1, "a", NOW);
    engine.unregister(ProcessId(1), NOW);
    let over_a_restart = restored(&[saved(&mut engine)]);
    for mut engine in [over_a_restart, engine] {
        assert_eq!(engine.why(JobId(1), NOW).unwrap().reason, Some(Reason::RulesGone));
        assert_eq!(Reason::RulesGone.as_str(), "rules_gone");
        assert_eq!(starts(&mut engine, "a", NOW), []);
        let denied = admit(&mut engine, NOW);
        assert!(matches!(&denied, Admission::Denied { denial, .. } if denial.reason == Reason::RulesGone));
        assert_eq!(engine.sweep(after(1)).ended, []);
        register(&mut engine, 2, 20, spec(&["a"], 1), after(2));
        assert_eq!(starts(&mut engine, "a", after(2)), [1]);
    }
}

#[test]
fn a_job_says_when_only_its_upstream_has_no_rules() {
    let other = |upstream: &str| {
        let lane = LaneSpec::new(name("a"), Chain::new(vec![name(upstream)]).unwrap());
        Spec::new(vec![lane], vec![UpstreamSpec::new(name(upstream), GateSpecs::default())]).unwrap()
    };
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, other("old"), NOW);
    enqueue(&mut engine, 1, "a", NOW);
    register(&mut engine, 1, 20, other("new"), NOW);
    enqueue(&mut engine, 2, "a", NOW);
    let why = engine.why(JobId(1), NOW).unwrap();
    assert_eq!((why.reason, why.upstream), (Some(Reason::RulesGone), Some(name("old"))));
    assert_eq!(starts(&mut engine, "a", NOW), [2]);
}

#[test]
fn missing_rules_are_reported_before_any_other_reason() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, spec(&["a"], 1), NOW);
    engine.enqueue(vec![NewJob { delay: Span::from_secs(60), ..job(1, "a") }], NOW);
    enqueue(&mut engine, 2, "a", NOW);
    engine.pause(&name("a"), true, NOW);
    let reasons = |engine: &Engine| [1, 2].map(|id| engine.why(JobId(id), NOW).unwrap().reason);
    assert_eq!(reasons(&engine), [Some(Reason::Paused); 2]);
    engine.unregister(ProcessId(1), NOW);
    assert_eq!(reasons(&engine), [Some(Reason::RulesGone); 2]);
    // The lane is back, without the upstream that the jobs were accepted for.
    let lane = LaneSpec::new(name("a"), Chain::new(vec![name("new")]).unwrap());
    let other = Spec::new(vec![lane], vec![UpstreamSpec::new(name("new"), GateSpecs::default())]).unwrap();
    register(&mut engine, 2, 20, other, NOW);
    assert_eq!(reasons(&engine), [Some(Reason::RulesGone); 2]);
}

#[test]
fn the_last_rules_decide_what_happens_to_a_running_job() {
    let mut rules = spec(&["a"], 1);
    let mut careful = lane("a");
    careful.retry = RetryPolicy::default().on_ambiguous(OnAmbiguous::Stop);
    rules = Spec::new(vec![careful], rules.upstreams().to_vec()).unwrap();
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, rules, NOW);
    enqueue(&mut engine, 1, "a", NOW);
    assert_eq!(starts(&mut engine, "a", NOW), [1]);
    register(&mut engine, 1, 20, spec(&["b"], 1), NOW);
    let mut engine = restored(&[saved(&mut engine)]);
    engine.sweep(NOW + LEASE);
    assert_eq!(engine.job(JobId(1)).unwrap().status, Status::Failed, "a second call is worse than none");
}

#[test]
fn a_bucket_gains_under_the_old_rule_until_it_changes() {
    let with = |per_second: u32| {
        let mut gates = GateSpecs::default();
        gates.bucket = Some(BucketSpec::new(10, per_second, Span::from_secs(1)).unwrap());
        Spec::new(vec![], vec![UpstreamSpec::new(name("up"), gates)]).unwrap()
    };
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, with(1), NOW);
    for _ in 0..10 {
        assert!(matches!(admit(&mut engine, NOW), Admission::Granted { .. }));
    }
    register(&mut engine, 1, 20, with(5), after(3));
    let tokens =
        |engine: &Engine, now| engine.upstream_view(&name("up"), now).unwrap().tokens.unwrap().as_micro();
    assert_eq!(tokens(&engine, after(3)), 3_000_000);
    assert_eq!(tokens(&engine, after(4)), 8_000_000);
}

#[test]
fn a_lowered_capacity_evicts_nobody_and_one_more_urgent_job_replaces_one() {
    let room = |jobs| {
        let mut rules = lane("a");
        rules.capacity = Capacity::new(jobs, 1_000).unwrap();
        Spec::new(vec![rules], spec(&[], 1).upstreams().to_vec()).unwrap()
    };
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, room(5), NOW);
    for id in 1..=5 {
        engine.enqueue(vec![NewJob { level: Level::Low, ..job(id, "a") }], NOW);
    }
    register(&mut engine, 1, 20, room(2), NOW);
    assert_eq!(engine.sweep(NOW).ended, []);
    let refused = engine.enqueue(vec![NewJob { level: Level::Low, ..job(6, "a") }], NOW);
    assert_eq!(refused.jobs, [Enqueued::QueueFull]);
    let urgent = engine.enqueue(vec![NewJob { level: Level::High, ..job(7, "a") }], NOW);
    assert_eq!((urgent.jobs[0].is_accepted(), urgent.ended.len()), (true, 1));
    assert_eq!(engine.lane_view(&name("a"), NOW).unwrap().queued, [1, 0, 4]);
}

#[test]
fn lowered_slots_admit_nothing_until_enough_calls_have_ended() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, spec(&["a"], 3), NOW);
    (1..=5).for_each(|id| drop(enqueue(&mut engine, id, "a", NOW)));
    assert_eq!(starts(&mut engine, "a", NOW), [1, 2, 3]);
    register(&mut engine, 1, 20, spec(&["a"], 1), NOW);
    assert_eq!(starts(&mut engine, "a", NOW), []);
    engine.sweep(NOW + LEASE);
    assert_eq!(starts(&mut engine, "a", NOW + LEASE), [1]);
}

/// The rules for the upstream of a gateway or, if `partial`, of a program that uses the library: the rate, and the
/// number of failures that open the breaker.
fn gates(partial: bool, rate: Option<u32>, failures: Option<u32>) -> Spec {
    let mut gates = GateSpecs::default();
    gates.bucket = rate.map(|rate| BucketSpec::new(rate, rate, Span::from_secs(3_600)).unwrap());
    gates.breaker = failures.map(|failures| BreakerSpec::new(failures, Span::from_secs(30), 1).unwrap());
    let upstreams = vec![UpstreamSpec::new(name("up"), gates)];
    if partial { Spec::partial(upstreams).unwrap() } else { Spec::new(vec![], upstreams).unwrap() }
}

/// The rate in force, and whether there is a breaker.
fn in_force(engine: &Engine) -> (Option<i64>, bool) {
    let gates = engine.upstream_view(&name("up"), NOW).unwrap().gates;
    let find = |reason| gates.iter().find(|gate| gate.reason == reason);
    (find(Reason::RateLimit).and_then(|gate| gate.limit), find(Reason::CircuitOpen).is_some())
}

const TEN: Option<i64> = Some(10_000_000);

#[test]
fn gates_of_a_gateway_and_of_the_library_both_apply_in_either_order_of_start() {
    for (gateway, library) in [(10, 20), (20, 10)] {
        let mut engine = Engine::default();
        register(&mut engine, 1, gateway, gates(false, None, Some(1)), NOW);
        register(&mut engine, 2, library, gates(true, Some(10), None), NOW);
        assert_eq!(in_force(&engine), (TEN, true));
        engine.record(&name("up"), CallResult::Failed, NOW);
        let mut engine = restored(&[saved(&mut engine)]);
        assert_eq!(in_force(&engine), (TEN, true));
        let denied = admit(&mut engine, NOW);
        assert!(matches!(&denied, Admission::Denied { denial, .. } if denial.reason == Reason::CircuitOpen));
        let differs: Vec<_> = engine.registrations().map(|view| view.differs).collect();
        assert_eq!(differs, [0, 0], "what another adds is no difference");
    }
}

#[test]
fn a_gate_missing_from_the_config_of_the_newest_gateway_is_removed() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, gates(false, None, Some(1)), NOW);
    register(&mut engine, 2, 20, gates(true, Some(10), None), NOW);
    register(&mut engine, 3, 30, gates(false, None, None), NOW);
    assert_eq!(in_force(&engine), (TEN, false), "though the old gateway is still there");
    let differs: Vec<_> = engine.registrations().map(|view| view.differs).collect();
    assert_eq!(differs, [1, 0, 0]);
    register(&mut engine, 3, 40, gates(false, None, Some(1)), NOW);
    assert_eq!(in_force(&engine), (TEN, true));
}

#[test]
fn a_gate_of_the_library_ends_with_it_and_returns_unchanged() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, gates(false, None, Some(1)), NOW);
    register(&mut engine, 2, 20, gates(true, Some(10), None), NOW);
    for _ in 0..10 {
        assert!(matches!(admit(&mut engine, NOW), Admission::Granted { .. }));
    }
    engine.unregister(ProcessId(2), NOW);
    assert_eq!(in_force(&engine), (None, true));
    let over_a_restart = restored(&[saved(&mut engine)]);
    for mut engine in [over_a_restart, engine] {
        register(&mut engine, 2, 30, gates(true, Some(10), None), after(360));
        let tokens = engine.upstream_view(&name("up"), after(360)).unwrap().tokens;
        assert_eq!(tokens.unwrap().as_micro(), 1_000_000, "what it gained in six minutes");
    }
}

#[test]
fn the_newer_of_two_rules_for_the_same_gate_wins() {
    let mut engine = Engine::default();
    register(&mut engine, 1, 10, gates(false, Some(5), None), NOW);
    register(&mut engine, 2, 20, gates(true, Some(10), None), NOW);
    assert_eq!(in_force(&engine).0, TEN);
    let differs: Vec<_> = engine.registrations().map(|view| view.differs).collect();
    assert_eq!(differs, [1, 0]);
    register(&mut engine, 1, 30, gates(false, Some(5), None), NOW);
    assert_eq!(in_force(&engine).0, Some(5_000_000));
    register(&mut engine, 3, 40, gates(true, Some(7), None), NOW);
    assert_eq!(in_force(&engine).0, Some(7_000_000));
}
