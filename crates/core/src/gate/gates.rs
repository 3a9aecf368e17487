//! The gates of one lane or upstream, combined.

mod outage;
mod restore;

pub(crate) use outage::Used;

use super::starts::StartCount;
use super::{
    Breaker, BreakerSpec, BreakerState, BreakerView, Bucket, BucketSpec, CallResult, Cooldown, CooldownSpec,
    NotUntil, Pace, PaceSpec, PaceView, Reason, Share, Window, WindowSpec,
};
use crate::error::{SpecError, positive};
use crate::ids::LeaseId;
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// The gate rules of one lane or upstream; an absent rule does not limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateSpecs {
    /// `breaker`.
    pub breaker: Option<BreakerSpec>,
    /// `cooldown`.
    pub cooldown: Option<CooldownSpec>,
    /// `rpm`.
    pub window: Option<WindowSpec>,
    /// `rate` and `burst`.
    pub bucket: Option<BucketSpec>,
    /// `pace`.
    pub pace: Option<PaceSpec>,
    slots: Option<u32>,
}

impl GateSpecs {
    /// Sets the number of concurrent calls; `field` is the config key of that limit.
    pub fn with_slots(mut self, field: &str, slots: u32) -> Result<Self, SpecError> {
        self.slots = Some(positive(field, slots)?);
        Ok(self)
    }

    /// The most concurrent calls.
    pub const fn slots(&self) -> Option<u32> {
        self.slots
    }

    /// Fills in missing gates from `other`.
    pub(crate) fn or(self, other: &GateSpecs) -> Self {
        Self {
            breaker: self.breaker.or(other.breaker),
            cooldown: self.cooldown.or_else(|| other.cooldown.clone()),
            window: self.window.or(other.window),
            bucket: self.bucket.or(other.bucket),
            pace: self.pace.or(other.pace),
            slots: self.slots.or(other.slots),
        }
    }

    /// Reduces every limit to a share. If the share of any limit is zero, nothing is allowed.
    pub(crate) fn share(&self, share: Share) -> Self {
        let window = self.window.map(|rule| rule.share(share));
        let bucket = self.bucket.map(|rule| rule.share(share));
        let nothing = window == Some(None) || bucket == Some(None);
        Self {
            breaker: self.breaker,
            cooldown: self.cooldown.clone(),
            window: window.flatten(),
            bucket: bucket.flatten(),
            pace: self.pace.map(|rule| rule.share(share)),
            slots: if nothing { Some(0) } else { self.slots.map(|slots| share.of(slots)) },
        }
    }
}

/// What an admitted call must keep for its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pass {
    pub(crate) generation: u32,
    /// Whether its request was answered, so that it no longer holds a place in the window.
    pub(crate) answered: bool,
}

impl Pass {
    /// Marks the request as answered; the upstream continues to work on it.
    #[must_use]
    pub(crate) const fn answered(self) -> Self {
        Self { answered: true, ..self }
    }
}

/// How a call ended, for the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// It was never sent.
    NotSent,
    /// It was answered, or its lease ended, at this time.
    At(Time),
}

/// The state of the gates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gates {
    pub(crate) breaker: Breaker,
    pub(crate) cooldown: Cooldown,
    pub(crate) window: Window,
    pub(crate) bucket: Option<Bucket>,
    pub(crate) pace: Option<Pace>,
    pub(crate) closed_until: Time,
    pub(crate) starts: StartCount,
    /// How many leases hold a slot here. The engine's lease table is the source; this count is rebuilt at every start,
    /// so that it cannot leak.
    pub(crate) in_flight: u32,
}

/// What other programs read of an upstream's gates: the keys `circuit_breaker:<u>:failures`,
/// `circuit_breaker:<u>:degraded_until` and `rate_limiter:<u>`. The default is the state of an unused upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublicGates {
    /// Failures in a row that the breaker counts.
    pub failures: u32,
    /// Until when the breaker is open, if it is.
    pub degraded_until: Option<Time>,
    /// The balance of its bucket at the last refill, and the time of that refill. `None` if it has no bucket or the
    /// bucket was never used.
    pub tokens: Option<(Tokens, Time)>,
}

/// A gate as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateView {
    /// Its reason when it denies.
    pub reason: Reason,
    /// Until when it denies, if it does.
    pub denies_until: Option<Time>,
    /// What is used (places, slots, failures, errors) or left (micro-tokens), or the interval in ms.
    pub level: i64,
    /// The limit for `level`, if any.
    pub limit: Option<i64>,
}

impl Gates {
    /// Whether all gates admit a call at `now`; otherwise the denial of the gate that opens last. `slot_free_at` is
    /// when the first lease expires, if no call ends before.
    pub fn admits(&self, spec: &GateSpecs, now: Time, slot_free_at: Time) -> Result<(), NotUntil> {
        let verdicts = [
            self.closure(now),
            spec.breaker.as_ref().map_or(Ok(()), |rule| self.breaker.admits(rule, now)),
            spec.cooldown.as_ref().map_or(Ok(()), |_| self.cooldown.admits(now)),
            self.slots(spec, slot_free_at),
            spec.window.as_ref().map_or(Ok(()), |rule| self.window.admits(rule, now, slot_free_at)),
            self.own_bucket(spec, now),
            self.pace.filter(|_| spec.pace.is_some()).map_or(Ok(()), |pace| pace.admits(now)),
        ];
        let last = verdicts.into_iter().filter_map(Result::err).max_by_key(|denial| denial.at);
        last.map_or(Ok(()), Err)
    }

    /// Takes what one call needs. Call only after [`Gates::admits`] returned `Ok`.
    pub fn take(&mut self, spec: &GateSpecs, lease: LeaseId, lease_expires: Time, now: Time) -> Pass {
        self.in_flight += 1;
        self.starts.count(now, now);
        self.window.take();
        if spec.breaker.is_some() {
            self.breaker.take(lease, lease_expires, now);
        }
        if let Some(rule) = &spec.bucket {
            self.bucket.get_or_insert_with(|| Bucket::full(rule, now)).spend(rule, Tokens::ONE, now);
        }
        if let Some(rule) = &spec.pace {
            self.pace.get_or_insert_with(|| Pace::new(rule)).take(rule, now);
        }
        Pass { generation: self.breaker.generation(), answered: false }
    }

    /// Counts the result of the call under `lease`; `took` is its duration, if it was measured.
    pub fn report(
        &mut self,
        spec: &GateSpecs,
        lease: LeaseId,
        pass: Pass,
        (result, took): (CallResult, Option<Span>),
        now: Time,
    ) {
        if let Some(rule) = &spec.breaker {
            self.breaker.report(rule, lease, pass.generation, result, now);
        }
        if result.is_unsent() {
            self.refund(spec, now);
        }
        self.adapt(spec, result, took, now);
    }

    /// Returns the token of a call that was never sent.
    pub(crate) fn refund(&mut self, spec: &GateSpecs, now: Time) {
        if let (Some(rule), Some(bucket)) = (&spec.bucket, &mut self.bucket) {
            bucket.refund(rule, Tokens::ONE, now);
        }
    }

    /// Counts the result of a call without a lease.
    pub fn record(&mut self, spec: &GateSpecs, result: CallResult, now: Time) {
        if let Some(rule) = &spec.breaker {
            self.breaker.record(rule, result, now);
        }
        self.adapt(spec, result, None, now);
    }

    fn adapt(&mut self, spec: &GateSpecs, result: CallResult, took: Option<Span>, now: Time) {
        if let Some(rule) = &spec.cooldown {
            self.cooldown.report(rule, result, now);
        }
        if let (Some(rule), Some(pace)) = (&spec.pace, &mut self.pace) {
            pace.report(rule, result, took, now);
        }
    }

    /// Records that a request was answered, unless it was recorded before. The place in the window is kept even without
    /// rules, because they may be missing only for a moment.
    pub(crate) fn end_request(
        &mut self,
        spec: Option<&GateSpecs>,
        pass: Pass,
        answer: RequestEnd,
        now: Time,
    ) {
        if pass.answered {
            return;
        }
        let rule = spec.map_or(Some(WindowSpec::UNKNOWN), |spec| spec.window);
        match (answer, rule) {
            (RequestEnd::At(ended), Some(rule)) => self.window.answer(&rule, ended, now),
            _ => self.window.release(),
        }
    }

    /// Releases a slot.
    pub fn release_slot(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Sets `in_flight`, which is not serialized.
    #[must_use]
    pub fn occupied(mut self, in_flight: u32) -> Self {
        self.in_flight = in_flight;
        self
    }

    /// Extends what expires with the lease.
    pub fn extend(&mut self, lease: LeaseId, lease_expires: Time, now: Time) {
        self.breaker.extend(lease, lease_expires, now);
    }

    /// Continues the call of lease `old` under lease `new`.
    pub(crate) fn pass_on(&mut self, old: LeaseId, new: LeaseId, lease_expires: Time, now: Time) {
        self.breaker.pass_on(old, new);
        self.breaker.extend(new, lease_expires, now);
    }

    /// Applies a Retry-After: nothing starts before `until`.
    pub fn close(&mut self, until: Time) {
        self.closed_until = self.closed_until.max(until);
    }

    /// Clears failures, cooldown and Retry-After, by request of an operator.
    pub fn reset(&mut self, now: Time) {
        self.breaker.reset(now);
        self.cooldown = Cooldown::default();
        self.closed_until = Time::default();
    }

    /// Whether the breaker's open window is over and nothing has closed it yet.
    pub(crate) fn is_half_open(&self, now: Time) -> bool {
        self.breaker.state(now) == BreakerState::HalfOpen
    }

    /// Closes the breaker without a probe if its open window is over; returns whether it did.
    pub fn recover(&mut self, now: Time) -> bool {
        self.breaker.recover(now)
    }

    /// How many calls began in the last sixty seconds.
    pub fn starts_last_minute(&self, now: Time) -> u64 {
        self.starts.last_minute(now)
    }

    /// The balance of its own bucket, if it has one.
    pub fn tokens(&self, spec: &GateSpecs, now: Time) -> Option<Tokens> {
        let rule = spec.bucket.as_ref()?;
        Some(self.bucket.map_or(rule.capacity(), |bucket| bucket.balance(rule, now)))
    }

    /// What other programs may read of it.
    pub(crate) fn public(&self, spec: Option<&GateSpecs>, now: Time) -> PublicGates {
        let bucket = self.bucket.filter(|_| spec.is_some_and(|spec| spec.bucket.is_some()));
        PublicGates {
            failures: self.breaker.failures(now),
            degraded_until: self.breaker.degraded_until(now),
            tokens: bucket.map(|bucket| bucket.last_refill()),
        }
    }

    /// The state of its pace, if it has one.
    pub fn pace_view(&self, spec: &GateSpecs) -> Option<PaceView> {
        let rule = spec.pace.as_ref()?;
        Some(self.pace.unwrap_or_else(|| Pace::new(rule)).view())
    }

    /// The state of its breaker, if it has one.
    pub fn breaker_view(&self, spec: &GateSpecs, now: Time) -> Option<BreakerView> {
        spec.breaker.is_some().then(|| self.breaker.view(now))
    }

    /// The breaker.
    pub const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Calls that hold a slot now.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Adapts the state to changed rules. Until `now`, buckets refill under the old rules. A gate without a rule keeps
    /// its state: the process that names it may only be restarting, and nothing may be spent twice.
    pub(crate) fn fit(&mut self, old: &GateSpecs, new: &GateSpecs, now: Time) {
        if let Some(bucket) = &mut self.bucket {
            if let Some(rule) = &old.bucket {
                bucket.refill(rule, now);
            }
            if let Some(rule) = &new.bucket {
                bucket.fit(rule);
            }
        }
        if let (Some(rule), Some(pace)) = (&new.pace, &mut self.pace) {
            pace.fit(rule);
        }
    }

    /// Every configured gate.
    pub fn view(&self, spec: &GateSpecs, now: Time, slot_free_at: Time) -> Vec<GateView> {
        let mut views = Vec::new();
        let mut add = |reason, verdict: Result<(), NotUntil>, level: i64, limit: Option<i64>| {
            views.push(GateView {
                reason,
                denies_until: verdict.err().map(|denial| denial.at),
                level,
                limit,
            });
        };
        if let Some(rule) = &spec.breaker {
            let failures = i64::from(self.breaker.failures(now));
            let most = Some(i64::from(rule.failures()));
            add(Reason::CircuitOpen, self.breaker.admits(rule, now), failures, most);
        }
        if spec.cooldown.is_some() {
            add(Reason::Cooldown, self.cooldown.admits(now), i64::from(self.cooldown.errors()), None);
        }
        if let Some(limit) = spec.slots {
            let used = i64::from(self.in_flight);
            add(Reason::Concurrency, self.slots(spec, slot_free_at), used, Some(i64::from(limit)));
        }
        if let Some(rule) = &spec.window {
            let used = i64::from(self.window.count(now));
            add(
                Reason::Window,
                self.window.admits(rule, now, slot_free_at),
                used,
                Some(i64::from(rule.limit())),
            );
        }
        if let (Some(rule), Some(left)) = (&spec.bucket, self.tokens(spec, now)) {
            add(
                Reason::RateLimit,
                self.own_bucket(spec, now),
                left.as_micro(),
                Some(rule.capacity().as_micro()),
            );
        }
        if let (Some(_), Some(pace)) = (&spec.pace, &self.pace) {
            let interval = i64::try_from(pace.interval().as_millis()).unwrap_or(i64::MAX);
            add(Reason::Pace, pace.admits(now), interval, None);
        }
        if self.closed_until > now {
            add(Reason::UpstreamRetryAfter, self.closure(now), 0, None);
        }
        views
    }

    fn closure(&self, now: Time) -> Result<(), NotUntil> {
        if self.closed_until > now {
            return Err(NotUntil::new(Reason::UpstreamRetryAfter, self.closed_until));
        }
        Ok(())
    }

    fn slots(&self, spec: &GateSpecs, slot_free_at: Time) -> Result<(), NotUntil> {
        if spec.slots.is_some_and(|limit| self.in_flight >= limit) {
            return Err(NotUntil::new(Reason::Concurrency, slot_free_at));
        }
        Ok(())
    }

    fn own_bucket(&self, spec: &GateSpecs, now: Time) -> Result<(), NotUntil> {
        match (&spec.bucket, &self.bucket) {
            (Some(rule), Some(bucket)) => bucket.admits(rule, Tokens::ONE, now),
            _ => Ok(()),
        }
    }
}
