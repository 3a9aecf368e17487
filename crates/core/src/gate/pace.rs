//! Pace: one start per interval. The interval adapts to the results of calls: by fixed factors or, if the pace is
//! adaptive, by what was learned about the upstream.

mod adaptive;

pub use adaptive::Adaptive;
pub(crate) use adaptive::Batch;

use super::{CallResult, NotUntil, Reason, Share};
use crate::error::{SpecError, positive};
use crate::time::{Span, Time};

/// The initial interval and its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceSpec {
    initial: Span,
    min: Span,
    max: Span,
    adaptive: bool,
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
        Ok(Self { initial, min, max, adaptive: false })
    }

    /// Sets whether the rate is found by additive increase and multiplicative decrease.
    #[must_use]
    pub const fn adaptive(mut self, adaptive: bool) -> Self {
        self.adaptive = adaptive;
        self
    }

    /// Whether the rate adapts by additive increase and multiplicative decrease.
    pub const fn is_adaptive(&self) -> bool {
        self.adaptive
    }

    /// The initial interval.
    pub const fn initial(&self) -> Span {
        self.initial
    }

    pub(crate) const fn min(&self) -> Span {
        self.min
    }

    pub(crate) const fn max(&self) -> Span {
        self.max
    }

    /// A share of it: intervals are longer because other processes start calls too.
    pub(super) fn share(self, share: Share) -> Self {
        let longer = |span: Span| Span::from_millis(span.as_millis().saturating_mul(share.count().into()));
        Self { initial: longer(self.initial), min: longer(self.min), max: longer(self.max), ..self }
    }
}

fn micros(span: Span) -> u64 {
    span.as_millis().saturating_mul(1_000)
}

/// The current interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// In microseconds, so that many small steps down are not lost to rounding.
    pub(crate) interval_us: u64,
    pub(crate) next_at: Time,
    /// What an adaptive pace learned; it decides the interval.
    pub(crate) learned: Option<Adaptive>,
}

/// A pace as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceView {
    /// Millionths of a start per second.
    pub rate_micro: u64,
    /// Whether the rate adapts by additive increase and multiplicative decrease.
    pub adaptive: bool,
    /// The latency of calls when the load does not slow them down, if known.
    pub floor_latency: Option<Span>,
}

impl Pace {
    /// The initial pace.
    pub fn new(spec: &PaceSpec) -> Self {
        Self::every(spec, spec.initial)
    }

    fn every(spec: &PaceSpec, interval: Span) -> Self {
        let interval_us = micros(interval);
        let learned = spec.adaptive.then(|| Adaptive::new(interval_us));
        let mut pace = Self { interval_us, next_at: Time::default(), learned };
        pace.fit(spec);
        pace
    }

    /// The pace after a start at `now`, with this interval.
    pub(super) fn after_start(spec: &PaceSpec, interval: Span, now: Time) -> Self {
        let mut pace = Self::every(spec, interval);
        pace.take(spec, now);
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
    pub fn take(&mut self, spec: &PaceSpec, now: Time) {
        let next_at = match &mut self.learned {
            Some(learned) => learned.take(spec, self.next_at, now),
            None => now + self.interval(),
        };
        self.next_at = self.next_at.max(next_at);
    }

    /// Adapts to the result of a call that ended at `now`; `took` is its duration, if it was measured.
    pub fn report(&mut self, spec: &PaceSpec, result: CallResult, took: Option<Span>, now: Time) {
        if let Some(learned) = &mut self.learned {
            learned.report(spec, result, took, now);
            self.interval_us = learned.interval_us(spec);
            return;
        }
        self.interval_us = match result {
            CallResult::Success => self.interval_us / 10 * 9 + self.interval_us % 10 * 9 / 10,
            CallResult::Failed | CallResult::TimedOut | CallResult::Unreachable => {
                self.interval_us.saturating_mul(3) / 2
            }
            CallResult::Throttled => self.interval_us.saturating_mul(2),
            CallResult::Rejected | CallResult::NotSent | CallResult::Unknown => self.interval_us,
        };
        self.fit(spec);
    }

    /// Applies a rule that may have changed: its bounds, and whether it is adaptive.
    pub(super) fn fit(&mut self, spec: &PaceSpec) {
        self.interval_us = self.interval_us.clamp(micros(spec.min), micros(spec.max));
        if !spec.adaptive {
            self.learned = None;
            return;
        }
        let learned = self.learned.get_or_insert_with(|| Adaptive::new(self.interval_us));
        learned.fit(spec);
        self.interval_us = learned.interval_us(spec);
    }

    /// Its state as shown.
    pub fn view(&self) -> PaceView {
        PaceView {
            rate_micro: self
                .learned
                .map_or(1_000_000_000_000 / self.interval_us.max(1), |learned| learned.rate),
            adaptive: self.learned.is_some(),
            floor_latency: self
                .learned
                .and_then(|learned| learned.floor_us)
                .map(|us| Span::from_millis(us.div_ceil(1_000))),
        }
    }
}

#[cfg(test)]
mod tests;
