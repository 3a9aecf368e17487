//! Retry budgets: retries beyond the budget of their lane wait, and first attempts pass them.
//!
//! The budget is checked when a retry could start, so other obstacles are reported first and the budget is charged only
//! for calls that are made. A retry over budget leaves its line, spends no attempt, and returns when the budget has
//! room.

use super::Engine;
use super::jobs::{Job, Phase};
use crate::lane::Budget;
use crate::retry::RetryBudget;
use crate::table::{JobIx, LaneIx};
use crate::time::Time;

impl Job {
    /// Whether its next start is another attempt after a failed one.
    fn is_retry(&self) -> bool {
        self.tried == 0 && self.attempts > 0 && self.rare.as_ref().is_some_and(|rare| rare.failure.is_some())
    }
}

impl Engine {
    fn budget_rule(&self, lane: LaneIx) -> Option<RetryBudget> {
        self.lane(lane).spec.as_ref()?.retry.budget()
    }

    fn budget(&self, lane: LaneIx) -> Budget {
        self.lane(lane).budget.as_deref().copied().unwrap_or_default()
    }

    /// When the budget admits the retry; `None` if it does now.
    pub(super) fn over_budget(&self, index: JobIx, now: Time) -> Option<Time> {
        let job = &self.jobs[index];
        let rule = self.budget_rule(job.lane).filter(|_| job.is_retry())?;
        self.budget(job.lane).admits(&rule, now).err().map(|denial| denial.at)
    }

    /// When the budget of a lane has room for a retry.
    pub(super) fn budget_opens(&self, lane: LaneIx, now: Time) -> Time {
        let rule = self.budget_rule(lane);
        rule.and_then(|rule| self.budget(lane).admits(&rule, now).err()).map_or(now, |denial| denial.at)
    }

    /// Charges the attempt that a job starts to the budget.
    pub(super) fn count_attempt(&mut self, index: JobIx, now: Time) {
        let (lane, retry) = (self.jobs[index].lane, self.jobs[index].is_retry());
        let Some(rule) = self.budget_rule(lane).filter(|_| self.jobs[index].tried == 0) else { return };
        let state = self.lane_mut(lane);
        let budget = state.budget.get_or_insert_default();
        if retry {
            budget.count_retry(&rule, now);
        } else {
            budget.count_first(now);
        }
        state.dirty = true;
    }

    /// Removes a retry from its line until the budget has room for it.
    pub(super) fn hold_back(&mut self, index: JobIx, now: Time) {
        self.stop_waiting(index);
        let waiter = self.jobs[index].waiter(index);
        let key = self.line_key(index);
        let lane = self.lane_of(index);
        lane.enter(&waiter);
        lane.held_back.add(waiter.seq, index, key);
        self.jobs[index].phase = Phase::HeldBack { since: now };
        self.join_equals(index);
        self.promote_next_after(index);
        self.jobs.touch(index);
    }

    /// Returns held-back retries to their lines, as many as the budget has room for and at most `max`.
    pub(super) fn release_held(&mut self, lane: LaneIx, max: usize, now: Time) {
        for _ in 0..max {
            if self.lane(lane).held_back.len() == 0 {
                return;
            }
            let rule = self.budget_rule(lane);
            let room = rule.map_or(u64::MAX, |rule| self.budget(lane).room(&rule, now));
            let Some(index) = self.lane(lane).held_back.next(room) else { return };
            self.stop_waiting(index);
            self.wait(index, None);
            let Phase::Queued { line } = self.jobs[index].phase else { continue };
            let (seq, state) = (self.jobs[index].seq, self.lane_mut(lane));
            let (key, parked) = (state.lines[line].key().clone(), state.lines[line].parked.is_some());
            state.held_back.release(seq, key, parked);
        }
    }
}
