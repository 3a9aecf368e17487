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

    /// This minute's starts, and those of the last one for the part of it that is within sixty seconds.
    pub(super) fn last_minute(&self, now: Time) -> u64 {
        let Self { current, previous, .. } = self.at(now);
        let within_ms = MINUTE_MS - now.as_millis() % MINUTE_MS;
        current + previous.saturating_mul(within_ms) / MINUTE_MS
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
            [60, 45, 30, 0, 0]
        );
        starts.count(at(90_000));
        assert_eq!(starts.last_minute(at(90_000)), 31);
    }
}
