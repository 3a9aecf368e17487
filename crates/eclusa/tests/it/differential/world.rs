//! The rules of a play, and the names of things in it.

use eclusa_core::gate::{BreakerSpec, BucketSpec, CooldownSpec, GateSpecs, PaceSpec, WindowSpec};
use eclusa_core::retry::{OnAmbiguous, RetryPolicy};
use eclusa_core::{
    CacheSpec, Capacity, Chain, DeadLetterSpec, Fairness, Hold, Keep, LaneSpec, Name, Span, Spec, Tokens,
    UpstreamSpec,
};
use fastrand::Rng;

pub(crate) const LANES: usize = 3;
pub(crate) const UPSTREAMS: usize = 3;
/// Names are bytes to a store, whatever they look like.
pub(crate) const TENANTS: [&str; 6] = ["acme", "bolt", "gold-coin", "gold-dust", "zeta:1:2", "a\n3:b,c"];
/// Capacity, refill and per how many milliseconds.
type BucketRule = (u32, u32, u64);
/// The last one is large, so that counting in it needs more digits than a double has.
const BUCKETS: [(&str, BucketRule); 4] = [
    ("antiscan:1", (2, 1, 3_000)),
    ("antiscan\n2", (3, 2, 7_000)),
    ("global", (1, 40, 86_400_000)),
    ("bytes", (2, 100_000, 7_001)),
];
/// What a bucket's rule may be changed to.
const OTHER_RULE: BucketRule = (5, 7, 11_000);
const CHAINS: [&[usize]; 7] = [&[0], &[0, 1], &[1, 0], &[0, 1, 2], &[2], &[2, 0], &[1]];
const HALF_TOKEN: i64 = 500_000;

/// What a world is about; each is generous where others are tight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All gates, now and then.
    Gated,
    /// No gate says no: what starts is decided by order alone.
    Open,
    /// Many want the same, and upstreams fail.
    Caching,
    /// Jobs take from scoped buckets, and nothing else is in their way.
    Scoped,
    /// Lanes are full.
    Crowded,
    /// Upstreams fail behind breakers, cooldowns and paces.
    Failing,
    /// Few jobs that are tried again and again.
    Few,
}

const KINDS: [Kind; 8] = [
    Kind::Gated,
    Kind::Open,
    Kind::Caching,
    Kind::Scoped,
    Kind::Scoped,
    Kind::Crowded,
    Kind::Failing,
    Kind::Few,
];

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) spec: Spec,
}

impl World {
    /// Numbers in a row make all kinds.
    pub(crate) fn new(seed: u64, rng: &mut Rng) -> Self {
        let kind = *KINDS.iter().cycle().nth((seed % 64).try_into().unwrap()).unwrap();
        let upstreams =
            (0..UPSTREAMS).map(|number| UpstreamSpec::new(upstream_name(number), upstream_gates(kind, rng)));
        let upstreams = upstreams.collect();
        let lanes = (0..LANES).map(|number| lane(number, kind, rng)).collect();
        Self { kind, spec: Spec::new(lanes, upstreams).unwrap() }
    }

    /// Whether jobs take from scoped buckets.
    pub(crate) fn scoped(&self) -> bool {
        matches!(self.kind, Kind::Scoped | Kind::Gated)
    }
}

/// The last one is known to nobody.
pub(crate) fn lane_name(lane: usize) -> Name {
    Name::new(["email", "score", "sms", "nowhere"][lane]).unwrap()
}

/// The last one is known to nobody.
pub(crate) fn upstream_name(upstream: usize) -> Name {
    Name::new(["ses", "smtp", "bureau", "nowhere"][upstream]).unwrap()
}

pub(crate) fn chain(number: usize) -> Vec<Name> {
    CHAINS[number % CHAINS.len()].iter().map(|upstream| upstream_name(*upstream)).collect()
}

pub(crate) fn bucket_key(bucket: usize) -> &'static str {
    BUCKETS[bucket % BUCKETS.len()].0
}

pub(crate) fn half_tokens(count: i64) -> Tokens {
    Tokens::from_micro(count * HALF_TOKEN)
}

/// `other` asks under another rule than usual.
pub(crate) fn hold(upstream: &Name, bucket: usize, halves: i64, other: bool) -> Hold {
    let (key, usual) = BUCKETS[bucket % BUCKETS.len()];
    let (capacity, refill, per_ms) = if other { OTHER_RULE } else { usual };
    let rule = BucketSpec::new(capacity, refill, Span::from_millis(per_ms)).unwrap();
    let tokens = half_tokens(halves.clamp(1, 2 * i64::from(capacity)));
    Hold::new(upstream.clone(), key, rule, tokens).unwrap()
}

fn maybe<T>(rng: &mut Rng, percent: u32, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    (rng.u32(..100) < percent).then(|| make(rng))
}

fn bucket(rng: &mut Rng) -> BucketSpec {
    let per = Span::from_millis([1_000, 7_000, 60_000][rng.usize(..3)]);
    BucketSpec::new(rng.u32(1..4), rng.u32(1..5), per).unwrap()
}

/// Breakers stay open for long: what Redis keeps of them for others to see goes by its own clock, and a play is over long
/// before that.
fn breaker(rng: &mut Rng) -> BreakerSpec {
    let open_for = Span::from_secs([60, 300][rng.usize(..2)]);
    BreakerSpec::new(rng.u32(1..4), open_for, rng.u32(1..4)).unwrap()
}

fn upstream_gates(kind: Kind, rng: &mut Rng) -> GateSpecs {
    let mut gates = GateSpecs::default();
    let ms = Span::from_millis;
    let (breakers, others, slow) = match kind {
        Kind::Gated => (50, 40, 25),
        Kind::Open | Kind::Scoped | Kind::Few => return gates,
        Kind::Caching => (90, 0, 0),
        Kind::Crowded => (20, 20, 0),
        Kind::Failing => (70, 0, 50),
    };
    gates.breaker = maybe(rng, breakers, breaker);
    gates.cooldown = maybe(rng, slow, |_| CooldownSpec::new(&[ms(10_000), ms(30_000), ms(60_000)]).unwrap());
    gates.pace = maybe(rng, slow, |_| PaceSpec::new(ms(1_000), ms(50), ms(60_000)).unwrap());
    gates.window = maybe(rng, others, |rng| {
        // The larger one keeps its starts in grains.
        WindowSpec::per_minute(if rng.bool() { rng.u32(1..6) } else { 200 }).unwrap()
    });
    gates.bucket = maybe(rng, others, bucket);
    if let Some(slots) = maybe(rng, others.max(30), |rng| rng.u32(1..5)) {
        gates = gates.with_slots("max_concurrent", slots).unwrap();
    }
    gates
}

fn lane_gates(kind: Kind, rng: &mut Rng) -> GateSpecs {
    let mut gates = GateSpecs::default();
    if kind != Kind::Gated {
        return gates;
    }
    gates.window = maybe(rng, 25, |rng| WindowSpec::per_minute(rng.u32(2..6)).unwrap());
    gates.bucket = maybe(rng, 25, bucket);
    if let Some(slots) = maybe(rng, 25, |rng| rng.u32(1..6)) {
        gates = gates.with_slots("concurrency", slots).unwrap();
    }
    gates
}

fn cache(kind: Kind, rng: &mut Rng) -> Option<CacheSpec> {
    let percent = if kind == Kind::Caching { 100 } else { 40 };
    maybe(rng, percent, |rng| {
        let mut span = || Span::from_millis([rng.u64(1..500), rng.u64(1..60_000), 600_000][rng.usize(..3)]);
        let (fresh, stale) = (span(), span());
        let cache = CacheSpec::new(fresh, if rng.bool() { stale } else { Span::ZERO }).unwrap();
        cache.bounded(rng.u64(1..5), [40, 1 << 20][rng.usize(..2)]).unwrap()
    })
}

fn lane(number: usize, kind: Kind, rng: &mut Rng) -> LaneSpec {
    let mut lane = LaneSpec::new(lane_name(number), Chain::new(chain(rng.usize(..CHAINS.len()))).unwrap());
    let bounds = match kind {
        Kind::Crowded => (rng.u64(1..12), [200, 2_000, 1 << 20][rng.usize(..3)]),
        _ => ([20, 500][rng.usize(..2)], 1 << 20),
    };
    lane.capacity = Capacity::new(bounds.0, bounds.1).unwrap();
    lane.ttl = maybe(rng, 30, |rng| Span::from_millis(rng.u64(1..120_000)));
    lane.fairness = maybe(rng, 75, |rng| Fairness::new(rng.u32(1..4), vec![("gold-*".into(), 2)]).unwrap());
    lane.gates = lane_gates(kind, rng);
    if rng.u32(..100) < 25 {
        lane.retry = RetryPolicy::default().on_ambiguous(OnAmbiguous::Stop);
    }
    lane.dead_letters =
        maybe(rng, 75, |rng| DeadLetterSpec::new(Span::from_secs(3_600), rng.u64(1..6)).unwrap());
    lane.cache = cache(kind, rng);
    let max = [0, 1, rng.u64(2..6), 1_000][rng.usize(..4)];
    lane.keep = Keep { span: Span::from_secs(600), max };
    lane
}
