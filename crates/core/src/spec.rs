//! The rules of lanes and upstreams: valid by construction, so that nothing checks them again.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::dead_letter::DeadLetter;
use crate::error::{SpecError, positive};
use crate::gate::{BucketSpec, GateSpecs, Share};
use crate::ids::Name;
use crate::pattern::Patterns;
use crate::retry::RetryPolicy;
use crate::time::{Span, Time};
use crate::verbs::fits_code;

/// The rules of lanes and upstreams that one process knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    pub(crate) lanes: Vec<LaneSpec>,
    pub(crate) upstreams: Vec<UpstreamSpec>,
    /// Whether other processes may add gates to these upstreams; otherwise the upstreams have exactly the gates named
    /// here.
    pub(crate) partial: bool,
}

impl Spec {
    /// Checks that lanes and upstreams fit together; returns all errors otherwise.
    pub fn new(lanes: Vec<LaneSpec>, upstreams: Vec<UpstreamSpec>) -> Result<Self, Vec<SpecError>> {
        let mut errors = Vec::new();
        let mut known = BTreeSet::new();
        for upstream in &upstreams {
            if !known.insert(&upstream.name) {
                errors.push(SpecError::new(format!("upstreams.{}", upstream.name), "is defined twice"));
            }
        }
        let mut named = BTreeSet::new();
        for lane in &lanes {
            let place = format!("lanes.{}", lane.name);
            if !named.insert(&lane.name) {
                errors.push(SpecError::new(place.clone(), "is defined twice"));
            }
            for upstream in lane.chain.names().iter().filter(|name| !known.contains(name)) {
                let problem =
                    format!("names the unknown upstream {upstream:?}", upstream = upstream.as_str());
                errors.push(SpecError::new("chain", problem).within(&place));
            }
        }
        if errors.is_empty() { Ok(Self { lanes, upstreams, partial: false }) } else { Err(errors) }
    }

    /// Some gates of upstreams; the upstreams also keep the gates that other processes name for them.
    pub fn partial(upstreams: Vec<UpstreamSpec>) -> Result<Self, Vec<SpecError>> {
        Ok(Self { partial: true, ..Self::new(Vec::new(), upstreams)? })
    }

    /// Reduces every limit to one process's share.
    pub(crate) fn share(&self, share: Share) -> Self {
        let mut own = self.clone();
        own.lanes.iter_mut().for_each(|lane| lane.gates = lane.gates.share(share));
        own.upstreams.iter_mut().for_each(|upstream| upstream.gates = upstream.gates.share(share));
        own
    }

    /// The rules of all lanes, in order.
    pub fn lanes(&self) -> &[LaneSpec] {
        &self.lanes
    }

    /// The rules of all upstreams, in order.
    pub fn upstreams(&self) -> &[UpstreamSpec] {
        &self.upstreams
    }

    /// The rules of a lane.
    pub fn lane(&self, name: &Name) -> Option<&LaneSpec> {
        self.lanes.iter().find(|lane| lane.name == *name)
    }

    /// The rules of an upstream.
    pub fn upstream(&self, name: &Name) -> Option<&UpstreamSpec> {
        self.upstreams.iter().find(|upstream| upstream.name == *name)
    }
}

/// A third party that jobs are sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSpec {
    /// Its name.
    pub name: Name,
    /// Its gates.
    pub gates: GateSpecs,
}

impl UpstreamSpec {
    /// Creates an upstream with these gates.
    pub fn new(name: Name, gates: GateSpecs) -> Self {
        Self { name, gates }
    }
}

/// The upstreams a job may use, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain(Vec<Name>);

impl Chain {
    /// The set of upstreams that a job has tried holds no more.
    pub const MAX_LEN: usize = 32;

    /// Creates a chain of at least one upstream, none repeated.
    pub fn new(upstreams: Vec<Name>) -> Result<Self, SpecError> {
        if upstreams.is_empty() {
            return Err(SpecError::new("chain", "is empty: name at least one upstream"));
        }
        if upstreams.len() > Self::MAX_LEN {
            return Err(SpecError::new("chain", format!("has more than {} upstreams", Self::MAX_LEN)));
        }
        if let Some(twice) = upstreams.iter().enumerate().find(|(n, name)| upstreams[..*n].contains(name)) {
            return Err(SpecError::new("chain", format!("names {:?} twice", twice.1.as_str())));
        }
        Ok(Self(upstreams))
    }

    /// The upstreams.
    pub fn names(&self) -> &[Name] {
        &self.0
    }
}

/// The rules of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSpec {
    /// Its name.
    pub name: Name,
    /// The chain of jobs that do not name their own.
    pub chain: Chain,
    /// How many jobs may wait.
    pub capacity: Capacity,
    /// How long a job may wait; `None` means forever.
    pub ttl: Option<Span>,
    /// How tenants take turns; `None` means one FIFO per level.
    pub fairness: Option<Fairness>,
    /// `rpm`, `rate`, `concurrency` of the lane itself.
    pub gates: GateSpecs,
    /// Limits per tenant.
    pub tenant_limits: TenantLimits,
    /// When failed jobs are retried.
    pub retry: RetryPolicy,
    /// Which dead letters are kept; `None` keeps none.
    pub dead_letters: Option<DeadLetterSpec>,
    /// Which finished jobs are kept.
    pub keep: Keep,
    /// Which answers are cached; `None` caches none.
    pub cache: Option<CacheSpec>,
    /// Whether a job that cannot start before it expires is refused.
    pub in_time: bool,
}

impl LaneSpec {
    /// Creates a lane with defaults for everything else.
    pub fn new(name: Name, chain: Chain) -> Self {
        Self {
            name,
            chain,
            capacity: Capacity::default(),
            ttl: None,
            fairness: Some(Fairness::default()),
            gates: GateSpecs::default(),
            tenant_limits: TenantLimits::default(),
            retry: RetryPolicy::default(),
            dead_letters: Some(DeadLetterSpec::default()),
            keep: Keep::default(),
            cache: None,
            in_time: false,
        }
    }
}

/// How much may wait in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub(crate) jobs: u64,
    pub(crate) bytes: u64,
}

impl Default for Capacity {
    /// A million jobs, a gibibyte of payload.
    fn default() -> Self {
        Self { jobs: 1_000_000, bytes: 1 << 30 }
    }
}

impl Capacity {
    /// Allows at most `jobs` jobs with at most `bytes` of payload in total.
    pub fn new(jobs: u64, bytes: u64) -> Result<Self, SpecError> {
        Ok(Self { jobs: positive("capacity", jobs)?, bytes: positive("max_bytes", bytes)? })
    }

    /// The most jobs.
    pub const fn jobs(&self) -> u64 {
        self.jobs
    }

    /// The most bytes of payload.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// How tenants take turns within a level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fairness {
    batch: u32,
    weights: Patterns<u32>,
}

impl Default for Fairness {
    fn default() -> Self {
        Self { batch: 3, weights: Patterns::default() }
    }
}

impl Fairness {
    /// Allows `batch` jobs in a row, times the weight of the pattern that matches the tenant best (`gold-*`).
    pub fn new(batch: u32, weights: Vec<(String, u32)>) -> Result<Self, SpecError> {
        positive("fairness.batch", batch)?;
        for (pattern, weight) in &weights {
            positive(&format!("fairness.weights.{pattern:?}"), *weight)?;
        }
        Ok(Self { batch, weights: weights.into_iter().collect() })
    }

    /// How many jobs in a row `tenant` gets while others wait.
    pub fn quota(&self, tenant: &str) -> u32 {
        self.batch.saturating_mul(self.weight(tenant))
    }

    /// The weight of `tenant`.
    pub fn weight(&self, tenant: &str) -> u32 {
        self.weights.find(tenant).copied().unwrap_or(1)
    }

    /// How many jobs in a row a tenant of weight one gets.
    pub const fn batch(&self) -> u32 {
        self.batch
    }

    pub(crate) const fn weights(&self) -> &Patterns<u32> {
        &self.weights
    }
}

/// Limits that apply to each tenant of a lane separately, by pattern of its name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantLimits {
    /// `tenant_rate`.
    pub rate: Patterns<BucketSpec>,
    /// `tenant_concurrency`.
    pub concurrency: Patterns<NonZeroU32>,
}

impl TenantLimits {
    /// Whether no tenant has a limit.
    pub fn is_empty(&self) -> bool {
        self.rate.is_empty() && self.concurrency.is_empty()
    }
}

/// Which dead letters are kept, and which are sent again automatically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterSpec {
    pub(crate) ttl: Span,
    pub(crate) max: u64,
    /// Whether a 4xx answer that the caller waited for creates a dead letter.
    pub(crate) answers: bool,
    pub(crate) redrive: Option<RedriveSpec>,
}

impl Default for DeadLetterSpec {
    /// Ten thousand for seven days.
    fn default() -> Self {
        Self { ttl: Span::from_secs(7 * 86_400), max: 10_000, answers: true, redrive: None }
    }
}

impl DeadLetterSpec {
    /// Keeps at most `max` letters for at most `ttl`.
    pub fn new(ttl: Span, max: u64) -> Result<Self, SpecError> {
        let (ttl, max) = (positive("dead_letters.ttl", ttl)?, positive("dead_letters.max", max)?);
        Ok(Self { ttl, max, ..Self::default() })
    }

    /// Sets whether a 4xx answer that the caller waited for creates a dead letter.
    #[must_use]
    pub fn with_answers(self, answers: bool) -> Self {
        Self { answers, ..self }
    }

    /// Sets which letters are sent again automatically.
    #[must_use]
    pub fn with_redrive(self, redrive: Option<RedriveSpec>) -> Self {
        Self { redrive, ..self }
    }

    /// Whether a 4xx answer that the caller waited for creates a dead letter.
    pub const fn answers(&self) -> bool {
        self.answers
    }

    /// How long letters are kept.
    pub const fn ttl(&self) -> Span {
        self.ttl
    }

    /// How many letters are kept.
    pub const fn max(&self) -> u64 {
        self.max
    }
}

/// Which dead letters are sent again automatically, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveSpec {
    after: Span,
    times: u32,
    codes: Vec<Arc<str>>,
}

impl RedriveSpec {
    /// Sends letters whose last failure has one of `codes` (a code, a class such as `5xx`, or `none`) again, `after`
    /// that failure, at most `times` times each.
    pub fn new(after: Span, times: u32, codes: Vec<Arc<str>>) -> Result<Self, SpecError> {
        if codes.is_empty() {
            let problem = "is empty: name the codes that may succeed later, such as \"421\" or \"5xx\"";
            return Err(SpecError::new("dead_letters.redrive.codes", problem));
        }
        let after = positive("dead_letters.redrive.after", after)?;
        Ok(Self { after, times: positive("dead_letters.redrive.times", times)?, codes })
    }

    pub(crate) const fn after(&self) -> Span {
        self.after
    }

    pub(crate) const fn times(&self) -> u32 {
        self.times
    }

    pub(crate) fn codes(&self) -> &[Arc<str>] {
        &self.codes
    }

    /// When a letter is due; `None` if it is being replayed or is not sent again.
    pub(crate) fn due(&self, letter: &DeadLetter) -> Option<Time> {
        let code = letter.last_failure.code.as_deref();
        let matches = self.codes.iter().any(|pattern| fits_code(pattern, code));
        (matches && letter.replay.is_none() && letter.redrives < self.times)
            .then(|| letter.last_failure.at + self.after)
    }
}

/// Which finished jobs of a lane are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// For how long.
    pub span: Span,
    /// The most jobs; zero keeps none.
    pub max: u64,
}

impl Default for Keep {
    /// Ten thousand for ten minutes.
    fn default() -> Self {
        Self { span: Span::from_secs(600), max: 10_000 }
    }
}

/// Which answers are cached, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSpec {
    ttl: Span,
    stale_if_error: Span,
    pub(crate) max: u64,
    pub(crate) max_bytes: u64,
}

impl CacheSpec {
    /// An answer replaces a call for `ttl`, and a failure for another `stale_if_error`. The default bounds are ten
    /// thousand answers and 64 MiB.
    pub fn new(ttl: Span, stale_if_error: Span) -> Result<Self, SpecError> {
        let ttl = positive("cache.ttl", ttl)?;
        Ok(Self { ttl, stale_if_error, max: 10_000, max_bytes: 64 << 20 })
    }

    /// Sets the bounds: at most `max` answers of at most `max_bytes` in total, including their keys.
    pub fn bounded(mut self, max: u64, max_bytes: u64) -> Result<Self, SpecError> {
        self.max = positive("cache.max", max)?;
        self.max_bytes = positive("cache.max_bytes", max_bytes)?;
        Ok(self)
    }

    pub(crate) const fn ttl(&self) -> Span {
        self.ttl
    }

    /// How long a stale answer may be served when the upstream fails.
    pub const fn stale_if_error(&self) -> Span {
        self.stale_if_error
    }

    pub(crate) fn fresh_until(&self, stored_at: Time) -> Time {
        stored_at + self.ttl
    }

    pub(crate) fn usable_until(&self, stored_at: Time) -> Time {
        self.fresh_until(stored_at) + self.stale_if_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn all_errors_are_reported_at_once_with_their_field() {
        let lane = |lane: &str, up: &str| LaneSpec::new(name(lane), Chain::new(vec![name(up)]).unwrap());
        let upstream = || UpstreamSpec::new(name("bureau"), GateSpecs::default());
        let errors = Spec::new(vec![lane("a", "burea"), lane("a", "bureau")], vec![upstream(), upstream()])
            .unwrap_err();
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["upstreams.bureau", "lanes.a.chain", "lanes.a"]);
    }

    #[test]
    fn invalid_chains_and_limits_name_their_field() {
        assert_eq!(Chain::new(vec![]).unwrap_err().field, "chain");
        assert_eq!(Chain::new(vec![name("a"), name("a")]).unwrap_err().field, "chain");
        assert_eq!(Capacity::new(0, 1).unwrap_err().field, "capacity");
        assert_eq!(Capacity::new(1, 0).unwrap_err().field, "max_bytes");
        assert_eq!(Fairness::new(0, vec![]).unwrap_err().field, "fairness.batch");
        assert_eq!(
            Fairness::new(3, vec![("gold-*".into(), 0)]).unwrap_err().field,
            "fairness.weights.\"gold-*\""
        );
        assert_eq!(GateSpecs::default().with_slots("max_concurrent", 0).unwrap_err().field, "max_concurrent");
        assert_eq!(DeadLetterSpec::new(Span::ZERO, 1).unwrap_err().field, "dead_letters.ttl");
        assert_eq!(CacheSpec::new(Span::ZERO, Span::from_secs(1)).unwrap_err().field, "cache.ttl");
        let cache = CacheSpec::new(Span::from_secs(1), Span::ZERO).unwrap();
        assert_eq!(cache.bounded(0, 1).unwrap_err().field, "cache.max");
        assert_eq!(cache.bounded(1, 0).unwrap_err().field, "cache.max_bytes");
    }

    #[test]
    fn the_most_specific_weight_wins() {
        let weights = vec![("*".into(), 2), ("gold-*".into(), 3), ("gold-*-trial".into(), 1)];
        let fairness = Fairness::new(3, weights).unwrap();
        let quotas = ["gold-acme", "gold-acme-trial", "other"].map(|tenant| fairness.quota(tenant));
        assert_eq!(quotas, [9, 3, 6]);
    }
}
