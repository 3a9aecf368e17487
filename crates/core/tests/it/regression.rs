//! Bugs that random sequences and reviews found, as short scenarios.

use std::sync::Arc;

use eclusa_core::gate::{BucketSpec, CallResult, GateSpecs, PaceSpec, WindowSpec};
use eclusa_core::{
    Admission, Admit, Advance, Advanced, CallFailure, Capacity, Chain, Charge, Dispatch, Dispatched, Engine,
    FailureReason, Grant, Hold, JobId, Keep, LaneSpec, LeaseId, Level, Name, NewJob, Outcome, Report,
    Restorer, RetryAfter, Settled, Settlement, Span, Spec, Terms, Time, Tokens, UpstreamSpec, Usage,
};

const NOW: Time = Time::from_millis(1_700_000_000_000);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn after(secs: u64) -> Time {
    NOW + Span::from_secs(secs)
}

/// One lane to one upstream, with changes to both.
fn spec(lane: impl FnOnce(&mut LaneSpec), upstream: GateSpecs) -> Spec {
    let mut rule = LaneSpec::new(name("email"), Chain::new(vec![name("ses")]).unwrap());
    lane(&mut rule);
    Spec::new(vec![rule], vec![UpstreamSpec::new(name("ses"), upstream)]).unwrap()
}

/// One token a minute.
fn slow() -> BucketSpec {
    BucketSpec::new(1, 1, Span::from_secs(60)).unwrap()
}

fn slow_gates() -> GateSpecs {
    let mut gates = GateSpecs::default();
    gates.bucket = Some(slow());
    gates
}

fn job(id: u128) -> NewJob {
    NewJob::new(JobId(id), name("email"), "acme", vec![])
}

fn dispatch(engine: &mut Engine, now: Time) -> Dispatched {
    let ask = Dispatch {
        lane: name("email"),
        max: 10,
        lease: Span::from_secs(10),
        nonce: 1,
        wait: Span::ZERO,
        denied: None,
    };
    engine.dispatch(&ask, now)
}

fn start(engine: &mut Engine, now: Time) -> Grant {
    dispatch(engine, now).grants.pop().unwrap()
}

fn failure() -> CallFailure {
    CallFailure { reason: FailureReason::new("refused").unwrap(), code: None, upstream: None }
}

fn settle(engine: &mut Engine, lease: LeaseId, result: CallResult, outcome: Outcome, now: Time) -> Settled {
    let settlement = Settlement { lease, report: Report::from(result), outcome, answer: None, unsent: None };
    engine.settle(vec![settlement], now).leases[0]
}

fn own_bucket(engine: &Engine, now: Time) -> i64 {
    let gates = engine.upstream_view(&name("ses"), now).unwrap().gates;
    gates[0].level
}

#[test]
fn a_job_whose_worker_vanished_after_the_whole_chain_failed_runs_again() {
    let mut engine = Engine::new(&spec(|_| {}, GateSpecs::default()));
    engine.enqueue(vec![job(1)], NOW);
    let lease = start(&mut engine, NOW).lease;
    let upstream = name("ses");
    let ask = Advance {
        lease,
        upstream,
        report: Report::from(CallResult::Failed),
        failure: failure(),
        unsent: None,
    };
    assert_eq!(engine.advance(ask, NOW), Advanced::Exhausted);
    let again = start(&mut engine, after(11));
    assert_eq!((again.job, again.attempt), (JobId(1), 2));
}

#[test]
fn the_count_of_refused_jobs_survives_a_restart() {
    let spec = spec(|lane| lane.capacity = Capacity::new(1, 100).unwrap(), GateSpecs::default());
    let mut engine = Engine::new(&spec);
    let mut restorer = Restorer::default();
    for id in [1, 2] {
        engine.enqueue(vec![job(id)], NOW);
        let mut chunk = Engine::begin_chunk();
        engine.save_changes(&mut chunk).unwrap();
        restorer.apply(&chunk).unwrap();
    }
    let restored = restorer.finish(1).unwrap();
    assert_eq!(restored.lanes(NOW)[0].totals.refused, 1);
}

#[test]
fn a_job_that_was_never_sent_returns_the_lanes_token() {
    let mut engine = Engine::new(&spec(|lane| lane.gates = slow_gates(), GateSpecs::default()));
    engine.enqueue(vec![job(1)], NOW);
    let first = start(&mut engine, NOW);
    settle(&mut engine, first.lease, CallResult::NotSent, Outcome::Release, NOW);
    assert_eq!(start(&mut engine, NOW).job, JobId(1));
}

#[test]
fn an_awaiting_call_returns_its_token_at_most_once() {
    let mut gates = slow_gates();
    gates.bucket = Some(BucketSpec::new(2, 1, Span::from_secs(60)).unwrap());
    let mut engine = Engine::new(&spec(|_| {}, gates));
    engine.enqueue(vec![job(1), job(2)], NOW);
    let grants = dispatch(&mut engine, NOW).grants;
    assert_eq!(own_bucket(&engine, NOW), 0);
    let awaited = settle(
        &mut engine,
        grants[0].lease,
        CallResult::NotSent,
        Outcome::awaiting(Span::from_secs(60)),
        NOW,
    );
    let Settled::Awaiting(lease) = awaited else { panic!("{awaited:?}") };
    settle(&mut engine, lease, CallResult::NotSent, Outcome::Done, NOW);
    assert_eq!(own_bucket(&engine, NOW), 1_000_000);
}

/// An engine whose only waiting job is parked at its empty bucket.
fn parked() -> Engine {
    let mut engine = Engine::new(&spec(|_| {}, GateSpecs::default()));
    let hold = || Hold::new(name("ses"), "scope", slow(), Tokens::ONE).unwrap();
    assert!(matches!(admit(&mut engine, vec![hold()], NOW), Admission::Granted { .. }));
    let mut waits = job(1);
    waits.holds.push(hold());
    engine.enqueue(vec![waits], NOW);
    assert_eq!(dispatch(&mut engine, NOW).grants, []);
    engine
}

#[test]
fn a_line_parked_at_a_bucket_does_not_make_the_sweeper_spin() {
    let mut engine = parked();
    assert!(engine.sweep(after(61)).next > after(61));
}

#[test]
fn a_bucket_is_removed_after_its_parked_job_was_cancelled() {
    let mut engine = parked();
    engine.cancel(JobId(1), NOW);
    // The running call holds its token until its lease is over; a minute later the bucket is full.
    engine.sweep(after(100));
    engine.sweep(after(160));
    assert_eq!(engine.bucket("scope", after(160)), None);
    assert_eq!(dispatch(&mut engine, after(160)).grants, []);
}

#[test]
fn a_full_bucket_keeps_no_fraction() {
    let mut engine = Engine::new(&spec(|_| {}, slow_gates()));
    let admission = admit(&mut engine, vec![], NOW);
    let Admission::Granted { lease, .. } = admission else { panic!("nothing hinders it") };
    // A millisecond gains 16 2/3 micro-tokens. The two thirds must not outlive the token that is returned.
    let [first, second] = [1, 2].map(|ms| NOW + Span::from_millis(ms));
    settle(&mut engine, lease, CallResult::NotSent, Outcome::Release, first);
    assert!(matches!(admit(&mut engine, vec![], first), Admission::Granted { .. }));
    assert_eq!(own_bucket(&engine, second), 16);
}

#[test]
fn a_job_id_that_failed_twice_has_one_dead_letter() {
    let forgetful = |lane: &mut LaneSpec| lane.keep = Keep { span: Span::ZERO, max: 0 };
    let mut engine = Engine::new(&spec(forgetful, GateSpecs::default()));
    for _ in 0..2 {
        engine.enqueue(vec![job(1)], NOW);
        let lease = start(&mut engine, NOW).lease;
        settle(&mut engine, lease, CallResult::Failed, Outcome::Dead(failure()), NOW);
    }
    assert_eq!(crate::rules::letters(&engine, &name("email")).len(), 1);
    let swept = engine.sweep(after(8 * 86_400));
    assert_eq!((swept.dead_letters.len(), swept.next), (1, Time::NEVER));
}

fn admit(engine: &mut Engine, holds: Vec<Hold>, now: Time) -> Admission {
    let ask = Admit {
        lane: None,
        tenant: None,
        chain: vec![name("ses")],
        holds,
        correlation: None,
        lease: Span::from_secs(100),
        nonce: 1,
        after: None,
        probe: true,
    };
    engine.admit(&ask, now).admission
}

fn holding(hold: Hold, id: u128, tenant: &str) -> NewJob {
    NewJob { tenant: tenant.into(), holds: vec![hold], ..job(id) }
}

#[test]
fn lines_parked_at_a_closed_bucket_do_not_keep_the_lane_busy() {
    let mut engine = Engine::new(&spec(|_| {}, GateSpecs::default()));
    let rule = BucketSpec::new(1_000, 1_000, Span::from_secs(1)).unwrap();
    let hold = |tokens| Hold::new(name("ses"), "b", rule, Tokens::whole(tokens)).unwrap();
    let Admission::Granted { lease, .. } = admit(&mut engine, vec![hold(1_000)], NOW) else {
        panic!("the bucket is full")
    };
    for n in 0..600 {
        engine.enqueue(vec![holding(hold(1), n + 1, &format!("t{n}"))], NOW);
    }
    (0..3).for_each(|_| assert_eq!(dispatch(&mut engine, NOW).grants, []));
    let retry_after = Some(RetryAfter { wait: Span::from_secs(60), bucket: Some("b".into()) });
    let report = Report { retry_after, ..CallResult::Throttled.into() };
    engine.settle(
        vec![Settlement { lease, report, outcome: Outcome::Release, answer: None, unsent: None }],
        NOW,
    );
    engine.enqueue(vec![job(9_999)], after(1));
    let granted = (1..30).any(|second| !dispatch(&mut engine, after(second)).grants.is_empty());
    assert!(granted, "a job that needs nothing from the bucket never started");
    let next = dispatch(&mut engine, after(30)).next;
    assert!(next > after(30), "there is nothing to do before the bucket opens, but next is {next:?}");
}

#[test]
fn lanes_that_share_a_bucket_both_get_from_it() {
    let lane = |lane: &str| LaneSpec::new(name(lane), Chain::new(vec![name("ses")]).unwrap());
    let upstream = UpstreamSpec::new(name("ses"), GateSpecs::default());
    let mut engine = Engine::new(&Spec::new(vec![lane("old"), lane("new")], vec![upstream]).unwrap());
    let go = |engine: &mut Engine, lane: &str, now| {
        let ask = Dispatch {
            lane: name(lane),
            max: 100,
            lease: Span::from_secs(10),
            nonce: 1,
            wait: Span::ZERO,
            denied: None,
        };
        let leases: Vec<_> = engine.dispatch(&ask, now).grants.iter().map(|grant| grant.lease).collect();
        let done = |lease| Settlement {
            lease,
            report: CallResult::Success.into(),
            outcome: Outcome::Done,
            answer: None,
            unsent: None,
        };
        engine.settle(leases.iter().copied().map(done).collect(), now).ended.len()
    };
    // Many turns have passed in one lane and none in the other.
    for n in 0..200 {
        let of_two = NewJob { lane: name("old"), tenant: format!("w{}", n % 2).into(), ..job(10_000 + n) };
        engine.enqueue(vec![of_two], NOW);
        go(&mut engine, "old", NOW);
    }
    let rule = BucketSpec::new(1, 1, Span::from_secs(1)).unwrap();
    let hold = || Hold::new(name("ses"), "b", rule, Tokens::ONE).unwrap();
    for n in 0..100 {
        let tenant = format!("t{}", n % 10);
        engine.enqueue(vec![NewJob { lane: name("new"), ..holding(hold(), n, &tenant) }], NOW);
        if n < 10 {
            engine.enqueue(vec![NewJob { lane: name("old"), ..holding(hold(), 1_000 + n, &tenant) }], NOW);
        }
    }
    let mut old = 0;
    for half_seconds in 0..100 {
        let now = NOW + Span::from_millis(half_seconds * 500);
        old += go(&mut engine, "old", now);
        go(&mut engine, "new", now);
    }
    assert_eq!(old, 10, "the old lane got {old} of its ten jobs through in fifty seconds");
}

#[test]
fn a_negative_cost_adds_no_tokens() {
    let mut engine = Engine::new(&spec(|_| {}, GateSpecs::default()));
    let rule = BucketSpec::new(10, 1, Span::from_secs(3_600)).unwrap();
    let charge = Charge::default().from_usage("used").unwrap();
    let terms = Arc::new(Terms { charge, credit: None });
    let hold = || Hold::new(name("ses"), "b", rule, Tokens::whole(5)).unwrap().under(terms.clone());
    for _ in 0..2 {
        let Admission::Granted { lease, .. } = admit(&mut engine, vec![hold()], NOW) else {
            panic!("there are tokens")
        };
        let usage = Usage::Amount(Tokens::from_micro(-5_000_000));
        let report = Report { status: Some(200), usage, ..CallResult::Success.into() };
        engine.settle(
            vec![Settlement { lease, report, outcome: Outcome::Release, answer: None, unsent: None }],
            NOW,
        );
    }
    assert_eq!(engine.bucket("b", NOW), Some(Tokens::whole(10)));
}

#[test]
fn a_sweep_that_left_buckets_asks_to_be_repeated() {
    let mut engine = Engine::new(&spec(|_| {}, GateSpecs::default()));
    for n in 0..150 {
        let hold = Hold::new(name("ses"), &format!("b{n}"), slow(), Tokens::ONE).unwrap();
        let Admission::Granted { lease, .. } = admit(&mut engine, vec![hold], NOW) else {
            panic!("each has a token")
        };
        settle(&mut engine, lease, CallResult::Success, Outcome::Release, NOW);
    }
    assert!(engine.sweep(after(100)).next <= after(100));
    assert_eq!(engine.sweep(after(100)).next, Time::NEVER);
}

#[test]
fn extreme_times_and_spans_are_counted_without_overflow() {
    let mut gates = slow_gates();
    gates.bucket = Some(BucketSpec::new(1, 1, Span::from_millis(u64::MAX)).unwrap());
    gates.window = Some(WindowSpec::per_minute(1_000).unwrap());
    let longest = Span::from_millis(u64::MAX / 1_000 + 1);
    gates.pace = Some(PaceSpec::new(longest, longest, longest).unwrap());
    let mut engine = Engine::new(&spec(|_| {}, gates));
    engine.enqueue(vec![job(1), job(2)], Time::NEVER);
    let lease = start(&mut engine, Time::NEVER).lease;
    assert!(engine.why(JobId(2), Time::NEVER).is_some());
    settle(&mut engine, lease, CallResult::Throttled, Outcome::Done, Time::NEVER);
}

#[test]
fn the_tenant_served_last_is_not_removed_with_the_idle_ones() {
    let keep_none = |lane: &mut LaneSpec| lane.keep = Keep { span: Span::ZERO, max: 0 };
    let mut engine = Engine::new(&spec(keep_none, GateSpecs::default()));
    let of = |id: u128, level| NewJob { tenant: format!("t{id}").into(), level, ..job(id) };
    engine.enqueue(vec![of(0, Level::Low)], NOW);
    for id in 1..=10_050 {
        engine.enqueue(vec![of(id, Level::High)], NOW);
    }
    loop {
        let grants = dispatch(&mut engine, NOW).grants;
        if grants.is_empty() {
            break;
        }
        for grant in grants {
            settle(&mut engine, grant.lease, CallResult::Success, Outcome::Done, NOW);
        }
    }
    engine.enqueue(vec![of(20_000, Level::Low)], NOW);
    assert_eq!(start(&mut engine, after(20)).job, JobId(20_000));
}
