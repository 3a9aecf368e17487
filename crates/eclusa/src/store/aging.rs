//! When to rewrite a journal because of its age, so that what was forgotten does not stay in old chunks.
//!
//! In every period one pass looks through all chunks that are there when it begins: what is still alive in them is written
//! again, and they go. A pass takes half a period, a part at a time, so that callers do not wait for it.

use std::time::Duration;

use eclusa_core::{Span, Time};

/// A pass looks through at least this part of the journal at a time.
const PARTS: u64 = 512;
/// The first pass begins after this part of a period: what expired while no process ran goes soon.
const SOON: u64 = 32;

/// The passes over a journal whose chunks have places of type `P`.
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

/// What to look through now: the oldest chunks, of about so many bytes, but none after `until`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<P> {
    pub(super) until: P,
    pub(super) bytes: u64,
    /// It is the first of its pass.
    pub(super) begins: bool,
}

impl<P: Copy + Ord> Aging<P> {
    /// Whatever has expired is gone `within` this time: at most a period until a pass begins, and half of one for the pass.
    pub(super) fn new(within: Duration, now: Time) -> Self {
        let period_ms = Span::from(within).as_millis() / 2;
        Self { period_ms, next_pass: now + Span::from_millis(period_ms / SOON), pass: None }
    }

    /// What is to be done now, with a journal from chunk `first` to chunk `last`.
    pub(super) fn part(&mut self, now: Time, (first, last): (P, P), bytes: u64) -> Option<Part<P>> {
        let begins = now >= self.next_pass;
        if begins {
            self.next_pass = now + Span::from_millis(self.period_ms);
            self.pass = Some(Pass { began: now, until: last, bytes, looked: 0 });
        }
        let pass = self.pass.as_ref()?;
        if first > pass.until {
            self.pass = None;
            return None;
        }
        let passed = now.since(pass.began).as_millis();
        let share = u128::from(pass.bytes) * u128::from(passed) / u128::from((self.period_ms / 2).max(1));
        let due = u64::try_from(share).unwrap_or(u64::MAX).saturating_add(pass.bytes / PARTS + 1);
        let bytes = due.saturating_sub(pass.looked);
        (bytes > 0).then_some(Part { until: pass.until, bytes, begins })
    }

    /// Chunks of `bytes` were looked through.
    pub(super) fn looked(&mut self, bytes: u64) {
        if let Some(pass) = &mut self.pass {
            pass.looked += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal with one chunk of a byte for every millisecond, cleaned as `Aging` says; the greatest age of a chunk.
    fn oldest_ever(within_ms: u64, look_every_ms: u64) -> u64 {
        let mut aging = Aging::new(Duration::from_millis(within_ms), Time::default());
        let (mut first, mut oldest) = (0, 0);
        for now in (0..10 * within_ms).step_by(usize::try_from(look_every_ms).unwrap()) {
            let at = Time::from_millis(now);
            if let Some(part) = aging.part(at, (first, now), now - first + 1) {
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
            assert!((4_000..10_000).contains(&oldest), "{oldest}");
        }
    }

    #[test]
    fn a_pass_is_done_in_small_parts() {
        let mut aging = Aging::new(Duration::from_hours(1), Time::default());
        assert_eq!(aging.part(Time::default(), (1, 9), 512_000), None);
        let soon = Time::from_millis(1_800_000 / 32);
        assert_eq!(aging.part(soon, (1, 9), 512_000), Some(Part { until: 9, bytes: 1_001, begins: true }));
        aging.looked(1_001);
        assert_eq!(aging.part(soon, (2, 9), 510_999), None);
        let later = soon + Span::from_millis(9_000);
        assert_eq!(aging.part(later, (2, 10), 511_000), Some(Part { until: 9, bytes: 5_120, begins: false }));
        assert_eq!(aging.part(later, (10, 10), 1), None);
        assert_eq!(aging.part(soon + Span::from_secs(1_799), (10, 10), 1), None);
        assert!(aging.part(soon + Span::from_secs(1_800), (10, 10), 1).unwrap().begins);
    }
}
