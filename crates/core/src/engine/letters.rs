//! Dead letters that match a filter: listed, counted or discarded, in bounded steps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Engine;
use crate::dead_letter::{DeadLetter, DeadLetterView};
use crate::ids::JobId;
use crate::lane::Lane;
use crate::time::{Span, Time};
use crate::verbs::{
    CountLetters, DiscardedLetters, LetterBy, LetterCounts, LetterCursor, LetterFilter, LetterPage,
    LetterQuery, MAX_BATCH, NO_CODE, TREND_HOURS,
};

/// Letters that one step examines.
pub(super) const MAX_SCANNED: usize = 10_000;
/// Bytes of payloads on one page. The letter that exceeds it is the last of its page.
const MAX_BYTES: usize = 4 << 20;
const HOUR: Span = Span::from_secs(3_600);

/// The hour of a trend that a time is in. A time after its end counts as the last hour: clocks differ a little.
fn hour_of(at: Time, until: Time) -> Option<usize> {
    let ago = usize::try_from(until.since(at).as_millis() / HOUR.as_millis()).ok()?;
    (TREND_HOURS - 1).checked_sub(ago)
}

impl Engine {
    /// A page of the dead letters that match, by lane and, within a lane, oldest first.
    pub fn dead_letters(&self, query: &LetterQuery) -> LetterPage {
        let (mut letters, mut bytes) = (Vec::new(), 0);
        let next = self.each_letter(query, |lane, job, letter| {
            bytes += letter.payload.len();
            letters.push(Self::view_letter(lane, job, letter));
            bytes < MAX_BYTES
        });
        LetterPage { letters, next }
    }

    /// How many dead letters match, among those that one step examines.
    pub fn count_letters(&self, ask: &CountLetters) -> LetterCounts {
        let mut counts: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        let mut trends: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
        let none: Arc<str> = NO_CODE.into();
        let next = self.walk_letters(&ask.filter, ask.after.as_ref(), |lane, _, letter| {
            if ask.idle && letter.replay.is_some() {
                return ControlFlow::Continue(());
            }
            let key = match ask.by {
                LetterBy::Code => letter.last_failure.code.clone().unwrap_or_else(|| none.clone()),
                LetterBy::Tenant => letter.tenant.clone(),
                LetterBy::Lane => lane.name.as_str().into(),
            };
            if let Some(hour) = ask.trend_until.and_then(|until| hour_of(letter.moved_at, until)) {
                trends.entry(key.clone()).or_insert_with(|| vec![0; TREND_HOURS])[hour] += 1;
            }
            *counts.entry(key).or_default() += 1;
            ControlFlow::Continue(())
        });
        LetterCounts { counts: counts.into_iter().collect(), trends: trends.into_iter().collect(), next }
    }

    /// Discards one page of the dead letters that match.
    pub fn discard_all(&mut self, query: &LetterQuery) -> DiscardedLetters {
        let mut gone = Vec::new();
        let next = self.each_letter(query, |lane, job, _| {
            gone.push((lane.name.clone(), job));
            true
        });
        for (lane, job) in &gone {
            self.discard(lane, *job);
        }
        DiscardedLetters { gone, next }
    }

    pub(super) fn view_letter(lane: &Lane, job: JobId, letter: &DeadLetter) -> DeadLetterView {
        let next_redrive = Self::next_redrive(lane, letter);
        DeadLetterView { job, lane: lane.name.clone(), letter: letter.clone(), next_redrive }
    }

    /// Calls `each` with at most as many letters as the query asks for, until it breaks.
    fn each_letter(
        &self,
        query: &LetterQuery,
        mut each: impl FnMut(&Lane, JobId, &DeadLetter) -> bool,
    ) -> Option<LetterCursor> {
        let mut left = query.max.clamp(1, MAX_BATCH);
        self.walk_letters(&query.filter, query.after.as_ref(), |lane, job, letter| {
            left -= 1;
            if each(lane, job, letter) && left > 0 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
    }

    /// Calls `each` with the letters that match after a cursor, among those that one step examines. Returns where to
    /// continue.
    fn walk_letters(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        mut each: impl FnMut(&Lane, JobId, &DeadLetter) -> ControlFlow<()>,
    ) -> Option<LetterCursor> {
        let begun = |lane: &&Lane| after.is_none_or(|after| lane.name >= after.lane);
        let mut lanes: Vec<&Lane> = self.lanes.iter().filter(|lane| filter.has_lane(&lane.name)).collect();
        lanes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut scanned = 0;
        for lane in lanes.into_iter().filter(begun) {
            let start = after.filter(|after| after.lane == lane.name).map_or(0, |after| after.number);
            for (number, job, letter) in lane.dead.after(start) {
                // Letters are in the order of `moved_at`.
                if filter.until.is_some_and(|until| letter.moved_at > until) {
                    break;
                }
                scanned += 1;
                let flow =
                    if filter.fits(letter) { each(lane, job, letter) } else { ControlFlow::Continue(()) };
                if flow.is_break() || scanned == MAX_SCANNED {
                    return Some(LetterCursor { lane: lane.name.clone(), number });
                }
            }
        }
        None
    }
}
