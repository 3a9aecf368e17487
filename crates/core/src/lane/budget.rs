//! The retry budget of a lane: how many retries may start in addition to its first attempts.
//!
//! `min` retries may always start: they take from a bucket. Beyond that, a retry may start while the retries of the
//! last ten seconds that were not paid from the bucket are fewer than `share` of the first attempts of the last ten
//! seconds. Both are counted in periods of ten seconds; the previous period counts in proportion to its overlap with
//! the last ten seconds.

use crate::gate::{Bucket, NotUntil, Reason};
use crate::retry::RetryBudget;
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// The length of a period.
const WINDOW: Span = Span::from_secs(10);

/// What is used of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Budget {
    /// The bucket of `min`; `None` means full.
    pub(crate) min: Option<Bucket>,
    /// When the current period began.
    pub(crate) began: Time,
    /// First attempts in the current and in the previous period.
    pub(crate) firsts: (u64, u64),
    /// Retries in both periods that were not paid from the bucket.
    pub(crate) retries: (u64, u64),
}

impl Budget {
    /// How many retries may start now.
    pub(crate) fn room(&self, rule: &RetryBudget, now: Time) -> u64 {
        self.min_room(rule, now) + self.rolled(now).share_room(rule, now)
    }

    /// Whether a retry may start now; otherwise when it may without further first attempts, which can only make it
    /// earlier.
    pub(crate) fn admits(&self, rule: &RetryBudget, now: Time) -> Result<(), NotUntil> {
        if self.room(rule, now) > 0 {
            return Ok(());
        }
        let bucket = self.min.map_or(Ok(()), |bucket| bucket.admits(&rule.min(), Tokens::ONE, now));
        let at = bucket.err().map_or(now, |denial| denial.at);
        Err(NotUntil::new(Reason::RetryBackoff, at.min(self.rolled(now).share_opens(rule, now))))
    }

    /// Counts a first attempt that starts.
    pub(crate) fn count_first(&mut self, now: Time) {
        *self = self.rolled(now);
        self.firsts.0 += 1;
    }

    /// Counts a retry that starts.
    pub(crate) fn count_retry(&mut self, rule: &RetryBudget, now: Time) {
        *self = self.rolled(now);
        if self.min_room(rule, now) > 0 {
            let rule = rule.min();
            self.min.get_or_insert_with(|| Bucket::full(&rule, now)).spend(&rule, Tokens::ONE, now);
        } else {
            self.retries.0 += 1;
        }
    }

    /// Adapts the bucket to a changed rule, which applies from `now` on.
    pub(crate) fn fit(&mut self, old: &RetryBudget, new: &RetryBudget, now: Time) {
        if let Some(bucket) = &mut self.min {
            bucket.refill(&old.min(), now);
            bucket.fit(&new.min());
        }
    }

    fn min_room(&self, rule: &RetryBudget, now: Time) -> u64 {
        let balance = self.min.map_or(rule.min().capacity(), |bucket| bucket.balance(&rule.min(), now));
        balance.as_micro().max(0).unsigned_abs() / Tokens::ONE.as_micro().unsigned_abs()
    }

    fn share_room(&self, rule: &RetryBudget, now: Time) -> u64 {
        let window = u128::from(WINDOW.as_millis());
        let left = window - u128::from(now.since(self.began).as_millis()).min(window);
        let weighted =
            |(present, before): (u64, u64)| u128::from(present) * window + u128::from(before) * left;
        let allowed = weighted(self.firsts) * u128::from(rule.share_percent()) / 100;
        u64::try_from(allowed.saturating_sub(weighted(self.retries)) / window).unwrap_or(u64::MAX)
    }

    /// When the share has room if nothing starts until then, or when the period ends and it must be checked again.
    fn share_opens(&self, rule: &RetryBudget, now: Time) -> Time {
        let window = i128::from(WINDOW.as_millis());
        let left = (window - i128::from(now.since(self.began).as_millis())).max(0);
        let per_ms = |firsts: u64, retries: u64| {
            i128::from(firsts) * i128::from(rule.share_percent()) - 100 * i128::from(retries)
        };
        let (present, before) =
            (per_ms(self.firsts.0, self.retries.0), per_ms(self.firsts.1, self.retries.1));
        // What the previous period counts against retries shrinks by this much each millisecond.
        let missing = 100 * window - present * window - before * left;
        let wait = if before < 0 { (missing - before - 1).div_euclid(-before) } else { left };
        now + Span::from_millis(u64::try_from(wait.clamp(1, left.max(1))).unwrap_or(1))
    }

    /// Moves on to the period of `now`.
    fn rolled(&self, now: Time) -> Self {
        let elapsed = now.since(self.began);
        if elapsed < WINDOW {
            return *self;
        }
        if now < self.began + WINDOW + WINDOW {
            let before = |(present, _): (u64, u64)| (0, present);
            let (firsts, retries) = (before(self.firsts), before(self.retries));
            return Self { began: self.began + WINDOW, firsts, retries, ..*self };
        }
        Self { began: now, firsts: (0, 0), retries: (0, 0), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gate::BucketSpec;

    fn rule(share_percent: u8, min: u32) -> RetryBudget {
        RetryBudget::new(share_percent, BucketSpec::new(min, min, Span::from_secs(1)).unwrap()).unwrap()
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    fn start(budget: &mut Budget, rule: &RetryBudget, now: Time) -> u64 {
        let started = (0..1_000).take_while(|_| {
            let admitted = budget.admits(rule, now).is_ok();
            if admitted {
                budget.count_retry(rule, now);
            }
            admitted
        });
        started.count() as u64
    }

    #[test]
    fn the_minimum_is_always_allowed_and_refills() {
        let (mut budget, rule) = (Budget::default(), rule(20, 10));
        assert_eq!(start(&mut budget, &rule, at(0)), 10);
        let denial = budget.admits(&rule, at(0)).unwrap_err();
        assert_eq!(denial, NotUntil::new(Reason::RetryBackoff, at(100)));
        assert_eq!([100, 300, 10_000].map(|ms| start(&mut budget, &rule, at(ms))), [1, 2, 10]);
    }

    #[test]
    fn beyond_the_minimum_a_share_of_recent_first_attempts_is_allowed() {
        let (mut budget, rule) = (Budget::default(), rule(20, 1));
        (0..100).for_each(|_| budget.count_first(at(0)));
        assert_eq!(budget.room(&rule, at(0)), 21);
        assert_eq!(start(&mut budget, &rule, at(0)), 21);
        assert_eq!(start(&mut budget, &rule, at(500)), 0, "the bucket has half a token");
        (0..100).for_each(|_| budget.count_first(at(500)));
        assert_eq!(start(&mut budget, &rule, at(500)), 20);
        assert_eq!(start(&mut budget, &rule, at(40_000)), 1, "all of it is long ago");
    }

    #[test]
    fn first_attempts_expire_gradually() {
        let (mut budget, rule) = (Budget::default(), rule(50, 1));
        budget.count_first(at(0));
        (0..99).for_each(|_| budget.count_first(at(9_000)));
        start(&mut Budget::default(), &rule, at(0));
        let rooms = [9_000, 10_000, 15_000, 19_900, 20_000].map(|ms| budget.room(&rule, at(ms)));
        assert_eq!(rooms, [51, 51, 26, 1, 1]);
    }

    proptest! {
        #[test]
        fn a_budget_never_opens_before_the_time_it_reports(
            share in 0..=100u8,
            steps in proptest::collection::vec((0..4_000u64, any::<bool>()), 1..80),
        ) {
            // The bucket refills so slowly that only the share can open the budget.
            let min = BucketSpec::new(1, 1, Span::from_secs(86_400)).unwrap();
            let (mut budget, rule) = (Budget::default(), RetryBudget::new(share, min).unwrap());
            let mut ms = 0;
            for (wait, first) in steps {
                ms += wait;
                match budget.admits(&rule, at(ms)) {
                    _ if first => budget.count_first(at(ms)),
                    Ok(()) => budget.count_retry(&rule, at(ms)),
                    Err(denial) => {
                        prop_assert!(denial.at > at(ms));
                        let opens = denial.at.since(at(ms)).as_millis();
                        let before = [1, opens / 2, opens - 1].into_iter().filter(|after| (1..opens).contains(after));
                        for after in before {
                            prop_assert!(budget.admits(&rule, at(ms + after)).is_err(), "{after} of {opens} ms");
                        }
                    }
                }
            }
        }
    }
}
