use std::sync::Arc;

use super::*;
use crate::charge::{Charge, CreditRule, Terms};
use crate::gate::{BreakerSpec, CooldownSpec, GateSpecs, PaceSpec, Reason, WindowSpec};
use crate::pattern::Patterns;
use crate::policy::HashKey;
use crate::spec::{Chain, LaneSpec, Spec, UpstreamSpec};
use crate::verbs::{Admission, Admit, Credit, Credited, Outcome, Settled, Settlement};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

const fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

fn at(secs: u64) -> Time {
    Time::from_millis(1_000_000 + secs * 1_000)
}

fn lease(number: u64) -> LeaseId {
    LeaseId { epoch: 1 << 63, number, nonce: 9 }
}

/// A lane `a` and an upstream `up` with these gates.
fn spec(lane: GateSpecs, upstream: GateSpecs) -> Spec {
    let mut rules = LaneSpec::new(name("a"), Chain::new(vec![name("up")]).unwrap());
    rules.gates = lane;
    Spec::new(vec![rules], vec![UpstreamSpec::new(name("up"), upstream)]).unwrap()
}

fn gates(change: impl FnOnce(&mut GateSpecs)) -> GateSpecs {
    let mut gates = GateSpecs::default();
    change(&mut gates);
    gates
}

fn slots(slots: u32) -> GateSpecs {
    GateSpecs::default().with_slots("max_concurrent", slots).unwrap()
}

fn rpm(limit: u32) -> GateSpecs {
    gates(|gates| gates.window = Some(WindowSpec::per_minute(limit).unwrap()))
}

fn rate(capacity: u32, per_second: u32) -> GateSpecs {
    gates(|gates| gates.bucket = Some(BucketSpec::new(capacity, per_second, secs(1)).unwrap()))
}

/// The rules on the lane, and the rules on the upstream.
fn either(rules: &GateSpecs) -> [Spec; 2] {
    [spec(rules.clone(), GateSpecs::default()), spec(GateSpecs::default(), rules.clone())]
}

fn running(number: u64, began: Span, lasts: Span) -> FallbackCall {
    FallbackCall { lease: Some((lease(number), lasts)), ..ended(began, None) }
}

fn ended(began: Span, ended: Option<Span>) -> FallbackCall {
    let (lane, upstream) = (Some(name("a")), name("up"));
    FallbackCall {
        lane,
        tenant: None,
        upstream,
        holds: Vec::new(),
        correlation: None,
        began,
        lease: None,
        ended,
    }
}

fn report(result: CallResult, ago: Span) -> FallbackReport {
    FallbackReport { upstream: name("up"), result, retry_after: None, hold: None, began: None, ago }
}

/// A process with half of every limit and unknown balances.
fn calls(calls: impl IntoIterator<Item = FallbackCall>) -> FallbackLog {
    let calls: Vec<_> = calls.into_iter().collect();
    let since = calls.iter().map(|call| call.began).max().unwrap_or(secs(60));
    FallbackLog { share: Share::new(0, 2).unwrap(), since, left: Vec::new(), calls, reports: Vec::new() }
}

fn reports(reports: impl IntoIterator<Item = FallbackReport>) -> FallbackLog {
    FallbackLog { reports: reports.into_iter().collect(), ..calls([]) }
}

fn ask() -> Admit {
    Admit {
        lane: Some(name("a")),
        tenant: None,
        chain: Vec::new(),
        holds: Vec::new(),
        correlation: None,
        lease: secs(10),
        nonce: 7,
        after: None,
        probe: true,
    }
}

/// The lease, or the reason and end of the denial.
fn admit(engine: &mut Engine, now: Time) -> Result<LeaseId, (Reason, Time)> {
    match engine.admit(&ask(), now).admission {
        Admission::Granted { lease, .. } => Ok(lease),
        Admission::Denied { denial, .. } => Err((denial.reason, denial.at)),
        other => panic!("{other:?}"),
    }
}

fn settle(engine: &mut Engine, lease: LeaseId, result: CallResult, now: Time) -> Settled {
    let settlement =
        Settlement { lease, report: result.into(), outcome: Outcome::Release, answer: None, unsent: None };
    engine.settle(vec![settlement], now).leases[0]
}

#[test]
fn an_exceeded_limit_admits_nothing_until_enough_calls_ended() {
    for rules in either(&slots(6)) {
        let mut engine = Engine::new(&rules);
        engine.catch_up(calls((0..9).map(|n| running(n, secs(5), secs(20)))), at(10));
        assert_eq!(admit(&mut engine, at(10)), Err((Reason::Concurrency, at(30))));
        assert_eq!(engine.extend(&[lease(8), lease(9)], secs(40), at(11)), [true, false]);
        for n in 0..3 {
            assert_eq!(settle(&mut engine, lease(n), CallResult::Success, at(12)), Settled::Released);
            assert!(admit(&mut engine, at(12)).is_err(), "six are still running");
        }
        settle(&mut engine, lease(3), CallResult::Success, at(12));
        assert!(admit(&mut engine, at(12)).is_ok());
        assert!(admit(&mut engine, at(12)).is_err());
        assert_eq!(engine.upstream_view(&name("up"), at(12)).unwrap().in_flight, 6);
    }
}

#[test]
fn running_calls_count_once_however_often_they_are_reported() {
    let mut rules = rate(10, 1);
    rules.window = rpm(10).window;
    for rules in either(&rules.with_slots("max_concurrent", 10).unwrap()) {
        let mut engine = Engine::new(&rules);
        engine.catch_up(calls((0..4).map(|n| running(n, secs(0), secs(20)))), at(10));
        let once = engine.snapshot().unwrap();
        engine.catch_up(calls((0..4).map(|n| running(n, secs(1), secs(19)))), at(11));
        assert_eq!(engine.snapshot().unwrap(), once);
        assert_eq!((0..99).take_while(|_| admit(&mut engine, at(10)).is_ok()).count(), 6);
    }
}

#[test]
fn what_was_caught_up_survives_a_restart() {
    for rules in either(&slots(6)) {
        let mut engine = Engine::new(&rules);
        engine.catch_up(calls((0..6).map(|n| running(n, secs(5), secs(20)))), at(10));
        let mut chunk = Engine::begin_chunk();
        engine.save_changes(&mut chunk).unwrap();
        let mut restorer = crate::Restorer::default();
        restorer.apply(&chunk).unwrap();
        let mut engine = restorer.finish(1).unwrap();
        assert!(admit(&mut engine, at(11)).is_err());
        settle(&mut engine, lease(0), CallResult::Success, at(11));
        assert!(admit(&mut engine, at(11)).is_ok());
    }
}

#[test]
fn spending_beyond_a_bucket_leaves_it_in_debt() {
    for rules in either(&rate(10, 1)) {
        let mut engine = Engine::new(&rules);
        assert!((0..8).all(|_| admit(&mut engine, at(10)).is_ok()));
        let mut absent = vec![running(1, secs(0), secs(20))];
        absent.extend((0..4).map(|_| ended(secs(0), None)));
        engine.catch_up(calls(absent), at(10));
        assert_eq!(admit(&mut engine, at(10)), Err((Reason::RateLimit, at(14))), "3 in debt");
        settle(&mut engine, lease(1), CallResult::NotSent, at(10));
        assert_eq!(admit(&mut engine, at(10)), Err((Reason::RateLimit, at(13))), "a token came back");
    }
}

#[test]
fn the_refill_of_its_own_share_is_not_charged() {
    for rules in either(&rate(10, 2)) {
        // Five at once, then one per second for an hour: its share was empty all the time.
        let burst = (0..5).map(|_| ended(secs(3_600), None));
        let fallback_log = calls(burst.chain((0..3_600).map(|ago| ended(secs(ago), None))));
        let half =
            [BucketOf::Lane(name("a")), BucketOf::Upstream(name("up"))].map(|of| (of, Tokens::whole(5)));
        for (left, free) in [(half.to_vec(), 5), (Vec::new(), 0)] {
            let mut engine = Engine::new(&rules);
            engine.catch_up(FallbackLog { left, ..fallback_log.clone() }, at(4_000));
            assert_eq!((0..99).take_while(|_| admit(&mut engine, at(4_000)).is_ok()).count(), free);
        }
    }
    // A share of nothing refills nothing.
    for rules in either(&rate(1, 1)) {
        let mut engine = Engine::new(&rules);
        let share = Share::new(1, 2).unwrap();
        engine.catch_up(
            FallbackLog { share, ..calls([ended(secs(50), None), ended(secs(20), None)]) },
            at(100),
        );
        assert_eq!(admit(&mut engine, at(100)), Err((Reason::RateLimit, at(102))));
    }
}

#[test]
fn calls_are_charged_to_the_limits_of_their_tenant() {
    let mut rules = spec(GateSpecs::default(), GateSpecs::default());
    rules.lanes[0].tenant_limits.rate = Patterns::of_all(BucketSpec::new(3, 1, secs(100)).unwrap());
    rules.lanes[0].tenant_limits.concurrency = Patterns::of_all(2.try_into().unwrap());
    let mut engine = Engine::new(&rules);
    let of = |tenant: &str, call| FallbackCall { tenant: Some(tenant.into()), ..call };
    let running = [of("a", running(1, secs(2), secs(20))), of("a", running(2, secs(1), secs(20)))];
    engine.catch_up(calls(running), at(100));
    let admit = |engine: &mut Engine, tenant: &str| match engine
        .admit(&Admit { tenant: Some(tenant.into()), ..ask() }, at(100))
        .admission
    {
        Admission::Denied { denial, .. } => Some(denial.reason),
        _ => None,
    };
    assert_eq!(admit(&mut engine, "a"), Some(Reason::Concurrency));
    assert_eq!(admit(&mut engine, "b"), None);
    settle(&mut engine, lease(1), CallResult::Success, at(100));
    assert_eq!(admit(&mut engine, "a"), None);
    settle(&mut engine, lease(2), CallResult::Success, at(100));
    assert_eq!(admit(&mut engine, "a"), Some(Reason::RateLimit), "two were spent in between");
}

#[test]
fn scoped_buckets_are_charged_and_settled() {
    let mut engine = Engine::new(&spec(GateSpecs::default(), GateSpecs::default()));
    let rule = BucketSpec::new(10, 1, secs(10)).unwrap();
    let hold = |tokens| Hold::new(name("up"), "cpf:1", rule, Tokens::whole(tokens)).unwrap();
    let call = FallbackCall { holds: vec![hold(7)], ..running(1, secs(20), secs(20)) };
    let done = FallbackCall { holds: vec![hold(6)], ..ended(secs(10), None) };
    engine.catch_up(calls([done, call]), at(100));
    assert_eq!(engine.bucket("cpf:1", at(100)), Some(Tokens::from_micro(-3_000_000)));
    settle(&mut engine, lease(1), CallResult::NotSent, at(100));
    assert_eq!(engine.bucket("cpf:1", at(100)), Some(Tokens::whole(4)));
    let long_ago = FallbackCall { holds: vec![hold(3)], ..ended(secs(50), None) };
    engine.catch_up(FallbackLog { since: secs(200), ..calls([long_ago]) }, at(100));
    assert_eq!(engine.bucket("cpf:1", at(100)), Some(Tokens::whole(4)), "it was gained again since");
}

#[test]
fn calls_made_elsewhere_earn_their_credit() {
    let mut engine = Engine::new(&spec(GateSpecs::default(), GateSpecs::default()));
    let rule = BucketSpec::new(10, 1, secs(10)).unwrap();
    let credit = CreditRule::new(&[("payment", Tokens::ONE)], secs(3_600)).unwrap();
    let terms = Arc::new(Terms { charge: Charge::default(), credit: Some(credit) });
    let hold = Hold::new(name("up"), "up/P/PF/", rule, Tokens::whole(5)).unwrap().under(terms);
    let correlation = |id| HashKey::new(1).correlation(id);
    let call =
        |call, id| FallbackCall { holds: vec![hold.clone()], correlation: Some(correlation(id)), ..call };
    engine.catch_up(
        calls([call(ended(secs(0), None), "over"), call(running(1, secs(0), secs(9)), "runs")]),
        at(100),
    );
    let pays = |engine: &mut Engine, id| {
        let paid = Credit { event: "payment".into(), correlation: correlation(id) };
        matches!(engine.credit(&[paid], at(100)).as_slice(), [Credited::Buckets(_)])
    };
    assert!(pays(&mut engine, "over"));
    assert!(!pays(&mut engine, "runs"), "its cost is not known yet");
    settle(&mut engine, lease(1), CallResult::Unknown, at(100));
    assert!(pays(&mut engine, "runs"));
    assert_eq!(engine.bucket("up/P/PF/", at(100)), Some(Tokens::whole(2)));
}

#[test]
fn window_places_become_free_when_they_would_have() {
    for rules in either(&rpm(3)) {
        let mut engine = Engine::new(&rules);
        let long_over = ended(secs(70), Some(secs(61)));
        let absent = [ended(secs(45), Some(secs(40))), running(1, secs(5), secs(20)), ended(secs(10), None)];
        engine.catch_up(calls(absent.into_iter().chain([long_over])), at(100));
        assert_eq!(admit(&mut engine, at(100)), Err((Reason::Window, at(120))), "40 s of 60 are over");
        assert_eq!(engine.upstream_view(&name("up"), at(100)).unwrap().starts_last_minute, 3);
        assert!(admit(&mut engine, at(120)).is_ok());
        assert_eq!(admit(&mut engine, at(120)), Err((Reason::Window, at(150))), "it had no lease");
    }
}

#[test]
fn a_breaker_that_opened_in_fallback_stays_open_for_the_rest_of_its_window() {
    let rules = gates(|gates| gates.breaker = Some(BreakerSpec::new(3, secs(30), 1).unwrap()));
    let mut engine = Engine::new(&spec(GateSpecs::default(), rules));
    let late = FallbackReport { began: Some(secs(20)), ..report(CallResult::Success, secs(5)) };
    let failed = [12, 11, 10].map(|ago| report(CallResult::Failed, secs(ago)));
    engine.catch_up(reports(failed.into_iter().chain([late])), at(100));
    assert_eq!(admit(&mut engine, at(100)), Err((Reason::CircuitOpen, at(120))));
}

#[test]
fn a_success_from_before_others_opened_the_breaker_does_not_close_it() {
    let rules = gates(|gates| gates.breaker = Some(BreakerSpec::new(1, secs(30), 1).unwrap()));
    let mut engine = Engine::new(&spec(GateSpecs::default(), rules));
    engine.record(&name("up"), CallResult::Failed, at(100));
    engine.catch_up(reports([report(CallResult::Success, secs(5))]), at(104));
    engine.catch_up(calls([running(1, secs(10), secs(20))]), at(104));
    assert_eq!(admit(&mut engine, at(104)), Err((Reason::CircuitOpen, at(130))));
    settle(&mut engine, lease(1), CallResult::Success, at(105));
    assert_eq!(
        admit(&mut engine, at(105)),
        Err((Reason::CircuitOpen, at(130))),
        "nor does one from a running call"
    );
    assert_eq!(engine.upstream_view(&name("up"), at(105)).unwrap().failures, 1);
    engine.catch_up(reports([report(CallResult::Success, secs(1))]), at(106));
    assert!(admit(&mut engine, at(106)).is_ok(), "one from after it does");
}

#[test]
fn cooldowns_and_retry_after_end_when_they_would_have() {
    let rules = gates(|gates| gates.cooldown = Some(CooldownSpec::new(&[secs(10), secs(30)]).unwrap()));
    let mut engine = Engine::new(&spec(GateSpecs::default(), rules));
    let errors = [CallResult::Throttled, CallResult::Failed].map(|result| report(result, secs(8)));
    engine.catch_up(reports(errors), at(100));
    assert_eq!(admit(&mut engine, at(100)), Err((Reason::Cooldown, at(122))));
    engine.catch_up(reports([report(CallResult::Success, secs(9))]), at(100));
    assert_eq!(admit(&mut engine, at(100)), Err((Reason::Cooldown, at(122))), "it was before the errors");
    let retry_after = Some(RetryAfter { wait: secs(60), bucket: None });
    engine.catch_up(
        reports([FallbackReport { retry_after, ..report(CallResult::Unknown, secs(15)) }]),
        at(100),
    );
    assert_eq!(admit(&mut engine, at(100)), Err((Reason::UpstreamRetryAfter, at(145))));
}

/// The bucket is full here and therefore not stored, but the Retry-After was for this scope only.
#[test]
fn a_retry_after_closes_the_narrowest_bucket_of_the_call() {
    let mut engine = Engine::new(&spec(GateSpecs::default(), GateSpecs::default()));
    let bucket = BucketSpec::new(10, 1, secs(60)).unwrap();
    let hold = |key| Hold::new(name("up"), key, bucket, Tokens::ONE).unwrap();
    let holds = ["up/ALL//", "up/USER//18d4956485ad7666b6a267f418061e86"].map(hold);
    let narrowest = Hold::narrowest(&holds, &name("up")).cloned();
    assert_eq!(narrowest.as_ref(), Some(&holds[1]));
    assert_eq!(Hold::narrowest(&holds, &name("other")), None);
    let retry_after = Some(RetryAfter { wait: secs(60), bucket: None });
    let report = FallbackReport { retry_after, hold: narrowest, ..report(CallResult::Throttled, secs(15)) };
    engine.catch_up(reports([report]), at(100));
    assert!(admit(&mut engine, at(100)).is_ok(), "other calls are admitted");
    let mut closed = |holds| match engine.admit(&Admit { holds, ..ask() }, at(100)).admission {
        Admission::Denied { denial, .. } => Some((denial.reason, denial.at)),
        _ => None,
    };
    assert_eq!(closed(vec![hold("up/ALL//")]), None);
    assert_eq!(closed(holds.to_vec()), Some((Reason::UpstreamRetryAfter, at(145))));
}

#[test]
fn the_pace_continues_from_the_last_start() {
    let rules = gates(|gates| gates.pace = Some(PaceSpec::new(secs(10), secs(1), secs(60)).unwrap()));
    for rules in either(&rules) {
        let mut engine = Engine::new(&rules);
        engine.catch_up(calls([ended(secs(4), None), ended(secs(14), None)]), at(100));
        assert_eq!(admit(&mut engine, at(100)), Err((Reason::Pace, at(106))));
    }
}

#[test]
fn unknown_lanes_and_upstreams_are_skipped() {
    let mut engine = Engine::new(&spec(slots(1), slots(2)));
    let before = engine.snapshot().unwrap();
    let nowhere = FallbackCall { upstream: name("nowhere"), ..running(1, secs(1), secs(20)) };
    engine.catch_up(calls([nowhere]), at(10));
    let elsewhere = FallbackReport { upstream: name("nowhere"), ..report(CallResult::Failed, secs(1)) };
    engine.catch_up(reports([elsewhere]), at(10));
    assert_eq!(engine.snapshot().unwrap(), before);
    let laneless = FallbackCall { lane: Some(name("gone")), ..running(2, secs(1), secs(20)) };
    engine.catch_up(calls([laneless]), at(10));
    assert!(admit(&mut engine, at(10)).is_ok(), "the lane's slot is free");
    assert_eq!(engine.upstream_view(&name("up"), at(10)).unwrap().in_flight, 2);
}

/// Calls with a key count at the key and at its upstream; with an unknown key, only at the upstream.
#[test]
fn calls_with_a_key_are_counted_at_the_key_and_at_its_upstream() {
    let plain = spec(GateSpecs::default(), slots(9));
    let key = UpstreamSpec::new(name("up").with_key(&name("k")), slots(3));
    let mut engine = Engine::new(&Spec::new(plain.lanes, [plain.upstreams, vec![key]].concat()).unwrap());
    let with =
        |key: &str, call: FallbackCall| FallbackCall { upstream: name("up").with_key(&name(key)), ..call };
    let done = [with("k", running(1, secs(1), secs(9))), with("gone", running(2, secs(1), secs(9)))];
    engine.catch_up(calls(done), at(20));
    let in_flight = |engine: &Engine, name: &Name| engine.upstream_view(name, at(20)).unwrap().in_flight;
    let key = name("up").with_key(&name("k"));
    assert_eq!((in_flight(&engine, &name("up")), in_flight(&engine, &key)), (2, 1));
    let report = FallbackReport { upstream: key.clone(), ..report(CallResult::Throttled, secs(1)) };
    let retry_after = Some(RetryAfter { wait: secs(60), bucket: None });
    let fallback_log = FallbackLog { reports: vec![FallbackReport { retry_after, ..report }], ..calls([]) };
    engine.catch_up(fallback_log, at(20));
    let shut = |engine: &Engine, name: &Name| {
        engine.upstream_view(name, at(20)).unwrap().gates.iter().any(|gate| gate.denies_until.is_some())
    };
    assert!(shut(&engine, &key) && !shut(&engine, &name("up")));
}
