//! Circuit breaker: failures in a row open it; after a while a few leased probes find out whether to close it.
//!
//! Every opening and closing begins a new *generation*; a call carries the one it started in, and late results of
//! older ones do not count. Probes are leases that expire, so a probe whose worker died does not keep the breaker
//! half open for ever.

use serde::{Deserialize, Serialize};

use super::{CallResult, NotUntil, Reason};
use crate::error::{SpecError, positive};
use crate::ids::LeaseId;
use crate::time::{Span, Time};

/// When to open, for how long, and how many probes then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerSpec {
    failures: u32,
    open_for: Span,
    probes: u32,
}

impl BreakerSpec {
    /// Opens after `failures` in a row, for `open_for`, then lets at most `probes` calls try.
    pub fn new(failures: u32, open_for: Span, probes: u32) -> Result<Self, SpecError> {
        Ok(Self {
            failures: positive("breaker.failures", failures)?,
            open_for: positive("breaker.open_for", open_for)?,
            probes: positive("breaker.probes", probes)?,
        })
    }
}

/// What a breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BreakerState {
    /// Everything.
    Closed,
    /// Nothing.
    Open,
    /// Probes.
    HalfOpen,
}

/// A breaker as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerView {
    /// What it lets through.
    pub state: BreakerState,
    /// How often it opened so far.
    pub opened: u64,
    /// How often it began to let probes through.
    pub half_opened: u64,
    /// How often it closed.
    pub closed: u64,
}

/// The state of one breaker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Breaker {
    failures: u32,
    generation: u32,
    /// Set while open or half open: when the open window ends or ended.
    open_until: Option<Time>,
    probes: Vec<(LeaseId, Time)>,
    opened: u64,
    half_opened: u64,
    closed: u64,
}

impl Breaker {
    /// One that is open until then.
    pub(super) fn open_until(until: Time) -> Self {
        Self { open_until: Some(until), ..Self::default() }
    }

    /// It and its transitions so far.
    pub fn view(&self, now: Time) -> BreakerView {
        let Self { opened, half_opened, closed, .. } = *self;
        BreakerView { state: self.state(now), opened, half_opened, closed }
    }

    /// What it lets through at `now`.
    pub fn state(&self, now: Time) -> BreakerState {
        match self.open_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Failures in a row.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// The generation that a call starting now belongs to.
    pub const fn generation(&self) -> u32 {
        self.generation
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

    /// Counts a start; in half-open it is a probe that lasts as long as its lease.
    pub fn take(&mut self, lease: LeaseId, lease_expires: Time, now: Time) {
        if self.state(now) == BreakerState::HalfOpen {
            self.probes.retain(|(_, expires)| *expires > now);
            if self.probes.is_empty() {
                self.half_opened += 1;
            }
            self.probes.push((lease, lease_expires));
        }
    }

    /// Moves a probe's end with its lease.
    pub fn extend(&mut self, lease: LeaseId, lease_expires: Time) {
        for probe in self.probes.iter_mut().filter(|(id, _)| *id == lease) {
            probe.1 = lease_expires;
        }
    }

    /// Counts what a call of `generation` under `lease` told.
    pub fn report(
        &mut self,
        spec: &BreakerSpec,
        lease: LeaseId,
        generation: u32,
        result: CallResult,
        now: Time,
    ) {
        let was_probe = self.probes.iter().any(|(id, _)| *id == lease);
        self.probes.retain(|(id, _)| *id != lease);
        if generation == self.generation {
            self.count(spec, was_probe, result, now);
        }
    }

    /// Counts what a caller without a lease tells. While the breaker is open only success is news.
    pub fn record(&mut self, spec: &BreakerSpec, result: CallResult, now: Time) {
        match self.state(now) {
            BreakerState::Open if result != CallResult::Success => {}
            BreakerState::Open | BreakerState::HalfOpen => self.count(spec, true, result, now),
            BreakerState::Closed => self.count(spec, false, result, now),
        }
    }

    /// Closes it by hand and forgets its failures.
    pub fn reset(&mut self) {
        self.failures = 0;
        if self.open_until.is_some() {
            self.close();
        }
    }

    /// Closes it without a probe and forgets its failures, if its open window is over; says whether it was.
    pub fn recover(&mut self, now: Time) -> bool {
        let over = self.state(now) == BreakerState::HalfOpen;
        if over {
            self.reset();
        }
        over
    }

    fn count(&mut self, spec: &BreakerSpec, was_probe: bool, result: CallResult, now: Time) {
        match result {
            CallResult::NotSent | CallResult::Unknown => {}
            CallResult::Success | CallResult::Rejected => {
                self.failures = 0;
                if was_probe {
                    self.close();
                }
            }
            CallResult::Throttled => {
                if was_probe {
                    self.open(spec, now);
                }
            }
            CallResult::Failed | CallResult::TimedOut => {
                self.failures = self.failures.saturating_add(1);
                if was_probe || self.failures >= spec.failures {
                    self.open(spec, now);
                }
            }
        }
    }

    fn open(&mut self, spec: &BreakerSpec, now: Time) {
        self.open_until = Some(now + spec.open_for);
        self.begin_generation();
        self.opened += 1;
    }

    fn close(&mut self) {
        self.open_until = None;
        self.begin_generation();
        self.closed += 1;
    }

    fn begin_generation(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.probes.clear();
    }

    fn live_probes(&self, now: Time) -> impl Iterator<Item = Time> {
        self.probes.iter().map(|(_, expires)| *expires).filter(move |expires| *expires > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(secs: u64) -> Time {
        Time::from_millis(1_000_000 + secs * 1_000)
    }

    const fn lease(number: u64) -> LeaseId {
        LeaseId { epoch: 1, number, nonce: 0 }
    }

    fn spec() -> BreakerSpec {
        BreakerSpec::new(5, Span::from_secs(30), 1).unwrap()
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for n in 0..5 {
            assert_eq!(breaker.admits(&spec(), at(0)), Ok(()));
            breaker.report(&spec(), lease(n), 0, CallResult::Failed, at(0));
        }
        breaker
    }

    #[test]
    fn five_failures_in_a_row_open_it_for_thirty_seconds() {
        let breaker = opened();
        assert_eq!(breaker.state(at(29)), BreakerState::Open);
        assert_eq!(breaker.admits(&spec(), at(29)), Err(NotUntil::new(Reason::CircuitOpen, at(30))));
        assert_eq!(breaker.state(at(30)), BreakerState::HalfOpen);
    }

    #[test]
    fn success_and_permanent_rejections_reset_the_count_and_429_is_no_failure() {
        let mut breaker = Breaker::default();
        for result in [CallResult::Success, CallResult::Rejected] {
            (0..4).for_each(|n| breaker.report(&spec(), lease(n), 0, CallResult::TimedOut, at(0)));
            breaker.report(&spec(), lease(9), 0, result, at(0));
            assert_eq!(breaker.failures(), 0);
        }
        (0..50).for_each(|n| breaker.report(&spec(), lease(n), 0, CallResult::Throttled, at(0)));
        assert_eq!((breaker.failures(), breaker.state(at(0))), (0, BreakerState::Closed));
    }

    #[test]
    fn half_open_lets_one_probe_in_and_its_result_decides() {
        for (result, state) in [
            (CallResult::Success, BreakerState::Closed),
            (CallResult::Failed, BreakerState::Open),
            (CallResult::Throttled, BreakerState::Open),
            (CallResult::NotSent, BreakerState::HalfOpen),
        ] {
            let mut breaker = opened();
            breaker.take(lease(10), at(40), at(30));
            assert_eq!(breaker.admits(&spec(), at(31)), Err(NotUntil::new(Reason::CircuitOpen, at(40))));
            let generation = breaker.generation();
            breaker.report(&spec(), lease(10), generation, result, at(31));
            assert_eq!(breaker.state(at(31)), state, "{result:?}");
        }
    }

    #[test]
    fn a_probe_whose_worker_died_gives_its_place_back() {
        let mut breaker = opened();
        breaker.take(lease(10), at(40), at(30));
        assert_eq!(breaker.admits(&spec(), at(40)), Ok(()));
        breaker.take(lease(11), at(50), at(40));
        breaker.extend(lease(11), at(60));
        assert_eq!(breaker.admits(&spec(), at(55)), Err(NotUntil::new(Reason::CircuitOpen, at(60))));
        assert_eq!(breaker.half_opened, 2);
    }

    #[test]
    fn late_results_of_an_older_generation_change_nothing() {
        let mut breaker = opened();
        breaker.report(&spec(), lease(7), 0, CallResult::Success, at(1));
        assert_eq!(breaker.state(at(1)), BreakerState::Open);
        breaker.take(lease(10), at(40), at(30));
        breaker.report(&spec(), lease(8), 0, CallResult::Failed, at(31));
        assert_eq!(breaker.state(at(31)), BreakerState::HalfOpen);
    }

    #[test]
    fn callers_without_a_lease_count_too() {
        let mut breaker = Breaker::default();
        (0..50).for_each(|_| breaker.record(&spec(), CallResult::Failed, at(0)));
        assert_eq!((breaker.failures(), breaker.degraded_until(at(1))), (5, Some(at(30))));
        breaker.record(&spec(), CallResult::Success, at(2));
        assert_eq!((breaker.failures(), breaker.degraded_until(at(2))), (0, None));
    }

    #[test]
    fn it_recovers_without_a_probe_once_its_open_window_is_over_and_not_before() {
        let mut breaker = Breaker::default();
        breaker.record(&spec(), CallResult::Failed, at(0));
        assert!(!breaker.recover(at(60)));
        assert_eq!(breaker.failures(), 1, "a closed breaker goes on counting");

        let mut breaker = opened();
        assert!(!breaker.recover(at(29)));
        assert_eq!((breaker.failures(), breaker.state(at(29))), (5, BreakerState::Open));
        breaker.take(lease(10), at(40), at(30));
        let generation = breaker.generation();
        assert!(breaker.recover(at(31)));
        assert_eq!((breaker.failures(), breaker.state(at(31)), breaker.closed), (0, BreakerState::Closed, 1));
        breaker.report(&spec(), lease(10), generation, CallResult::Failed, at(32));
        assert_eq!(breaker.failures(), 0, "the probe is of an older generation");
    }

    #[test]
    fn zeroes_are_refused_by_name() {
        let secs = Span::from_secs;
        assert_eq!(BreakerSpec::new(0, secs(1), 1).unwrap_err().field, "breaker.failures");
        assert_eq!(BreakerSpec::new(1, secs(0), 1).unwrap_err().field, "breaker.open_for");
        assert_eq!(BreakerSpec::new(1, secs(1), 0).unwrap_err().field, "breaker.probes");
    }
}
