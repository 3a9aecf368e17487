//! The rules of a [`RulePlan`] as the engine takes them, and the names of things.

use std::num::NonZeroU32;

use eclusa_core::gate::{BreakerSpec, BucketSpec, CooldownSpec, GateSpecs, PaceSpec, WindowSpec};
use eclusa_core::retry::{OnAmbiguous, RetryPolicy};
use eclusa_core::{
    CacheSpec, Capacity, Chain, Charge, DeadLetterSpec, DeadLetterView, Engine, Fairness, Hold, Keep,
    LaneSpec, LetterFilter, LetterQuery, Name, Patterns, Span, Spec, Terms, Tokens, UpstreamSpec,
};

use crate::plan::{BucketPlan, GatePlan, LanePlan, RulePlan};

pub(crate) const TENANTS: [&str; 5] = ["acme", "bolt", "gold-coin", "gold-dust", "zeta"];
pub(crate) const GOLD_WEIGHT: u32 = 2;
pub(crate) const SCOPED: [(&str, BucketPlan); 3] =
    [("antiscan:1", (2, 1, 3_000)), ("antiscan:2", (3, 2, 7_000)), ("global", (1, 40, 86_400_000))];
pub(crate) const HALF_TOKEN: i64 = 500_000;
const CHAINS: [&[usize]; 6] = [&[0], &[0, 1], &[1, 0], &[0, 1, 2], &[2], &[2, 0]];

pub(crate) fn chain(number: u8) -> &'static [usize] {
    CHAINS[usize::from(number) % CHAINS.len()]
}

pub(crate) fn lane_name(lane: usize) -> Name {
    Name::new(["email", "score"][lane]).unwrap()
}

/// The first hundred dead letters of a lane.
pub(crate) fn letters(engine: &Engine, lane: &Name) -> Vec<DeadLetterView> {
    let filter = LetterFilter { lanes: Some(vec![lane.clone()]), ..LetterFilter::default() };
    engine.dead_letters(&LetterQuery { filter, after: None, max: 100 }).letters
}

/// The fourth is known to nobody.
pub(crate) fn upstream_name(upstream: usize) -> Name {
    Name::new(["ses", "smtp", "bureau", "nowhere"][upstream]).unwrap()
}

pub(crate) fn lane_number(name: &Name) -> usize {
    (0..2).find(|lane| lane_name(*lane) == *name).unwrap()
}

pub(crate) fn upstream_number(name: &Name) -> usize {
    (0..4).find(|upstream| upstream_name(*upstream) == *name).unwrap()
}

pub(crate) fn bucket_spec((capacity, refill, per_ms): BucketPlan) -> BucketSpec {
    BucketSpec::new(capacity, refill, Span::from_millis(per_ms)).unwrap()
}

pub(crate) fn hold(upstream: usize, bucket: u8, half_tokens: u8) -> Hold {
    let (key, plan) = SCOPED[usize::from(bucket) % SCOPED.len()];
    let tokens = Tokens::from_micro(i64::from(half_tokens) * HALF_TOKEN);
    let charge = Charge::default().from_usage("used").unwrap();
    let hold = Hold::new(upstream_name(upstream), key, bucket_spec(plan), tokens).unwrap();
    hold.under(Terms { charge, credit: None }.into())
}

fn gates(plan: &GatePlan) -> GateSpecs {
    let ms = Span::from_millis;
    let mut gates = GateSpecs::default();
    gates.breaker =
        plan.breaker.map(|(failures, open, probes)| BreakerSpec::new(failures, ms(open), probes).unwrap());
    gates.cooldown = plan.cooldown.then(|| CooldownSpec::new(&[ms(10_000), ms(30_000)]).unwrap());
    gates.window = plan.window.map(|limit| WindowSpec::per_minute(limit).unwrap());
    gates.bucket = plan.bucket.map(bucket_spec);
    let pace = || PaceSpec::new(ms(1_000), ms(50), ms(60_000)).unwrap().adaptive(plan.breaker.is_some());
    gates.pace = plan.pace.then(pace);
    if let Some(slots) = plan.slots {
        gates = gates.with_slots("max_concurrent", slots).unwrap();
    }
    gates
}

fn lane(number: usize, plan: &LanePlan) -> LaneSpec {
    let names = chain(plan.chain).iter().map(|upstream| upstream_name(*upstream)).collect();
    let mut lane = LaneSpec::new(lane_name(number), Chain::new(names).unwrap());
    lane.capacity = Capacity::new(plan.capacity, plan.max_bytes).unwrap();
    lane.ttl = plan.ttl_ms.map(Span::from_millis);
    lane.fairness =
        plan.batch.map(|batch| Fairness::new(batch, vec![("gold-*".into(), GOLD_WEIGHT)]).unwrap());
    lane.gates = gates(&plan.gates);
    if plan.stops_when_ambiguous {
        lane.retry = RetryPolicy::default().on_ambiguous(OnAmbiguous::Stop);
    }
    let rate = plan.gates.tenant_bucket.map(|rate| Patterns::of_all(bucket_spec(rate)));
    lane.tenant_limits.rate = rate.unwrap_or_default();
    let slots = plan.gates.tenant_slots.and_then(NonZeroU32::new);
    lane.tenant_limits.concurrency = slots.map(Patterns::of_all).unwrap_or_default();
    lane.dead_letters =
        plan.dead_letters.map(|max| DeadLetterSpec::new(Span::from_secs(3_600), max).unwrap());
    lane.cache = plan.cache.map(|(ttl, stale, max)| {
        let cache = CacheSpec::new(Span::from_millis(ttl), Span::from_millis(stale)).unwrap();
        cache.bounded(max, 1 << 20).unwrap()
    });
    lane.keep = Keep { span: Span::from_secs(600), max: plan.keep };
    lane
}

pub(crate) fn spec(plan: &RulePlan) -> Spec {
    let lanes = (0..).zip(&plan.lanes).map(|(number, plan)| lane(number, plan)).collect();
    let upstreams = (0..).zip(&plan.upstreams);
    let upstreams =
        upstreams.map(|(number, plan)| UpstreamSpec::new(upstream_name(number), gates(plan))).collect();
    Spec::new(lanes, upstreams).unwrap()
}

/// The quota that a tenant has in a lane, by the rules as written.
pub(crate) fn quota(batch: u32, tenant: &str) -> u32 {
    if tenant.starts_with("gold-") { batch * GOLD_WEIGHT } else { batch }
}
