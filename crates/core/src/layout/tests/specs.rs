//! Rules with all fields set.

use std::num::NonZeroU32;

use super::name;
use crate::gate::{BreakerSpec, BucketSpec, CooldownSpec, GateSpecs, PaceSpec, WindowSpec};
use crate::pattern::Patterns;
use crate::retry::{OnAmbiguous, RetryBudget, RetryPolicy};
use crate::spec::{
    CacheSpec, Capacity, Chain, DeadLetterSpec, Fairness, Keep, LaneSpec, RedriveSpec, Spec, UpstreamSpec,
};
use crate::time::Span;

/// Gates as a program that uses the library registers them for one upstream.
pub(super) fn partial() -> Spec {
    let gates = GateSpecs::default().with_slots("max_concurrent", 7).unwrap();
    Spec::partial(vec![UpstreamSpec::new(name("a"), gates)]).unwrap()
}

/// Rules with everything set, and a lane and an upstream with nothing set.
pub(super) fn sample() -> Spec {
    whole(true)
}

/// The same, with or without `in_time` in its first lane.
pub(super) fn whole(in_time: bool) -> Spec {
    let secs = Span::from_secs;
    let mut gates = GateSpecs::default();
    gates.breaker = Some(BreakerSpec::new(5, secs(30), 2).unwrap());
    gates.cooldown = Some(CooldownSpec::new(&[secs(10), secs(30)]).unwrap());
    gates.window = Some(WindowSpec::per_minute(600).unwrap());
    gates.bucket = Some(BucketSpec::new(10, 40, secs(86_400)).unwrap());
    gates.pace = Some(PaceSpec::new(secs(1), Span::from_millis(50), secs(60)).unwrap().adaptive(true));
    let gates = gates.with_slots("max_concurrent", 7).unwrap();
    let mut full = LaneSpec::new(name("full"), Chain::new(vec![name("b"), name("a")]).unwrap());
    full.capacity = Capacity::new(100, 1 << 20).unwrap();
    full.ttl = Some(secs(10));
    full.fairness = Some(Fairness::new(4, vec![("gold-*".into(), 3), ("*".into(), 2)]).unwrap());
    full.gates = gates.clone();
    let redrive = RedriveSpec::new(secs(600), 3, vec!["421".into(), "5xx".into()]).unwrap();
    let kept = DeadLetterSpec::new(secs(3_600), 500).unwrap();
    full.dead_letters = Some(kept.with_answers(false).with_redrive(Some(redrive)));
    let budget = RetryBudget::new(20, BucketSpec::new(10, 10, secs(1)).unwrap()).unwrap();
    let retry = RetryPolicy::new(6, secs(2), secs(90), 20).unwrap().on_ambiguous(OnAmbiguous::Stop);
    full.retry = retry.with_budget(Some(budget));
    let rate = |count| BucketSpec::new(count, count, secs(60)).unwrap();
    full.tenant_limits.rate =
        [("acme".to_owned(), rate(10)), ("*".to_owned(), rate(100))].into_iter().collect();
    full.tenant_limits.concurrency = Patterns::of_all(NonZeroU32::MIN);
    full.keep = Keep { span: secs(60), max: 0 };
    full.cache = Some(CacheSpec::new(secs(60), secs(600)).unwrap().bounded(50, 9_999).unwrap());
    full.in_time = in_time;
    let mut bare = LaneSpec::new(name("bare"), Chain::new(vec![name("a")]).unwrap());
    (bare.fairness, bare.dead_letters) = (None, None);
    let upstreams =
        vec![UpstreamSpec::new(name("a"), GateSpecs::default()), UpstreamSpec::new(name("b"), gates)];
    Spec::new(vec![full, bare], upstreams).unwrap()
}
