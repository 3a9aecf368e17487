//! How many calls began in the last minute: an estimate from two counters, for those who only look.

use serde::{Deserialize, Serialize};

use crate::time::Time;

const MINUTE_MS: u64 = 60_000;

/// Starts of this minute of the clock and of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Starts {
    minute: u64,
    current: u64,
    previous: u64,
}

impl Starts {
    pub(super) fn count(&mut self, now: Time) {
        *self = self.at(now);
        self.current += 1;
    }

    /// This minute's starts, and those of the last one for the part of it that is within sixty seconds, rounded up: one
    /// too many is better than one that was forgotten.
    pub(super) fn last_minute(&self, now: Time) -> u64 {
        let Self { current, previous, .. } = self.at(now);
        let within_ms = MINUTE_MS - now.as_millis() % MINUTE_MS;
        current + previous.saturating_mul(within_ms).div_ceil(MINUTE_MS)
    }

    fn at(&self, now: Time) -> Self {
        let minute = now.as_millis() / MINUTE_MS;
        match minute.saturating_sub(self.minute) {
            0 => *self,
            1 => Self { minute, current: 0, previous: self.current },
            _ => Self { minute, current: 0, previous: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(MINUTE_MS * 1_000 + ms)
    }

    #[test]
    fn starts_fade_out_over_the_minute_after_theirs() {
        let mut starts = Starts::default();
        (0..60).for_each(|second| starts.count(at(second * 1_000)));
        assert_eq!(starts.last_minute(at(59_999)), 60);
        assert_eq!(
            [60_000, 75_000, 90_000, 119_999, 120_000].map(|ms| starts.last_minute(at(ms))),
            [60, 45, 30, 1, 0]
        );
        starts.count(at(90_000));
        assert_eq!(starts.last_minute(at(90_000)), 31);
    }

    #[test]
    fn the_turn_of_a_minute_forgets_none_of_those_that_just_began() {
        let mut starts = Starts::default();
        (0..5).for_each(|_| starts.count(at(59_999)));
        assert_eq!([59_999, 60_000, 60_001, 71_999].map(|ms| starts.last_minute(at(ms))), [5; 4]);
    }
}
