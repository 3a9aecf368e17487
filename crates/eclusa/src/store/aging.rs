//! When to rewrite a journal because of its age, so that forgotten data does not stay in old chunks.
//!
//! In every period one pass reads all chunks that exist when it begins: what is still alive in them is written again,
//! and they are removed. A pass takes half a period and works in small parts, so that callers do not wait for it.

use std::time::Duration;

use eclusa_core::{Span, Time};

use crate::config::SHORTEST_FORGET_WITHIN;

/// A pass reads at least this fraction (1/n) of the journal at a time.
const PARTS: u64 = 512;
/// The first pass begins after this fraction (1/n) of a period, so that what expired while no process ran is removed
/// soon.
const SOON: u64 = 32;

/// The time that is lost around a pass, at most: what expired is forgotten by a sweep within a second, the journal is looked at
/// once a second when a pass is due and when its last part is, and files are removed with the next sync.
const OVERHEAD: Span = Span::from_secs(4);

/// The passes over a journal whose chunks have positions of type `P`.
#[derive(Debug)]
pub(super) struct Aging<P> {
    period_ms: u64,
    next_pass: Time,
    pass: Option<Pass<P>>,
}

#[derive(Debug)]
struct Pass<P> {
    began: Time,
    until: P,
    bytes: u64,
    looked: u64,
}

/// What to read now: the oldest chunks, of about `bytes` bytes, but none after `until`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AgingPart<P> {
    pub(super) until: P,
    pub(super) bytes: u64,
    /// Whether it is the first part of its pass.
    pub(super) begins: bool,
}

impl<P: Copy + Ord> Aging<P> {
    /// Expired data is gone `within` this time: at most one period until a pass begins, half a period for the pass, and the
    /// overhead.
    pub(super) fn new(within: Duration, now: Time) -> Self {
        let within = Span::from(within.max(SHORTEST_FORGET_WITHIN));
        let period_ms = (within.as_millis() - OVERHEAD.as_millis()) / 2;
        Self { period_ms, next_pass: now + Span::from_millis(period_ms / SOON), pass: None }
    }

    /// The part to read now, of a journal of which the chunks from `next` to `last` were not read, if there are any.
    pub(super) fn part(
        &mut self,
        now: Time,
        (next, last): (Option<P>, P),
        bytes: u64,
    ) -> Option<AgingPart<P>> {
        let begins = now >= self.next_pass;
        if begins {
            self.next_pass = now + Span::from_millis(self.period_ms);
            self.pass = Some(Pass { began: now, until: last, bytes, looked: 0 });
        }
        let pass = self.pass.as_ref()?;
        if next.is_none_or(|next| next > pass.until) {
            self.pass = None;
            return None;
        }
        let passed = now.since(pass.began).as_millis();
        let share = u128::from(pass.bytes) * u128::from(passed) / u128::from((self.period_ms / 2).max(1));
        let due = u64::try_from(share).unwrap_or(u64::MAX).saturating_add(pass.bytes / PARTS + 1);
        let bytes = due.saturating_sub(pass.looked);
        (bytes > 0).then_some(AgingPart { until: pass.until, bytes, begins })
    }

    /// Notes that chunks of `bytes` bytes were read.
    pub(super) fn looked(&mut self, bytes: u64) {
        if let Some(pass) = &mut self.pass {
            pass.looked += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The greatest age of a chunk in a journal that grows by a chunk of one byte per millisecond and is cleaned by
    /// `Aging`.
    fn oldest_ever(within_ms: u64, look_every_ms: u64) -> u64 {
        let mut aging = Aging::new(Duration::from_millis(within_ms), Time::default());
        let (mut first, mut oldest) = (0, 0);
        for now in (0..10 * within_ms).step_by(usize::try_from(look_every_ms).unwrap()) {
            let at = Time::from_millis(now);
            if let Some(part) = aging.part(at, (Some(first), now), now - first + 1) {
                let next = (first + part.bytes).min(part.until + 1);
                aging.looked(next - first);
                first = next;
            }
            oldest = oldest.max(now - first);
        }
        oldest
    }

    #[test]
    fn no_chunk_gets_older_than_promised() {
        for look_every_ms in [1, 7, 100] {
            let oldest = oldest_ever(10_000, look_every_ms);
            assert!((2_000..10_000).contains(&oldest), "{oldest}");
        }
    }

    /// How long a thousand chunks that are all written right after look number `burst` are there.
    fn age_of_a_burst(within: Duration, look_every_ms: u64, burst: usize) -> u64 {
        let mut aging = Aging::new(within, Time::default());
        let (mut first, mut last) = (1, 1);
        for look in 1.. {
            let now = look as u64 * look_every_ms;
            if let Some(part) = aging.part(Time::from_millis(now), (Some(first), last), last - first + 1) {
                let next = (first + part.bytes).min(part.until + 1);
                aging.looked(next - first);
                first = next;
            }
            // What lives is written again with every look.
            last += if look == burst { 1_000 } else { 1 };
            if look > burst && first > (burst as u64 + 1_000) {
                return now - burst as u64 * look_every_ms;
            }
        }
        unreachable!("it looks until they are gone")
    }

    /// The journal is looked at once a second at the least. The sweep before and the sync after may take a second each.
    #[test]
    fn the_shortest_time_is_kept() {
        for look_every_ms in [10, 700, 900, 999, 1_000] {
            for burst in 1..20 {
                let age = age_of_a_burst(SHORTEST_FORGET_WITHIN, look_every_ms, burst);
                let within = Duration::from_millis(1_000 + age + 1_000);
                assert!(within <= SHORTEST_FORGET_WITHIN, "{within:?} with a look every {look_every_ms} ms");
            }
        }
    }

    #[test]
    fn a_pass_is_done_in_small_parts() {
        let mut aging = Aging::new(Duration::from_hours(1), Time::default());
        assert_eq!(aging.part(Time::default(), (Some(1), 9), 512_000), None);
        let soon = Time::from_millis(1_798_000 / 32);
        assert_eq!(
            aging.part(soon, (Some(1), 9), 512_000),
            Some(AgingPart { until: 9, bytes: 1_001, begins: true })
        );
        aging.looked(1_001);
        assert_eq!(aging.part(soon, (Some(2), 9), 510_999), None);
        let later = soon + Span::from_millis(9_000);
        assert_eq!(
            aging.part(later, (Some(2), 10), 511_000),
            Some(AgingPart { until: 9, bytes: 5_125, begins: false })
        );
        assert_eq!(aging.part(later, (Some(10), 10), 1), None);
        assert_eq!(aging.part(soon + Span::from_secs(1_797), (Some(10), 10), 1), None);
        assert!(aging.part(soon + Span::from_secs(1_798), (Some(10), 10), 1).unwrap().begins);
    }
}
