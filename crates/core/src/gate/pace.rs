//! Pace: one start per interval, and the interval adapts to how the upstream takes it.

use super::{CallResult, NotUntil, Part, Reason};
use crate::error::{SpecError, positive};
use crate::time::{Span, Time};

/// Where the interval begins and the bounds it moves in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceSpec {
    initial: Span,
    min: Span,
    max: Span,
}

impl PaceSpec {
    /// An interval that begins at `initial` and stays between `min` and `max`.
    pub fn new(initial: Span, min: Span, max: Span) -> Result<Self, SpecError> {
        positive("pace.min", min)?;
        if initial < min || initial > max {
            return Err(SpecError::new(
                "pace.initial",
                format!("{initial} must lie between min {min} and max {max}"),
            ));
        }
        Ok(Self { initial, min, max })
    }

    pub(crate) const fn initial(&self) -> Span {
        self.initial
    }

    pub(crate) const fn min(&self) -> Span {
        self.min
    }

    pub(crate) const fn max(&self) -> Span {
        self.max
    }

    /// A part of it: intervals are longer where others start calls too.
    pub(super) fn part(self, part: Part) -> Self {
        let longer = |span: Span| Span::from_millis(span.as_millis().saturating_mul(part.count().into()));
        Self { initial: longer(self.initial), min: longer(self.min), max: longer(self.max) }
    }
}

fn micros(span: Span) -> u64 {
    span.as_millis().saturating_mul(1_000)
}

/// The interval of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// In microseconds, so that many small steps down are not lost to rounding.
    pub(crate) interval_us: u64,
    pub(crate) next_at: Time,
}

impl Pace {
    /// The pace before anything is known.
    pub fn new(spec: &PaceSpec) -> Self {
        Self { interval_us: micros(spec.initial), next_at: Time::default() }
    }

    /// The pace after a start at `now`, with this interval.
    pub(super) fn after_start(spec: &PaceSpec, interval: Span, now: Time) -> Self {
        let mut pace = Self { interval_us: micros(interval), ..Self::new(spec) };
        pace.report(spec, CallResult::NotSent);
        pace.take(now);
        pace
    }

    /// The interval between starts.
    pub fn interval(&self) -> Span {
        Span::from_millis(self.interval_us.div_ceil(1_000))
    }

    /// Whether the interval since the last start is over.
    pub fn admits(&self, now: Time) -> Result<(), NotUntil> {
        if self.next_at > now { Err(NotUntil::new(Reason::Pace, self.next_at)) } else { Ok(()) }
    }

    /// Counts a start.
    pub fn take(&mut self, now: Time) {
        self.next_at = self.next_at.max(now + self.interval());
    }

    /// Adapts to what a call told.
    pub fn report(&mut self, spec: &PaceSpec, result: CallResult) {
        let interval = match result {
            CallResult::Success => self.interval_us / 10 * 9 + self.interval_us % 10 * 9 / 10,
            CallResult::Failed | CallResult::TimedOut | CallResult::Unreachable => {
                self.interval_us.saturating_mul(3) / 2
            }
            CallResult::Throttled => self.interval_us.saturating_mul(2),
            CallResult::Rejected | CallResult::NotSent | CallResult::Unknown => self.interval_us,
        };
        self.interval_us = interval.clamp(micros(spec.min), micros(spec.max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> PaceSpec {
        PaceSpec::new(Span::from_millis(1_000), Span::from_millis(50), Span::from_secs(60)).unwrap()
    }

    #[test]
    fn one_start_per_interval() {
        let mut pace = Pace::new(&spec());
        let now = Time::from_millis(5_000);
        assert_eq!(pace.admits(now), Ok(()));
        pace.take(now);
        let next = Time::from_millis(6_000);
        assert_eq!(pace.admits(now), Err(NotUntil::new(Reason::Pace, next)));
        assert_eq!(pace.admits(next), Ok(()));
    }

    #[test]
    fn the_interval_adapts_within_its_bounds() {
        let mut pace = Pace::new(&spec());
        pace.report(&spec(), CallResult::Success);
        assert_eq!(pace.interval(), Span::from_millis(900));
        pace.report(&spec(), CallResult::TimedOut);
        assert_eq!(pace.interval(), Span::from_millis(1_350));
        pace.report(&spec(), CallResult::Throttled);
        assert_eq!(pace.interval(), Span::from_millis(2_700));
        pace.report(&spec(), CallResult::Rejected);
        assert_eq!(pace.interval(), Span::from_millis(2_700));
        (0..100).for_each(|_| pace.report(&spec(), CallResult::Success));
        assert_eq!(pace.interval(), Span::from_millis(50));
        (0..100).for_each(|_| pace.report(&spec(), CallResult::Throttled));
        assert_eq!(pace.interval(), Span::from_secs(60));
    }

    #[test]
    fn bounds_that_cross_are_refused() {
        let ms = Span::from_millis;
        assert_eq!(PaceSpec::new(ms(10), ms(20), ms(30)).unwrap_err().field, "pace.initial");
        assert_eq!(PaceSpec::new(ms(10), ms(0), ms(30)).unwrap_err().field, "pace.min");
    }
}
