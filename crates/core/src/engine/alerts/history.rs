//! What alerts remember of a lane: how many jobs had ended at which time, and which job numbers had been given out by
//! then.

use crate::lane::Totals;
use crate::time::{Span, Time};

/// Samples per period of a dead-letter rate.
const SAMPLES: u64 = 60;
/// Marks kept per lane; if there are more, every second one is dropped.
const MAX_MARKS: usize = 40;

/// The totals of a lane at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndsAt {
    pub(crate) at: Time,
    pub(crate) ended: u64,
    pub(crate) dead: u64,
}

/// Jobs with lower numbers had joined their lines by this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinedUp {
    pub(crate) at: Time,
    pub(crate) next_seq: u64,
}

/// See the module documentation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Oldest first. One is added only if jobs have ended since the last.
    pub(crate) ends: Vec<EndsAt>,
    /// Oldest first; none is older than the oldest waiting job.
    pub(crate) marks: Vec<LinedUp>,
}

impl History {
    /// Jobs that were called and ended in the last `over`, and how many of them became dead letters.
    pub(super) fn ended(&mut self, totals: &Totals, over: Span, now: Time) -> (u64, u64) {
        let (ended, dead) = (totals.completed + totals.failed, totals.dead);
        let step = Span::from_millis(over.as_millis() / SAMPLES);
        if self
            .ends
            .last()
            .is_none_or(|last| (last.ended, last.dead) != (ended, dead) && last.at + step <= now)
        {
            self.ends.push(EndsAt { at: now, ended, dead });
        }
        let passed = self.ends.iter().skip(1).take_while(|sample| sample.at + over <= now).count();
        self.ends.drain(..passed);
        let then = self.ends.first().map(|first| (first.ended, first.dead)).unwrap_or_default();
        (ended.saturating_sub(then.0), dead.saturating_sub(then.1))
    }

    /// How long the job numbered `oldest`, the lowest waiting number, has waited, to within a `step`.
    pub(super) fn waited(&mut self, oldest: Option<u64>, next_seq: u64, step: Span, now: Time) -> Span {
        let Some(oldest) = oldest else {
            self.marks.clear();
            return Span::ZERO;
        };
        let before = self.marks.iter().take_while(|mark| mark.next_seq <= oldest).count();
        self.marks.drain(..before);
        if self.marks.last().is_none_or(|last| last.at + step <= now) {
            self.marks.push(LinedUp { at: now, next_seq });
        }
        if self.marks.len() > MAX_MARKS {
            let mut keep = false;
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.marks.first().map_or(Span::ZERO, |first| now.since(first.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Time {
        Time::from_millis(secs * 1_000)
    }

    #[test]
    fn a_dead_letter_rate_covers_exactly_its_period() {
        let mut history = History::default();
        let hour = Span::from_secs(3_600);
        let mut look = |completed, dead, at| {
            let totals = Totals { completed, failed: dead, dead, ..Totals::default() };
            history.ended(&totals, hour, secs(at))
        };
        assert_eq!(look(1_000, 70, 0), (0, 0), "what was before is not known");
        assert_eq!(look(1_090, 80, 10), (100, 10), "counted before the first step is over");
        assert_eq!(look(1_090, 80, 70), (100, 10));
        assert_eq!(look(1_190, 80, 1_800), (200, 10));
        assert_eq!(look(1_190, 80, 3_671), (100, 0), "the first ones were over an hour ago");
        assert_eq!(look(1_190, 80, 5_401), (0, 0));
        assert_eq!(look(1_199, 81, 90_000), (10, 1), "a quiet day lies between");
    }

    #[test]
    fn memory_of_a_lane_is_bounded() {
        let mut history = History::default();
        for second in 0..100_000 {
            let totals = Totals { completed: second, ..Totals::default() };
            history.ended(&totals, Span::from_secs(3_600), secs(second));
            history.waited(Some(1), 2 + second, Span::from_secs(1), secs(second));
        }
        assert!(history.ends.len() <= 62 && history.marks.len() <= MAX_MARKS);
        assert_eq!(history.waited(Some(1), 1, Span::from_secs(1), secs(100_000)), Span::from_secs(100_000));
    }

    #[test]
    fn the_longest_wait_is_that_of_the_lowest_number() {
        let mut history = History::default();
        let mut look =
            |oldest, next, at| history.waited(oldest, next, Span::from_secs(10), secs(at)).as_millis();
        assert_eq!(look(Some(5), 8, 100), 0, "it may have come just now");
        assert_eq!(look(Some(5), 30, 160), 60_000);
        assert_eq!(look(Some(7), 30, 170), 70_000, "it was there as well");
        assert_eq!(look(Some(20), 30, 180), 20_000, "it came between two samples");
        assert_eq!(look(None, 30, 190), 0);
        assert_eq!(look(Some(29), 31, 200), 0, "the job was requeued");
    }
}
