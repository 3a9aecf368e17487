//! The layout of rules.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::LayoutError;
use super::convert::{Layout, decode, encode};
use super::shared::BucketSpecLayout;
use super::versions::{LANE_VERSION, SPEC_VERSION, UPSTREAM_VERSION};
use crate::error::SpecError;
use crate::gate::{BreakerSpec, CooldownSpec, GateSpecs, PaceSpec, WindowSpec};
use crate::ids::Name;
use crate::pattern::Patterns;
use crate::retry::{OnAmbiguous, RetryBudget, RetryPolicy};
use crate::spec::{
    CacheSpec, Capacity, Chain, DeadLetterSpec, Fairness, Keep, LaneSpec, RedriveSpec, Spec, TenantLimits,
    UpstreamSpec,
};
use crate::time::Span;

/// Spans are in milliseconds, tokens in millionths.
#[derive(Serialize, Deserialize)]
struct SpecLayout {
    lanes: Vec<LaneLayout>,
    upstreams: Vec<UpstreamLayout>,
    partial: bool,
    /// Names of the lanes with `in_time`.
    in_time: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct LaneLayout {
    name: String,
    chain: Vec<String>,
    capacity_jobs: u64,
    capacity_bytes: u64,
    ttl: Option<u64>,
    fairness: Option<FairnessLayout>,
    gates: GateSpecsLayout,
    retry: RetryLayout,
    dead_letters: Option<DeadLettersLayout>,
    keep_for: u64,
    keep_max: u64,
    cache: Option<CacheLayout>,
    tenant_rate: Vec<(String, BucketSpecLayout)>,
    tenant_concurrency: Vec<(String, NonZeroU32)>,
}

#[derive(Serialize, Deserialize)]
struct UpstreamLayout {
    name: String,
    gates: GateSpecsLayout,
}

#[derive(Serialize, Deserialize)]
struct FairnessLayout {
    batch: u32,
    weights: Vec<(String, u32)>,
}

#[derive(Serialize, Deserialize)]
struct RetryLayout {
    attempts: u32,
    base: u64,
    cap: u64,
    jitter_percent: u8,
    stops_when_ambiguous: bool,
    /// Share in percent, and the rate that is always allowed.
    budget: Option<(u8, BucketSpecLayout)>,
}

#[derive(Serialize, Deserialize)]
struct DeadLettersLayout {
    ttl: u64,
    max: u64,
    answers: bool,
    redrive: Option<RedriveLayout>,
}

#[derive(Serialize, Deserialize)]
struct RedriveLayout {
    after: u64,
    times: u32,
    codes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct CacheLayout {
    ttl: u64,
    stale_if_error: u64,
    max: u64,
    max_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct GateSpecsLayout {
    breaker: Option<BreakerLayout>,
    /// Durations in milliseconds, by number of consecutive errors.
    cooldown: Option<Vec<u64>>,
    per_minute: Option<u32>,
    bucket: Option<BucketSpecLayout>,
    pace: Option<PaceLayout>,
    slots: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct BreakerLayout {
    failures: u32,
    open_for: u64,
    probes: u32,
}

#[derive(Serialize, Deserialize)]
struct PaceLayout {
    initial: u64,
    min: u64,
    max: u64,
    adaptive: bool,
}

/// Encodes the rules of a process.
pub fn encode_spec(spec: &Spec) -> Vec<u8> {
    let layout = SpecLayout {
        lanes: spec.lanes.iter().map(LaneLayout::from).collect(),
        upstreams: spec.upstreams.iter().map(UpstreamLayout::from).collect(),
        partial: spec.partial,
        in_time: spec.lanes.iter().filter(|lane| lane.in_time).map(|lane| lane.name.to_string()).collect(),
    };
    encoded(SPEC_VERSION, &layout)
}

/// Decodes what [`encode_spec`] wrote.
pub fn decode_spec(bytes: &[u8]) -> Result<Spec, LayoutError> {
    let layout: SpecLayout = match bytes {
        // Version 1 lacked `partial`, and versions 1 and 2 the list; both come last.
        [1, rest @ ..] => decode(SPEC_VERSION, &[&[SPEC_VERSION], rest, &[u8::from(false), 0]].concat())?,
        [2, rest @ ..] => decode(SPEC_VERSION, &[&[SPEC_VERSION], rest, &[0]].concat())?,
        _ => decode(SPEC_VERSION, bytes)?,
    };
    let in_time = |lane: &LaneLayout| layout.in_time.contains(&lane.name);
    let lanes = layout.lanes.into_iter().map(|layout| {
        let in_time = in_time(&layout);
        lane((layout, in_time))
    });
    let lanes = lanes.collect::<Result<_, _>>()?;
    let upstream = |layout: UpstreamLayout| {
        Ok::<_, LayoutError>(UpstreamSpec::new(Name::read(&layout.name)?, gates(layout.gates)?))
    };
    let upstreams = layout.upstreams.into_iter().map(upstream).collect::<Result<_, _>>()?;
    let first = |mut errors: Vec<crate::SpecError>| errors.swap_remove(0);
    let spec = Spec::new(lanes, upstreams).map_err(first)?;
    Ok(Spec { partial: layout.partial, ..spec })
}

/// Encodes the rules of one lane.
pub(crate) fn encode_lane(spec: &LaneSpec) -> Vec<u8> {
    encoded(LANE_VERSION, &(LaneLayout::from(spec), spec.in_time))
}

pub(crate) fn decode_lane(bytes: &[u8]) -> Result<LaneSpec, LayoutError> {
    match bytes {
        // Version 1 lacked `in_time`, which comes last.
        [1, rest @ ..] => lane(decode(LANE_VERSION, &[&[LANE_VERSION], rest, &[u8::from(false)]].concat())?),
        _ => lane(decode(LANE_VERSION, bytes)?),
    }
}

/// Encodes the rules of one upstream.
pub(crate) fn encode_gates(spec: &GateSpecs) -> Vec<u8> {
    encoded(UPSTREAM_VERSION, &GateSpecsLayout::from(spec))
}

pub(crate) fn decode_gates(bytes: &[u8]) -> Result<GateSpecs, LayoutError> {
    gates(decode(UPSTREAM_VERSION, bytes)?)
}

fn patterns<T, L>(patterns: &Patterns<T>, layout: impl Fn(&T) -> L) -> Vec<(String, L)> {
    patterns.iter().map(|(pattern, value)| (pattern.to_owned(), layout(value))).collect()
}

fn encoded(version: u8, layout: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(version, layout, &mut bytes);
    bytes
}

impl From<&LaneSpec> for LaneLayout {
    fn from(lane: &LaneSpec) -> Self {
        Self {
            name: lane.name.to_string(),
            chain: lane.chain.names().iter().map(Name::to_string).collect(),
            capacity_jobs: lane.capacity.jobs(),
            capacity_bytes: lane.capacity.bytes(),
            ttl: lane.ttl.map(Span::as_millis),
            fairness: lane.fairness.as_ref().map(|fairness| FairnessLayout {
                batch: fairness.batch(),
                weights: patterns(fairness.weights(), |weight| *weight),
            }),
            gates: GateSpecsLayout::from(&lane.gates),
            retry: RetryLayout {
                attempts: lane.retry.attempts(),
                base: lane.retry.base().as_millis(),
                cap: lane.retry.cap().as_millis(),
                jitter_percent: lane.retry.jitter_percent(),
                stops_when_ambiguous: !lane.retry.retries_ambiguous(),
                budget: lane
                    .retry
                    .budget()
                    .map(|budget| (budget.share_percent(), Layout::from_domain(&budget.min()))),
            },
            dead_letters: lane.dead_letters.as_ref().map(|rule| DeadLettersLayout {
                ttl: rule.ttl().as_millis(),
                max: rule.max(),
                answers: rule.answers(),
                redrive: rule.redrive.as_ref().map(|redrive| RedriveLayout {
                    after: redrive.after().as_millis(),
                    times: redrive.times(),
                    codes: redrive.codes().iter().map(ToString::to_string).collect(),
                }),
            }),
            keep_for: lane.keep.span.as_millis(),
            keep_max: lane.keep.max,
            cache: lane.cache.map(|rule| CacheLayout {
                ttl: rule.ttl().as_millis(),
                stale_if_error: rule.stale_if_error().as_millis(),
                max: rule.max,
                max_bytes: rule.max_bytes,
            }),
            tenant_rate: patterns(&lane.tenant_limits.rate, |rule| Layout::from_domain(rule)),
            tenant_concurrency: patterns(&lane.tenant_limits.concurrency, |slots| *slots),
        }
    }
}

impl From<&UpstreamSpec> for UpstreamLayout {
    fn from(upstream: &UpstreamSpec) -> Self {
        Self { name: upstream.name.to_string(), gates: GateSpecsLayout::from(&upstream.gates) }
    }
}

impl From<&GateSpecs> for GateSpecsLayout {
    fn from(gates: &GateSpecs) -> Self {
        let ladder =
            |rule: &CooldownSpec| rule.ladder().iter().copied().map(Span::as_millis).collect::<Vec<_>>();
        Self {
            breaker: gates.breaker.map(|rule| BreakerLayout {
                failures: rule.failures(),
                open_for: rule.open_for().as_millis(),
                probes: rule.probes(),
            }),
            cooldown: gates.cooldown.as_ref().map(ladder),
            per_minute: gates.window.map(|rule| rule.limit()),
            bucket: Layout::from_domain(&gates.bucket),
            pace: gates.pace.map(|rule| PaceLayout {
                initial: rule.initial().as_millis(),
                min: rule.min().as_millis(),
                max: rule.max().as_millis(),
                adaptive: rule.is_adaptive(),
            }),
            slots: gates.slots(),
        }
    }
}

fn lane((layout, in_time): (LaneLayout, bool)) -> Result<LaneSpec, LayoutError> {
    let chain = layout.chain.iter().map(|name| Name::new(name)).collect::<Result<_, _>>()?;
    let ms = Span::from_millis;
    let fairness = |rule: FairnessLayout| Fairness::new(rule.batch, rule.weights);
    let redrive = |rule: RedriveLayout| {
        RedriveSpec::new(ms(rule.after), rule.times, rule.codes.into_iter().map(Into::into).collect())
    };
    let dead_letters = |rule: DeadLettersLayout| {
        let kept = DeadLetterSpec::new(ms(rule.ttl), rule.max)?.with_answers(rule.answers);
        Ok::<_, SpecError>(kept.with_redrive(rule.redrive.map(redrive).transpose()?))
    };
    let cache = |rule: CacheLayout| {
        CacheSpec::new(ms(rule.ttl), ms(rule.stale_if_error))?.bounded(rule.max, rule.max_bytes)
    };
    let rate = |(pattern, rule): (String, BucketSpecLayout)| Ok((pattern, rule.into_domain()?));
    let rate = layout.tenant_rate.into_iter().map(rate).collect::<Result<_, LayoutError>>()?;
    Ok(LaneSpec {
        name: Name::new(&layout.name)?,
        chain: Chain::new(chain)?,
        capacity: Capacity::new(layout.capacity_jobs, layout.capacity_bytes)?,
        ttl: layout.ttl.map(ms),
        fairness: layout.fairness.map(fairness).transpose()?,
        gates: gates(layout.gates)?,
        retry: retry(layout.retry)?,
        dead_letters: layout.dead_letters.map(dead_letters).transpose()?,
        keep: Keep { span: ms(layout.keep_for), max: layout.keep_max },
        cache: layout.cache.map(cache).transpose()?,
        tenant_limits: TenantLimits { rate, concurrency: layout.tenant_concurrency.into_iter().collect() },
        in_time,
    })
}

fn retry(layout: RetryLayout) -> Result<RetryPolicy, LayoutError> {
    let (base, cap) = (Span::from_millis(layout.base), Span::from_millis(layout.cap));
    let ambiguous = if layout.stops_when_ambiguous { OnAmbiguous::Stop } else { OnAmbiguous::Retry };
    let budget = |(share, min): (u8, BucketSpecLayout)| {
        Ok::<_, LayoutError>(RetryBudget::new(share, min.into_domain()?)?)
    };
    let budget = layout.budget.map(budget).transpose()?;
    let policy = RetryPolicy::new(layout.attempts, base, cap, layout.jitter_percent)?;
    Ok(policy.on_ambiguous(ambiguous).with_budget(budget))
}

fn gates(layout: GateSpecsLayout) -> Result<GateSpecs, LayoutError> {
    let ms = Span::from_millis;
    let breaker = |rule: BreakerLayout| BreakerSpec::new(rule.failures, ms(rule.open_for), rule.probes);
    let cooldown = |ladder: Vec<u64>| CooldownSpec::new(&ladder.into_iter().map(ms).collect::<Vec<_>>());
    let pace = |rule: PaceLayout| {
        Ok::<_, SpecError>(
            PaceSpec::new(ms(rule.initial), ms(rule.min), ms(rule.max))?.adaptive(rule.adaptive),
        )
    };
    let mut gates = GateSpecs::default();
    gates.breaker = layout.breaker.map(breaker).transpose()?;
    gates.cooldown = layout.cooldown.map(cooldown).transpose()?;
    gates.window = layout.per_minute.map(WindowSpec::per_minute).transpose()?;
    gates.bucket = layout.bucket.into_domain()?;
    gates.pace = layout.pace.map(pace).transpose()?;
    match layout.slots {
        Some(slots) => Ok(gates.with_slots("slots", slots)?),
        None => Ok(gates),
    }
}
