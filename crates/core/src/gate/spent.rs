//! What was spent from a bucket in the last minute, for display only.
//!
//! There may be a million buckets, so only two sums are kept: of the current minute and of the one before, which counts
//! in proportion to its overlap with the last sixty seconds. They are not stored.

use crate::time::Time;
use crate::tokens::Tokens;

const MINUTE_MS: u64 = 60_000;

/// The spending of the last minute. Sums are in tokens, exact to seven digits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Spent {
    minute: u32,
    running: f32,
    before: f32,
}

impl Spent {
    /// Counts what a call cost.
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

    /// What was spent in the last sixty seconds, assuming that spending in the previous minute was even.
    pub(crate) fn last_minute(&self, now: Time) -> Tokens {
        let spent = self.at(now);
        let left = MINUTE_MS - now.as_millis() % MINUTE_MS;
        #[expect(clippy::cast_precision_loss, reason = "it is at most 60,000")]
        let share = left as f64 / MINUTE_MS as f64;
        let tokens = f64::from(spent.running) + f64::from(spent.before) * share;
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
        let mut spent = Spent::default();
        let start = 60 - at(0).as_millis() / 1_000 % 60;
        spent.add(Tokens::whole(60), at(start));
        spent.add(Tokens::whole(20), at(start + 59));
        let whole = |seconds| spent.last_minute(at(start + seconds)).as_micro() / 1_000_000;
        assert_eq!([0, 59, 60, 75, 90, 119, 120, 9_999].map(whole), [80, 80, 80, 60, 40, 1, 0, 0]);
        spent.add(Tokens::from_micro(1_500_000), at(start + 90));
        assert_eq!(spent.last_minute(at(start + 90)).as_micro(), 41_500_000);
        assert_eq!(spent.last_minute(at(start)).as_micro(), 81_500_000, "a clock that steps back");
    }

    /// A million buckets have one each.
    #[test]
    fn spent_is_small() {
        assert_eq!(size_of::<Spent>(), 12);
    }
}
