//! How many calls began in the last sixty seconds, for display only.
//!
//! With fewer than [`EXACT`] entries the count is exact to the millisecond. Beyond that, times are rounded up to a
//! second: calls that began up to 61 s ago may still be counted, and none of the last 60 s is ever missing. Every change
//! of an upstream stores the count, so it must stay small: an exact one would have up to 60,000 entries.

use super::tally::Tally;
use crate::time::{Span, Time};

const MINUTE: Span = Span::from_secs(60);
const EXACT: usize = 128;
/// With this grain and [`EXACT`], a tally never has to merge entries.
const GRAIN_MS: u64 = 1_000;

/// The starts of the last minute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StartCount(Tally);

impl From<Tally> for StartCount {
    fn from(tally: Tally) -> Self {
        Self(tally)
    }
}

impl StartCount {
    pub(crate) const fn tally(&self) -> &Tally {
        &self.0
    }

    /// Counts a call that began at `began`, which is not after `now`.
    pub(super) fn count(&mut self, began: Time, now: Time) {
        let grain_ms = if self.0.len() < EXACT { 1 } else { GRAIN_MS };
        self.0.add(1, began + MINUTE, grain_ms, now);
    }

    pub(super) fn last_minute(&self, now: Time) -> u64 {
        self.0.count(now).into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::MAX_ENTRIES;
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(60_000_500 + ms)
    }

    #[test]
    fn a_start_counts_for_exactly_sixty_seconds() {
        let mut starts = StartCount::default();
        (0..60).for_each(|second| starts.count(at(second * 1_000), at(second * 1_000)));
        assert_eq!(
            [59_000, 59_999, 60_000, 60_999, 75_000, 118_999, 119_000].map(|ms| starts.last_minute(at(ms))),
            [60, 60, 59, 59, 44, 1, 0]
        );
        starts.count(at(58_500), at(90_000));
        assert_eq!([118_499, 118_500].map(|ms| starts.last_minute(at(ms))), [2, 1], "reported late");
    }

    #[test]
    fn many_starts_are_counted_up_to_a_second_too_long_and_never_too_short() {
        let (mut starts, mut began) = (StartCount::default(), Vec::new());
        for ms in (0..200_000).step_by(3) {
            starts.count(at(ms), at(ms));
            began.push(ms);
            assert!(starts.0.len() <= MAX_ENTRIES, "{}", starts.0.len());
            let within = |span: u64| began.iter().rev().take_while(|b| **b + span > ms).count() as u64;
            if ms % 1_001 == 0 {
                let counted = starts.last_minute(at(ms));
                assert!((within(60_000)..=within(61_000)).contains(&counted), "{counted} at {ms}");
            }
        }
        assert_eq!(starts.last_minute(at(199_998 + 61_000)), 0);
    }
}
