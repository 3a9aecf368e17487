//! Points in time and durations, in milliseconds.
//!
//! The engine never reads a clock: the current time is an argument of every verb.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A duration in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Time {
    /// Later than anything that happens; means "until something else changes".
    pub const NEVER: Time = Time(u64::MAX);

    /// The time `ms` milliseconds after the epoch.
    pub const fn from_millis(ms: u64) -> Self {
        Time(ms)
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Span = Span(0);

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Span(ms)
    }

    /// A span of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Span(secs * 1_000)
    }

    /// The duration in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whether it is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Span(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Reads the current time. The engine has no clock; stores are given one.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Time;
}

/// Time that never goes back and never stops, even if the clock does: after the clock steps back, it continues from its
/// last value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SteadyTime {
    pub(crate) last: Time,
    pub(crate) ahead_ms: i64,
}

impl SteadyTime {
    /// The last value returned.
    pub(crate) const fn last(&self) -> Time {
        self.last
    }

    /// How many milliseconds it is ahead of the clock; negative if it is behind.
    pub(crate) const fn ahead_ms(&self) -> i64 {
        self.ahead_ms
    }

    /// The time when the clock shows `clock`.
    pub(crate) fn at(&mut self, clock: Time) -> Time {
        let now = Time(clock.0.saturating_add_signed(self.ahead_ms));
        if now < self.last {
            self.set(clock);
        }
        self.last = self.last.max(now);
        self.last
    }

    /// Continues with another clock, which shows `clock` now: not earlier than the last value, and otherwise not later
    /// than `most`.
    pub(crate) fn start_at(&mut self, clock: Time, most: Time) {
        let now = Time(clock.0.saturating_add_signed(self.ahead_ms));
        self.last = self.last.max(now.min(most));
        self.set(clock);
    }

    /// Sets the offset so that the last value corresponds to `clock`.
    fn set(&mut self, clock: Time) {
        let ahead = i128::from(self.last.0) - i128::from(clock.0);
        self.ahead_ms = i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX });
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

/// Saturates at the epoch.
impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_back_neither_reverses_nor_stops_time() {
        let mut steady = SteadyTime::default();
        let clock = [1_000, 1_500, 9_000, 2_000, 2_300, 2_300, 2_400].map(Time::from_millis);
        let seen = clock.map(|clock| steady.at(clock).as_millis());
        assert_eq!(seen, [1_000, 1_500, 9_000, 9_000, 9_300, 9_300, 9_400]);
    }

    #[test]
    fn another_clock_continues_from_the_last_time_and_within_the_bound() {
        let ms = Time::from_millis;
        // The clock is behind, right, or beyond the bound; the last time is always reached.
        for (clock, most, start) in
            [(500, 9_500, 9_000), (9_400, 9_500, 9_400), (70_000, 9_500, 9_500), (70_000, 800, 9_000)]
        {
            let mut steady = SteadyTime::default();
            steady.at(ms(9_000));
            steady.start_at(ms(clock), ms(most));
            assert_eq!(steady.at(ms(clock)), ms(start));
            assert_eq!(steady.at(ms(clock + 40)), ms(start + 40));
        }
    }
}
