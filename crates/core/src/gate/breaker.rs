//! Circuit breaker: consecutive failures open it; after a while, a few leased probes decide whether to close it.
//!
//! Every opening and closing begins a new *generation*; a call belongs to the one it started in, and late results of
//! older generations do not count. Probes are leases that expire, so a probe whose worker died does not keep the
//! breaker half open forever. A breaker that is half open without a probe for [`HEALTHY_AFTER`] counts as closed.

use super::{CallResult, NotUntil, Reason};
use crate::error::{SpecError, positive};
use crate::ids::LeaseId;
use crate::time::{Span, Time};

/// A half-open breaker without probes counts as closed this long after its open window.
pub const HEALTHY_AFTER: Span = Span::from_secs(300);

/// When to open, for how long, and how many probes to allow then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSpec {
    failures: u32,
    open_for: Span,
    probes: u32,
}

impl BreakerSpec {
    /// Opens after `failures` in a row, for `open_for`, then allows at most `probes` concurrent probes.
    pub fn new(failures: u32, open_for: Span, probes: u32) -> Result<Self, SpecError> {
        Ok(Self {
            failures: positive("breaker.failures", failures)?,
            open_for: positive("breaker.open_for", open_for)?,
            probes: positive("breaker.probes", probes)?,
        })
    }

    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// How long it stays open.
    pub const fn open_for(&self) -> Span {
        self.open_for
    }

    pub(crate) const fn probes(&self) -> u32 {
        self.probes
    }
}

/// What a breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// It lets every call through.
    Closed,
    /// It lets no call through.
    Open,
    /// It lets a few calls through, which test whether it may close.
    HalfOpen,
}

/// A breaker as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerView {
    /// What it lets through.
    pub state: BreakerState,
    /// How often it opened.
    pub opened: u64,
    /// How often it started to let probes through.
    pub half_opened: u64,
    /// How often it closed.
    pub closed: u64,
}

/// The state of one breaker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Breaker {
    pub(crate) failures: u32,
    pub(crate) generation: u32,
    /// When the generation began.
    pub(crate) turned_at: Time,
    /// Set while open or half open: when the open window ends or ended.
    pub(crate) open_until: Option<Time>,
    pub(crate) probes: Vec<(LeaseId, Time)>,
    pub(crate) opened: u64,
    pub(crate) half_opened: u64,
    pub(crate) closed: u64,
}

impl Breaker {
    /// A breaker that is open until `until`.
    pub(super) fn open_until(until: Time) -> Self {
        Self { open_until: Some(until), ..Self::default() }
    }

    /// Its state and the number of transitions.
    pub fn view(&self, now: Time) -> BreakerView {
        let Self { opened, half_opened, closed, .. } = *self;
        let closed = closed + u64::from(self.has_healed(now));
        BreakerView { state: self.state(now), opened, half_opened, closed }
    }

    /// What it lets through at `now`.
    pub fn state(&self, now: Time) -> BreakerState {
        match self.open_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open,
            Some(_) if self.has_healed(now) => BreakerState::Closed,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Failures in a row.
    pub fn failures(&self, now: Time) -> u32 {
        if self.has_healed(now) { 0 } else { self.failures }
    }

    /// The generation of a call that starts now.
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// The generation of a call that began at `began`; any older one if it began before the current generation.
    pub(super) fn generation_at(&self, began: Time) -> u32 {
        if began < self.turned_at { self.generation.wrapping_sub(1) } else { self.generation }
    }

    /// When the open window ends, while it lasts.
    pub fn degraded_until(&self, now: Time) -> Option<Time> {
        self.open_until.filter(|until| now < *until)
    }

    /// Whether a call may start at `now`.
    pub fn admits(&self, spec: &BreakerSpec, now: Time) -> Result<(), NotUntil> {
        match (self.state(now), self.open_until) {
            (BreakerState::Open, Some(until)) => Err(NotUntil::new(Reason::CircuitOpen, until)),
            (BreakerState::HalfOpen, _) if self.live_probes(now).count() >= spec.probes as usize => {
                let freed = self.live_probes(now).min().unwrap_or(now);
                Err(NotUntil::new(Reason::CircuitOpen, freed))
            }
            _ => Ok(()),
        }
    }

    /// Whether a call that may not be a probe may start at `now`. It waits until other calls close the breaker or until
    /// it counts as healthy.
    pub(crate) fn admits_no_probe(&self, now: Time) -> Result<(), NotUntil> {
        let at = match (self.state(now), self.open_until) {
            (BreakerState::Open, Some(until)) => until,
            (BreakerState::HalfOpen, Some(until)) => {
                self.live_probes(now).min().unwrap_or(until + HEALTHY_AFTER)
            }
            _ => return Ok(()),
        };
        Err(NotUntil::new(Reason::CircuitOpen, at))
    }

    /// Counts a start. While half open it is a probe, for as long as its lease; without a lease it is not a probe.
    pub fn take(&mut self, lease: LeaseId, lease_expires: Time, now: Time) {
        self.heal(now);
        if self.state(now) == BreakerState::HalfOpen && lease_expires > now {
            self.probes.retain(|(_, expires)| *expires > now);
            if self.probes.is_empty() {
                self.half_opened += 1;
            }
            self.probes.push((lease, lease_expires));
        }
    }

    /// Extends a probe with its lease.
    pub fn extend(&mut self, lease: LeaseId, lease_expires: Time, now: Time) {
        self.heal(now);
        for probe in self.probes.iter_mut().filter(|(id, _)| *id == lease) {
            probe.1 = lease_expires;
        }
    }

    /// Moves a probe to another lease.
    pub(crate) fn pass_on(&mut self, old: LeaseId, new: LeaseId) {
        for probe in self.probes.iter_mut().filter(|(id, _)| *id == old) {
            probe.0 = new;
        }
    }

    /// Counts the result of a call of `generation` under `lease`.
    pub fn report(
        &mut self,
        spec: &BreakerSpec,
        lease: LeaseId,
        generation: u32,
        result: CallResult,
        now: Time,
    ) {
        self.heal(now);
        let was_probe = self.probes.iter().any(|(id, _)| *id == lease);
        self.probes.retain(|(id, _)| *id != lease);
        if generation == self.generation {
            self.count(spec, was_probe, result, now);
        }
    }

    /// Counts the result of a call without a lease. While the breaker is open, only a success counts.
    pub fn record(&mut self, spec: &BreakerSpec, result: CallResult, now: Time) {
        self.heal(now);
        match self.state(now) {
            BreakerState::Open if result != CallResult::Success => {}
            BreakerState::Open | BreakerState::HalfOpen => self.count(spec, true, result, now),
            BreakerState::Closed => self.count(spec, false, result, now),
        }
    }

    /// Counts the result of a call that began at `began` and ended at `at`, reported late. It does not count if the
    /// breaker opened or closed since the call began.
    pub(super) fn record_late(&mut self, spec: &BreakerSpec, result: CallResult, began: Time, at: Time) {
        if began >= self.turned_at {
            self.record(spec, result, at);
        }
    }

    /// Closes it by hand and resets its failures.
    pub fn reset(&mut self, now: Time) {
        self.failures = 0;
        if self.open_until.is_some() {
            self.close(now);
        }
    }

    /// Closes it without a probe and resets its failures, if its open window is over; returns whether it was.
    pub fn recover(&mut self, now: Time) -> bool {
        let over = self.state(now) == BreakerState::HalfOpen;
        if over {
            self.reset(now);
        }
        over
    }

    fn count(&mut self, spec: &BreakerSpec, was_probe: bool, result: CallResult, now: Time) {
        match result {
            CallResult::NotSent | CallResult::Unknown => {}
            CallResult::Success | CallResult::Rejected => {
                self.failures = 0;
                if was_probe {
                    self.close(now);
                }
            }
            CallResult::Throttled => {
                if was_probe {
                    self.open(spec, now);
                }
            }
            CallResult::Failed | CallResult::TimedOut | CallResult::Unreachable => {
                self.failures = self.failures.saturating_add(1);
                if was_probe || self.failures >= spec.failures {
                    self.open(spec, now);
                }
            }
        }
    }

    fn open(&mut self, spec: &BreakerSpec, now: Time) {
        self.open_until = Some(now + spec.open_for);
        self.begin_generation(now);
        self.opened += 1;
    }

    fn close(&mut self, now: Time) {
        self.open_until = None;
        self.begin_generation(now);
        self.closed += 1;
    }

    fn begin_generation(&mut self, now: Time) {
        self.generation = self.generation.wrapping_add(1);
        self.turned_at = now;
        self.probes.clear();
    }

    /// Whether it has been half open without a probe for so long that it counts as closed.
    pub(crate) fn has_healed(&self, now: Time) -> bool {
        let long_ago = self.open_until.is_some_and(|until| until + HEALTHY_AFTER <= now);
        long_ago && self.live_probes(now).next().is_none()
    }

    pub(crate) fn heal(&mut self, now: Time) {
        if self.has_healed(now) {
            self.reset(now);
        }
    }

    fn live_probes(&self, now: Time) -> impl Iterator<Item = Time> {
        self.probes.iter().map(|(_, expires)| *expires).filter(move |expires| *expires > now)
    }
}

#[cfg(test)]
mod tests;
