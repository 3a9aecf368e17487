//! Shorthands for the rules and jobs of a scenario.

use std::sync::Arc;

use eclusa_core::gate::{BreakerSpec, BucketSpec, CallResult, CooldownSpec, GateSpecs, PaceSpec, WindowSpec};
use eclusa_core::{
    CacheSpec, CallFailure, Capacity, Chain, Charge, Fairness, Hold, JobId, LaneSpec, Level, Name, NewJob,
    Report, RetryAfter, Span, Spec, Terms, Tokens, UpstreamSpec,
};

/// The lane of scenarios that need only one.
pub(crate) const LANE: &str = "mail";

/// The upstream of scenarios that need only one.
pub(crate) const UP: &str = "ses";

/// The tenant of jobs that name none.
pub(crate) const TENANT: &str = "acme";

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a scenario's names are valid")
}

pub(crate) const fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Span {
    Span::from_millis(millis)
}

pub(crate) const fn id(number: u128) -> JobId {
    JobId(number)
}

/// One lane whose chain has all these upstreams, in order.
pub(crate) fn chain(upstreams: &[(&str, GateSpecs)], edit: impl FnOnce(&mut LaneSpec)) -> Spec {
    let names = upstreams.iter().map(|(upstream, _)| name(upstream)).collect();
    let mut lane = LaneSpec::new(name(LANE), Chain::new(names).expect("a chain that can be"));
    edit(&mut lane);
    let upstreams = upstreams.iter().map(|(up, gates)| UpstreamSpec::new(name(up), gates.clone())).collect();
    Spec::new(vec![lane], upstreams).expect("rules that fit together")
}

/// One lane to one upstream without limits.
pub(crate) fn lane(edit: impl FnOnce(&mut LaneSpec)) -> Spec {
    chain(&[(UP, GateSpecs::default())], edit)
}

/// One lane to one upstream with these gates.
pub(crate) fn upstream(gates: GateSpecs) -> Spec {
    chain(&[(UP, gates)], |_| {})
}

/// One lane to one upstream, with defaults.
pub(crate) fn plain() -> Spec {
    lane(|_| {})
}

pub(crate) fn free() -> GateSpecs {
    GateSpecs::default()
}

/// `base` with more gates.
pub(crate) fn gates(base: GateSpecs, edit: impl FnOnce(&mut GateSpecs)) -> GateSpecs {
    let mut gates = base;
    edit(&mut gates);
    gates
}

pub(crate) fn slots(slots: u32) -> GateSpecs {
    free().with_slots("max_concurrent", slots).expect("more than zero")
}

pub(crate) fn rpm(limit: u32) -> GateSpecs {
    gates(free(), |gates| gates.window = Some(WindowSpec::per_minute(limit).expect("more than zero")))
}

pub(crate) fn rate(per_second: u32, burst: u32) -> GateSpecs {
    gates(free(), |gates| gates.bucket = Some(bucket(burst, per_second, secs(1))))
}

/// One call per `span`.
pub(crate) fn one_per(span: Span) -> GateSpecs {
    gates(free(), |gates| gates.bucket = Some(bucket(1, 1, span)))
}

pub(crate) fn breaker(failures: u32, open_for: Span) -> GateSpecs {
    gates(free(), |gates| {
        gates.breaker = Some(BreakerSpec::new(failures, open_for, 1).expect("a breaker that can be"));
    })
}

pub(crate) fn cooldown() -> GateSpecs {
    let ladder = [10, 30, 60, 120].map(Span::from_secs);
    gates(free(), |gates| gates.cooldown = Some(CooldownSpec::new(&ladder).expect("a ladder that can be")))
}

pub(crate) fn pace(initial: Span) -> GateSpecs {
    gates(free(), |gates| {
        gates.pace = Some(PaceSpec::new(initial, millis(50), secs(60)).expect("a pace that can be"));
    })
}

/// An adaptive pace that starts with this interval.
pub(crate) fn adaptive(initial: Span) -> GateSpecs {
    gates(pace(initial), |gates| gates.pace = gates.pace.map(|rule| rule.adaptive(true)))
}

pub(crate) fn bucket(capacity: u32, refill: u32, per: Span) -> BucketSpec {
    BucketSpec::new(capacity, refill, per).expect("a bucket that can be")
}

pub(crate) fn hold(upstream: &str, key: &str, rule: BucketSpec, tokens: u32) -> Hold {
    Hold::new(name(upstream), key, rule, Tokens::whole(tokens)).expect("a hold that fits its bucket")
}

/// Terms with these costs by status.
pub(crate) fn charging(costs: &[(&str, u32)]) -> Arc<Terms> {
    let on = |charge: Charge, (status, cost): &(&str, u32)| charge.on(status, Tokens::whole(*cost));
    let charge = costs.iter().try_fold(Charge::default(), on).expect("costs that can be");
    Arc::new(Terms { charge, credit: None })
}

/// The upstream answered with this status.
pub(crate) fn answered(status: u16) -> Report {
    Report { status: Some(status), ..CallResult::Success.into() }
}

pub(crate) fn capacity(jobs: u64) -> Capacity {
    Capacity::new(jobs, 1 << 20).expect("more than zero")
}

pub(crate) fn weights(batch: u32, weights: &[(&str, u32)]) -> Fairness {
    let weights = weights.iter().map(|(pattern, weight)| ((*pattern).to_owned(), *weight)).collect();
    Fairness::new(batch, weights).expect("weights that can be")
}

/// A job of normal priority; its payload is its number.
pub(crate) fn job(number: u128) -> NewJob {
    NewJob::new(id(number), name(LANE), TENANT, number.to_string().into_bytes())
}

pub(crate) fn of(tenant: &str, number: u128) -> NewJob {
    NewJob { tenant: tenant.into(), ..job(number) }
}

pub(crate) fn high(number: u128) -> NewJob {
    NewJob { level: Level::High, ..job(number) }
}

pub(crate) fn low(number: u128) -> NewJob {
    NewJob { level: Level::Low, ..job(number) }
}

pub(crate) fn lasting(ttl: Span, job: NewJob) -> NewJob {
    NewJob { ttl: Some(ttl), ..job }
}

pub(crate) fn delayed(delay: Span, job: NewJob) -> NewJob {
    NewJob { delay, ..job }
}

pub(crate) fn keyed(key: &str, job: NewJob) -> NewJob {
    NewJob { key: Some(key.into()), ..job }
}

/// A job with a cache key.
pub(crate) fn wants(key: &str, job: NewJob) -> NewJob {
    NewJob { cache_key: Some(key.into()), ..job }
}

/// Answers are fresh for a minute and usable for ten more.
pub(crate) fn cache() -> CacheSpec {
    CacheSpec::new(secs(60), secs(600)).expect("a cache that can be")
}

/// One lane with a cache to one upstream with these gates.
pub(crate) fn caching(gates: GateSpecs) -> Spec {
    chain(&[(UP, gates)], |lane| lane.cache = Some(cache()))
}

pub(crate) fn via(upstreams: &[&str], job: NewJob) -> NewJob {
    NewJob { chain: Some(upstreams.iter().map(|upstream| name(upstream)).collect()), ..job }
}

pub(crate) fn holding(hold: Hold, job: NewJob) -> NewJob {
    NewJob { holds: vec![hold], ..job }
}

/// The failure that scenarios use.
pub(crate) fn failure(reason: &str) -> CallFailure {
    let reason = eclusa_core::FailureReason::new(reason).expect("a reason that says something");
    CallFailure { reason, code: Some("503".into()), upstream: Some(name(UP)) }
}

/// A report with a Retry-After.
pub(crate) fn closing(wait: Span, bucket: Option<&str>) -> Report {
    let retry_after = Some(RetryAfter { wait, bucket: bucket.map(Into::into) });
    Report { retry_after, ..CallResult::Throttled.into() }
}
