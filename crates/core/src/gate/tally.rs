//! Counts that expire, such as places in a window or starts of the last minute.
//!
//! They are kept as (expiry, count), sorted, at most [`MAX_ENTRIES`] of them. Expiries may be rounded *up* to keep the
//! entries few: then something counts a little longer than it must, never shorter.

use std::collections::VecDeque;

use crate::time::{Span, Time};

/// Above this the two oldest entries are merged into the later one.
pub(super) const MAX_ENTRIES: usize = 192;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// Expiry and count.
    entries: VecDeque<(Time, u32)>,
}

impl Tally {
    /// Adds `count` until `until`, rounded up to a multiple of `grain_ms`, and removes entries that expired by `now`.
    pub(super) fn add(&mut self, count: u32, until: Time, grain_ms: u64, now: Time) {
        while self.entries.front().is_some_and(|(until, _)| *until <= now) {
            self.entries.pop_front();
        }
        if until <= now || count == 0 {
            return;
        }
        let rounded = until.as_millis().checked_next_multiple_of(grain_ms);
        let until = rounded.map_or(Time::NEVER, Time::from_millis);
        let later = self.entries.iter().rev().take_while(|(other, _)| *other > until).count();
        let place = self.entries.len() - later;
        match place.checked_sub(1).and_then(|before| self.entries.get_mut(before)) {
            Some((same, known)) if *same == until => *known = known.saturating_add(count),
            _ => self.entries.insert(place, (until, count)),
        }
        if self.entries.len() > MAX_ENTRIES
            && let Some((_, oldest)) = self.entries.pop_front()
            && let Some((_, known)) = self.entries.front_mut()
        {
            *known = known.saturating_add(oldest);
        }
    }

    /// How many count at `now`.
    pub(super) fn count(&self, now: Time) -> u32 {
        self.live(now).fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// When `count` of those counted at `now` will have expired; `None` if there are fewer.
    pub(super) fn over_at(&self, count: u32, now: Time) -> Option<Time> {
        let mut left = count;
        for (until, count) in self.live(now) {
            left = left.saturating_sub(*count);
            if left == 0 {
                return Some(*until);
            }
        }
        None
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries as (time since the previous expiry, count).
    pub(crate) fn steps(&self) -> impl Iterator<Item = (Span, u32)> {
        let before = std::iter::once(Time::default()).chain(self.entries.iter().map(|(until, _)| *until));
        self.entries.iter().zip(before).map(|((until, count), before)| (until.since(before), *count))
    }

    /// Restores a tally from [`Tally::steps`].
    pub(crate) fn from_steps(steps: impl IntoIterator<Item = (Span, u32)>) -> Self {
        let mut last = Time::default();
        let entries = steps.into_iter().map(|(step, count)| {
            last = last + step;
            (last, count)
        });
        Self { entries: entries.collect() }
    }

    fn live(&self, now: Time) -> impl Iterator<Item = &(Time, u32)> {
        self.entries.iter().skip_while(move |(until, _)| *until <= now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    #[test]
    fn entries_added_out_of_order_count_until_their_own_expiry() {
        let mut tally = Tally::default();
        for until in [30, 10, 20, 10] {
            tally.add(1, at(until), 1, at(0));
        }
        assert_eq!([0, 9, 10, 19, 20, 30].map(|ms| tally.count(at(ms))), [4, 4, 2, 2, 1, 0]);
        assert_eq!([1, 2, 3, 4].map(|n| tally.over_at(n, at(0))), [10, 10, 20, 30].map(|ms| Some(at(ms))));
        assert_eq!(tally.over_at(5, at(0)), None);
        assert_eq!(tally.over_at(2, at(10)), Some(at(30)));
    }

    #[test]
    fn a_tally_stays_small_and_never_counts_too_little() {
        let mut tally = Tally::default();
        let ends: Vec<_> = (0..1_000).map(|n| 10_000 + n * 7 % 1_000).collect();
        for until in &ends {
            tally.add(1, at(*until), 1, at(0));
            assert!(tally.len() <= MAX_ENTRIES);
        }
        for now in (9_900..11_100).step_by(10) {
            let exact = ends.iter().filter(|until| **until > now).count();
            assert!(tally.count(at(now)) as usize >= exact, "at {now}");
        }
        assert_eq!((tally.count(at(0)), tally.count(at(11_000))), (1_000, 0));
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        let mut tally = Tally::default();
        tally.add(u32::MAX, Time::NEVER, 477, at(0));
        tally.add(u32::MAX, Time::NEVER, 1, at(0));
        assert_eq!((tally.count(at(0)), tally.over_at(1, at(0))), (u32::MAX, Some(Time::NEVER)));
    }

    proptest! {
        #[test]
        fn a_tally_is_restored_unchanged(adds in prop::collection::vec((1..9_u32, 0..100_000_u64), 0..300)) {
            let mut tally = Tally::default();
            adds.iter().for_each(|(count, until)| tally.add(*count, at(*until), 1, at(0)));
            prop_assert_eq!(&Tally::from_steps(tally.steps()), &tally);
        }
    }
}
