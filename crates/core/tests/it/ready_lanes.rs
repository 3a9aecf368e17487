//! Which lanes are reported to have something to start, so that a held dispatch is retried.

use std::sync::Arc;

use eclusa_core::gate::{BucketSpec, CallResult, CooldownSpec, GateSpecs};
use eclusa_core::retry::{RetryBudget, RetryPolicy};
use eclusa_core::{
    CallFailure, Chain, Dispatch, Engine, FailureReason, JobId, LaneSpec, Name, NewJob, Outcome, ProcessId,
    Registration, Settlement, Span, Spec, Time, UpstreamSpec,
};

const NOW: Time = Time::from_millis(1_700_000_000_000);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn bucket(capacity: u32, per: Span) -> BucketSpec {
    BucketSpec::new(capacity, 1, per).unwrap()
}

fn one_a_minute() -> GateSpecs {
    let mut gates = GateSpecs::default();
    gates.bucket = Some(bucket(1, Span::from_secs(60)));
    gates
}

/// A lane over `slow`, which allows one call per minute, with jobs that may also use `free`.
fn spec(edit: impl FnOnce(&mut LaneSpec)) -> Spec {
    let mut lane = LaneSpec::new(name("mail"), Chain::new(vec![name("slow")]).unwrap());
    edit(&mut lane);
    let upstreams = [("slow", one_a_minute()), ("free", GateSpecs::default())];
    let upstreams = upstreams.map(|(up, gates)| UpstreamSpec::new(name(up), gates));
    Spec::new(vec![lane], upstreams.to_vec()).unwrap()
}

fn enqueue(engine: &mut Engine, upstream: &str, id: u128) {
    let job = NewJob::new(JobId(id), name("mail"), "acme", *b"x");
    engine.enqueue(vec![NewJob { chain: Some(vec![name(upstream)]), ..job }], NOW);
}

fn dispatch(engine: &mut Engine, nonce: u64) -> Vec<(JobId, eclusa_core::LeaseId)> {
    let lease = Span::from_secs(600);
    let ask = Dispatch { lane: name("mail"), max: 10, lease, nonce, wait: Span::ZERO, denied: None };
    let grants = engine.dispatch(&ask, NOW).grants;
    engine.take_ready_lanes();
    grants.iter().map(|grant| (grant.job, grant.lease)).collect()
}

fn became_ready(engine: &mut Engine) -> bool {
    engine.take_ready_lanes() == [name("mail")]
}

#[test]
fn a_job_for_a_blocked_upstream_wakes_nothing_and_one_for_another_does() {
    let mut engine = Engine::new(&spec(|_| {}));
    enqueue(&mut engine, "slow", 1);
    assert!(became_ready(&mut engine), "the first that comes");
    enqueue(&mut engine, "slow", 2);
    assert_eq!(dispatch(&mut engine, 1).len(), 1);
    enqueue(&mut engine, "slow", 3);
    assert!(!became_ready(&mut engine), "it would wait as the second does");
    enqueue(&mut engine, "free", 4);
    assert!(became_ready(&mut engine), "it can start");
    assert_eq!(dispatch(&mut engine, 2)[0].0, JobId(4));
}

#[test]
fn what_comes_free_while_nothing_waits_is_reported_with_the_next_job() {
    let slots = GateSpecs::default().with_slots("max_concurrent", 1).unwrap();
    let lane = LaneSpec::new(name("mail"), Chain::new(vec![name("slow")]).unwrap());
    let mut engine =
        Engine::new(&Spec::new(vec![lane], vec![UpstreamSpec::new(name("slow"), slots)]).unwrap());
    enqueue(&mut engine, "slow", 1);
    enqueue(&mut engine, "slow", 2);
    let (_, lease) = dispatch(&mut engine, 1)[0];
    engine.cancel(JobId(2), NOW);
    let report = CallResult::Success.into();
    engine
        .settle(vec![Settlement { lease, report, outcome: Outcome::Done, answer: None, unsent: None }], NOW);
    engine.take_ready_lanes();
    enqueue(&mut engine, "slow", 3);
    assert!(became_ready(&mut engine));
}

#[test]
fn a_reset_of_one_key_wakes_the_lanes_of_its_upstream() {
    let key = name("slow").with_key(&name("a"));
    let ladder = [Span::from_secs(60)];
    let mut rests = GateSpecs::default();
    rests.cooldown = Some(CooldownSpec::new(&ladder).unwrap());
    let lane = LaneSpec::new(name("mail"), Chain::new(vec![name("slow")]).unwrap());
    let upstreams =
        vec![UpstreamSpec::new(name("slow"), GateSpecs::default()), UpstreamSpec::new(key.clone(), rests)];
    let mut engine = Engine::new(&Spec::new(vec![lane], upstreams).unwrap());
    engine.record(&key, CallResult::Throttled, NOW);
    enqueue(&mut engine, "slow", 1);
    assert_eq!(dispatch(&mut engine, 1), []);
    engine.reset(&key, NOW);
    assert!(became_ready(&mut engine));
    assert_eq!(dispatch(&mut engine, 2).len(), 1);
}

#[test]
fn changed_rules_wake_the_lane_that_waits_for_its_retry_budget() {
    let budget = |per| RetryBudget::new(0, bucket(1, per)).unwrap();
    let rules = |per| spec(|lane| lane.retry = RetryPolicy::default().with_budget(Some(budget(per))));
    let mut engine = Engine::new(&rules(Span::from_secs(3_600)));
    enqueue(&mut engine, "free", 1);
    enqueue(&mut engine, "free", 2);
    let failed = |lease| {
        let failure = CallFailure { reason: FailureReason::new("no").unwrap(), code: None, upstream: None };
        let outcome = Outcome::Retry { after: Span::ZERO, failure };
        Settlement { lease, report: CallResult::Failed.into(), outcome, answer: None, unsent: None }
    };
    let failed = dispatch(&mut engine, 1).into_iter().map(|(_, lease)| failed(lease)).collect();
    engine.settle(failed, NOW);
    assert_eq!(dispatch(&mut engine, 2).len(), 1, "the other waits for the budget");
    let spec = Arc::new(rules(Span::from_secs(1)));
    engine.register(Registration { process: ProcessId::EMBEDDED, stamp: 1, about: "".into(), spec }, NOW);
    assert!(became_ready(&mut engine));
}
