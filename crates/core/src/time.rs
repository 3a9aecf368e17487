//! Moments and lengths of time, in milliseconds.
//!
//! The engine never reads a clock: every verb is told what time it is.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(u64);

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Span(u64);

impl Time {
    /// Later than anything that happens: "until something else changes".
    pub const NEVER: Time = Time(u64::MAX);

    /// The moment `ms` milliseconds after the epoch.
    pub const fn from_millis(ms: u64) -> Self {
        Time(ms)
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Span(ms)
    }

    /// A span of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Span(secs * 1_000)
    }

    /// Its milliseconds.
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

/// Tells what time it is. The engine has none; stores are given one.
pub trait Clock: Send + Sync {
    /// The moment of the call.
    fn now(&self) -> Time;
}

/// Time that neither runs backwards nor stands still, whatever the clock does: after a step back it goes on from where
/// it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct SteadyTime {
    last: Time,
    ahead: Span,
}

impl SteadyTime {
    /// How far it is before the clock.
    pub(crate) const fn ahead(&self) -> Span {
        self.ahead
    }

    /// The moment at which the clock shows `clock`.
    pub(crate) fn at(&mut self, clock: Time) -> Time {
        let now = clock + self.ahead;
        if now < self.last {
            self.ahead = self.last.since(clock);
        }
        self.last = self.last.max(now);
        self.last
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
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
    fn a_clock_that_steps_back_neither_turns_time_back_nor_stops_it() {
        let mut steady = SteadyTime::default();
        let clock = [1_000, 1_500, 9_000, 2_000, 2_300, 2_300, 2_400].map(Time::from_millis);
        let seen = clock.map(|clock| steady.at(clock).as_millis());
        assert_eq!(seen, [1_000, 1_500, 9_000, 9_000, 9_300, 9_300, 9_400]);
    }
}
