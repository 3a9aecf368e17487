//! Tokens counted in the last minute, for display only: what calls spent from a bucket, and what events gave back.
//!
//! There may be a million buckets, so only two sums are kept: of the current minute and of the one before, which counts
//! in proportion to its overlap with the last sixty seconds. They are not stored.

use crate::time::Time;
use crate::tokens::Tokens;

const MINUTE_MS: u64 = 60_000;

/// See the module. Sums are in tokens, exact to seven digits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct LastMinute {
    minute: u32,
    running: f32,
    before: f32,
}

impl LastMinute {
    /// Counts tokens.
    pub(crate) fn add(&mut self, tokens: Tokens, now: Time) {
        *self = self.at(now);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "it need not be exact"
        )]
        let tokens = (tokens.as_micro() as f64 / 1e6) as f32;
        self.running += tokens;
    }

    /// The tokens of the last sixty seconds, assuming that those of the previous minute were spread evenly.
    pub(crate) fn tokens(&self, now: Time) -> Tokens {
        let counted = self.at(now);
        let left = MINUTE_MS - now.as_millis() % MINUTE_MS;
        #[expect(clippy::cast_precision_loss, reason = "it is at most 60,000")]
        let share = left as f64 / MINUTE_MS as f64;
        let tokens = f64::from(counted.running) + f64::from(counted.before) * share;
        #[expect(clippy::cast_possible_truncation, reason = "it saturates")]
        let micro = (tokens * 1e6) as i64;
        Tokens::from_micro(micro)
    }

    /// Moves on to the minute of `now`. A clock that steps back changes nothing.
    fn at(self, now: Time) -> Self {
        let minute = u32::try_from(now.as_millis() / MINUTE_MS).unwrap_or(u32::MAX);
        match minute.saturating_sub(self.minute) {
            0 => self,
            1 => Self { minute, running: 0.0, before: self.running },
            _ => Self { minute, running: 0.0, before: 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(1_700_000_000 * 60_000 / 60 + seconds * 1_000)
    }

    #[test]
    fn the_previous_minute_counts_in_proportion_to_its_overlap() {
        let mut counted = LastMinute::default();
        let start = 60 - at(0).as_millis() / 1_000 % 60;
        counted.add(Tokens::whole(60), at(start));
        counted.add(Tokens::whole(20), at(start + 59));
        let whole = |seconds| counted.tokens(at(start + seconds)).as_micro() / 1_000_000;
        assert_eq!([0, 59, 60, 75, 90, 119, 120, 9_999].map(whole), [80, 80, 80, 60, 40, 1, 0, 0]);
        counted.add(Tokens::from_micro(1_500_000), at(start + 90));
        assert_eq!(counted.tokens(at(start + 90)).as_micro(), 41_500_000);
        assert_eq!(counted.tokens(at(start)).as_micro(), 81_500_000, "a clock that steps back");
    }

    /// A million buckets have one each.
    #[test]
    fn it_is_small() {
        assert_eq!(size_of::<LastMinute>(), 12);
    }
}
