//! Alerts: each fires once and resolves once, whichever process evaluates.

use eclusa_core::gate::{BreakerSpec, CallResult, GateSpecs};
use eclusa_core::{
    Alert, AlertKey, AlertLimits, AlertRule, CALLBACKS, Chain, Condition, DeadLetterRate, Evaluation,
    LaneSpec, NewJob, Notice, Recipient, Severity, Span, Spec, Store, UpstreamSpec, Watch,
};

use crate::harness::{Harness, Open};
use crate::rules::{LANE, UP, job, name, plain, secs};

const HOLD: Span = secs(10);
const CLEAR: Span = secs(30);

/// A lane in addition to the one that delivers notices.
fn with_notices(gates: GateSpecs) -> Spec {
    let chain = |up: &str| Chain::new(vec![name(up)]).expect("a chain that can be");
    let lanes = vec![LaneSpec::new(name(LANE), chain(UP)), LaneSpec::new(name(CALLBACKS), chain(CALLBACKS))];
    let upstreams =
        vec![UpstreamSpec::new(name(UP), gates), UpstreamSpec::new(name(CALLBACKS), GateSpecs::default())];
    Spec::new(lanes, upstreams).expect("rules that fit together")
}

/// Everything is off.
fn limits() -> AlertLimits {
    AlertLimits {
        dead_letters: None,
        tenant_dead_letters: None,
        dead_letter_rate: None,
        oldest_wait: None,
        breaker_open: false,
        redis_rejected_connections: false,
        store_lost_data: false,
        hold: HOLD,
        clear: CLEAR,
    }
}

fn by(limits: AlertLimits) -> Evaluation {
    Evaluation { limits, seen: Vec::new(), rejected_connections: None, operators: true, tenants: Vec::new() }
}

/// What one evaluation fired and resolved.
async fn look<S: Store>(q: &Harness<S>, evaluation: &Evaluation) -> (Vec<Alert>, Vec<Alert>) {
    let changes = q.watch(Watch { lost_data: false, evaluation: Some(evaluation.clone()) }).await;
    assert_eq!(changes.ended, []);
    (changes.fired, changes.resolved)
}

/// The same in numbers.
async fn looks<S: Store>(q: &Harness<S>, evaluation: &Evaluation) -> (usize, usize) {
    let (fired, resolved) = look(q, evaluation).await;
    (fired.len(), resolved.len())
}

/// Notices that were not dispatched before.
async fn notices<S: Store>(q: &Harness<S>) -> Vec<Notice> {
    let grants = q.dispatch_from(CALLBACKS, 100).await.grants;
    for grant in &grants {
        q.done(grant).await;
    }
    grants.iter().map(|grant| Notice::decode(&grant.payload).expect("a notice")).collect()
}

/// Jobs of `tenant` that become dead letters.
async fn fail<S: Store>(q: &Harness<S>, tenant: &str, numbers: std::ops::Range<u128>) {
    let jobs = numbers.map(|number| NewJob { tenant: tenant.into(), ..job(number) });
    q.accept(jobs).await;
    for grant in q.take(100).await {
        q.dead(&grant).await;
    }
}

fn of_lane(rule: AlertRule) -> AlertKey {
    AlertKey { lane: Some(name(LANE)), ..AlertKey::new(rule, Severity::Warning) }
}

fn whole(number: u64) -> u64 {
    number * 1_000_000
}

pub async fn an_alert_fires_once_and_resolves_once<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_notices(GateSpecs::default()));
    let rules = by(AlertLimits { dead_letters: Some(2), ..limits() });
    fail(&q, "acme", 1..3).await;
    assert_eq!(looks(&q, &rules).await, (0, 0), "as many as there may be");
    fail(&q, "acme", 3..4).await;
    let since = q.now();
    assert_eq!(looks(&q, &rules).await, (0, 0), "it may be over at once");
    q.pass(HOLD);
    let (fired, _) = look(&q, &rules).await;
    let key = of_lane(AlertRule::DeadLetters);
    let condition = Condition { key, value_micros: whole(3), threshold_micros: whole(2) };
    let alert = Alert { condition, since, resolved: None };
    assert_eq!(fired, std::slice::from_ref(&alert));
    assert_eq!(notices(&q).await, [Notice { to: Recipient::Operators, alert: alert.clone() }]);
    q.pass(secs(3600));
    assert_eq!(looks(&q, &rules).await, (0, 0), "it fires already");
    assert_eq!(q.alerts().await.firing, std::slice::from_ref(&alert));

    q.discard(1).await;
    assert_eq!(looks(&q, &rules).await, (0, 0), "it may come back at once");
    q.pass(CLEAR);
    let (_, resolved) = look(&q, &rules).await;
    let over = Alert { resolved: Some(q.now()), ..alert };
    assert_eq!(resolved, std::slice::from_ref(&over));
    assert_eq!(notices(&q).await, [Notice { to: Recipient::Operators, alert: over.clone() }]);
    assert_eq!(looks(&q, &rules).await, (0, 0));
    let shown = q.alerts().await;
    assert_eq!((shown.firing, shown.recent), (vec![], vec![over]));
    assert_eq!(notices(&q).await, []);
}

pub async fn a_condition_that_comes_and_goes_changes_nothing<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_notices(GateSpecs::default()));
    let rules = by(AlertLimits { dead_letters: Some(0), ..limits() });
    fail(&q, "acme", 1..2).await;
    assert_eq!(looks(&q, &rules).await, (0, 0));
    q.discard(1).await;
    q.pass(HOLD);
    assert_eq!(looks(&q, &rules).await, (0, 0), "it was over before it fired");
    fail(&q, "acme", 2..3).await;
    assert_eq!(looks(&q, &rules).await, (0, 0), "and starts again");
    q.pass(HOLD);
    assert_eq!(looks(&q, &rules).await, (1, 0));
    q.discard(2).await;
    assert_eq!(looks(&q, &rules).await, (0, 0));
    fail(&q, "acme", 3..4).await;
    q.pass(CLEAR);
    assert_eq!(looks(&q, &rules).await, (0, 0), "it came back before it resolved");
    q.discard(3).await;
    assert_eq!(looks(&q, &rules).await, (0, 0));
    q.pass(CLEAR);
    assert_eq!(looks(&q, &rules).await, (0, 1));
    assert_eq!(notices(&q).await.len(), 2);
}

pub async fn a_tenant_is_notified_only_of_its_own_alerts<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_notices(GateSpecs::default()));
    let limits = AlertLimits { tenant_dead_letters: Some(1), hold: Span::ZERO, ..limits() };
    let rules = Evaluation { operators: false, tenants: vec!["acme".into(), "emca".into()], ..by(limits) };
    fail(&q, "acme", 1..3).await;
    fail(&q, "other", 3..6).await;
    fail(&q, "emca", 6..7).await;
    let (fired, _) = look(&q, &rules).await;
    let tenants: Vec<_> = fired.iter().filter_map(|alert| alert.condition.key.tenant.as_deref()).collect();
    assert_eq!(tenants, ["other", "acme"], "the tenant with the most comes first");
    let sent = notices(&q).await;
    assert_eq!(sent, [Notice { to: Recipient::Tenant("acme".into()), alert: fired[1].clone() }]);
    assert_eq!(sent[0].alert.condition.value_micros, whole(2));

    let rules = Evaluation { operators: true, ..rules };
    fail(&q, "emca", 7..8).await;
    assert_eq!(looks(&q, &rules).await, (1, 0));
    let to: Vec<_> = notices(&q).await.into_iter().map(|notice| notice.to).collect();
    assert_eq!(to, [Recipient::Operators, Recipient::Tenant("emca".into())]);
}

pub async fn the_share_of_dead_letters_is_measured_over_the_last_period<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_notices(GateSpecs::default()));
    let rate = DeadLetterRate { share_micros: 20_000, over: secs(3600), min: 50 };
    let rules =
        by(AlertLimits { dead_letter_rate: Some(rate), hold: Span::ZERO, clear: Span::ZERO, ..limits() });
    assert_eq!(looks(&q, &rules).await, (0, 0));
    fail(&q, "acme", 1..3).await;
    assert_eq!(looks(&q, &rules).await, (0, 0), "too few for a share");
    for number in 100..148 {
        q.accept([job(number)]).await;
        let grant = q.next().await;
        q.done(&grant).await;
    }
    q.pass(secs(60));
    let (fired, _) = look(&q, &rules).await;
    assert_eq!((fired.len(), fired[0].condition.value_micros), (1, 40_000));
    assert_eq!(fired[0].condition.key, of_lane(AlertRule::DeadLetterRate));
    q.pass(secs(3600));
    assert_eq!(looks(&q, &rules).await, (0, 1), "that was over an hour ago");
    assert_eq!(q.letters().await, [1, 2], "though they are still there");
}

pub async fn a_job_that_waits_in_its_line_for_too_long_is_an_alert<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_notices(GateSpecs::default()));
    let rules =
        by(AlertLimits { oldest_wait: Some(secs(300)), hold: Span::ZERO, clear: Span::ZERO, ..limits() });
    // A job scheduled in an hour does not wait in a line.
    q.accept([NewJob { delay: secs(3600), ..job(1) }]).await;
    assert_eq!(looks(&q, &rules).await, (0, 0));
    q.pass(secs(3600));
    q.sweep().await;
    assert_eq!(looks(&q, &rules).await, (0, 0), "it has just lined up");
    q.pass(secs(200));
    q.accept([job(2)]).await;
    assert_eq!(looks(&q, &rules).await, (0, 0));
    q.pass(secs(101));
    let (fired, _) = look(&q, &rules).await;
    assert_eq!(fired[0].condition.key, of_lane(AlertRule::OldestWait));
    assert_eq!(fired[0].condition.value_micros, whole(301));
    let first = q.next().await;
    q.done(&first).await;
    assert_eq!(looks(&q, &rules).await, (0, 1), "the next one came later");
    q.pass(secs(300));
    assert_eq!(looks(&q, &rules).await, (1, 0));
    q.next().await;
    assert_eq!(looks(&q, &rules).await, (0, 1), "nothing waits");
}

pub async fn a_breaker_that_opens_is_an_alert_at_once<S: Store>(open: Open<S>) {
    let mut gates = GateSpecs::default();
    gates.breaker = Some(BreakerSpec::new(1, secs(30), 1).expect("a breaker that can be"));
    let q = Harness::new(open, &with_notices(gates));
    let rules = by(AlertLimits { breaker_open: true, ..limits() });
    assert_eq!(looks(&q, &rules).await, (0, 0));
    q.record(UP, CallResult::Failed).await;
    let (fired, _) = look(&q, &rules).await;
    let key = AlertKey::new(AlertRule::BreakerOpen, Severity::Warning);
    assert_eq!(fired[0].condition.key, AlertKey { upstream: Some(name(UP)), ..key });
    q.pass(secs(31));
    assert_eq!(looks(&q, &rules).await, (0, 0), "half open is not closed");
    q.record(UP, CallResult::Success).await;
    q.recover(UP).await;
    assert_eq!(looks(&q, &rules).await, (0, 0));
    q.pass(CLEAR);
    assert_eq!(looks(&q, &rules).await, (0, 1));
}

pub async fn refused_connections_are_an_alert_for_five_minutes<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_notices(GateSpecs::default()));
    let limits = AlertLimits { redis_rejected_connections: true, clear: Span::ZERO, ..limits() };
    let seen = |count| Evaluation { rejected_connections: Some(count), ..by(limits.clone()) };
    assert_eq!(looks(&q, &seen(7)).await, (0, 0), "nobody knows when those were");
    q.pass(secs(5));
    let (fired, _) = look(&q, &seen(9)).await;
    assert_eq!(
        (fired[0].condition.key.severity, fired[0].condition.value_micros),
        (Severity::Critical, whole(2))
    );
    q.pass(secs(299));
    assert_eq!(looks(&q, &seen(9)).await, (0, 0));
    q.pass(secs(1));
    assert_eq!(looks(&q, &seen(9)).await, (0, 1));
    assert_eq!(looks(&q, &seen(0)).await, (0, 0), "the server started again");
    assert_eq!(looks(&q, &seen(1)).await, (1, 0));
    assert_eq!(notices(&q).await.len(), 3);
}

pub async fn the_process_that_finds_lost_data_raises_the_alert<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_notices(GateSpecs::default()));
    let rules = by(AlertLimits { store_lost_data: true, clear: Span::ZERO, ..limits() });
    assert_eq!(looks(&q, &rules).await, (0, 0));
    let changes = q.watch(Watch { lost_data: true, evaluation: None }).await;
    assert_eq!((changes.fired, notices(&q).await), (vec![], vec![]), "it does not evaluate");
    assert_eq!(looks(&q, &rules).await, (1, 0));
    q.pass(secs(3599));
    assert_eq!(looks(&q, &rules).await, (0, 0));
    q.pass(secs(1));
    assert_eq!(looks(&q, &rules).await, (0, 1));
}

pub async fn conditions_found_by_the_evaluating_process_count_too<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_notices(GateSpecs::default()));
    let seen = |severity, value_micros| {
        let key = AlertKey::new(AlertRule::RedisMemory, severity);
        Condition { key, value_micros, threshold_micros: 800_000 }
    };
    let both = [seen(Severity::Warning, 910_000), seen(Severity::Critical, 910_000)];
    let rules = Evaluation { seen: both.to_vec(), ..by(limits()) };
    assert_eq!(looks(&q, &rules).await, (0, 0));
    q.pass(HOLD);
    assert_eq!(looks(&q, &rules).await, (2, 0));
    let rules = Evaluation { seen: vec![seen(Severity::Warning, 850_000)], ..rules };
    assert_eq!(looks(&q, &rules).await, (0, 0));
    q.pass(CLEAR);
    let (_, resolved) = look(&q, &rules).await;
    assert_eq!((resolved.len(), resolved[0].condition.key.severity), (1, Severity::Critical));
    assert_eq!(q.alerts().await.firing[0].condition.value_micros, 850_000, "it shows the last value");
}

pub async fn without_a_lane_for_notices_alerts_are_only_shown<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let rules = by(AlertLimits { dead_letters: Some(0), hold: Span::ZERO, ..limits() });
    fail(&q, "acme", 1..2).await;
    assert_eq!(looks(&q, &rules).await, (1, 0));
    assert_eq!(q.alerts().await.firing.len(), 1);
}

pub async fn only_the_last_alerts_that_resolved_are_kept<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let rules = by(AlertLimits { clear: Span::ZERO, hold: Span::ZERO, ..limits() });
    let tenant = |number: u32| {
        let key = of_lane(AlertRule::TenantDeadLetters);
        let key = AlertKey { tenant: Some(format!("{number:04}").into()), ..key };
        Condition { key, value_micros: 1, threshold_micros: 0 }
    };
    let many = Evaluation { seen: (0..120).map(tenant).collect(), ..rules.clone() };
    assert_eq!(looks(&q, &many).await, (120, 0));
    assert_eq!(looks(&q, &rules).await, (0, 120));
    let recent = q.alerts().await.recent;
    let whose = |alert: &Alert| alert.condition.key.tenant.clone();
    assert_eq!((recent.len(), whose(&recent[0])), (100, Some("0119".into())));
}
