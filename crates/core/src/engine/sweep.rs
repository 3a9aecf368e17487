//! Sweep: everything that only the passing of time triggers. Each step is bounded; an unfinished sweep answers "again
//! at once".

use super::Engine;
use super::jobs::Phase;
use super::leases::Use;
use crate::gate::CallResult;
use crate::ids::JobId;
use crate::job::{CallFailure, DropReason, FailureReason};
use crate::spec::Keep;
use crate::table::{JobIx, LaneIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::timeline::EventKind;
use crate::verbs::{MAX_BATCH, Report, Swept};

/// A job fails after this many workers vanished while running it.
const MAX_LOST: u8 = 10;

impl Engine {
    /// Requeues lost jobs, drops expired ones, queues scheduled ones that are due, and forgets what is beyond its
    /// retention.
    pub fn sweep(&mut self, now: Time) -> Swept {
        let mut swept = Swept { now, next: Time::NEVER, ..Swept::default() };
        self.end_silent(now);
        self.heal_breakers(now);
        swept.recovered = self.recover_lost(MAX_BATCH, now);
        let mut budget = MAX_BATCH;
        self.serve_owed(&mut budget, now);
        for lane in (0..self.lanes.len()).map(|lane| LaneIx(u32::try_from(lane).unwrap_or(u32::MAX))) {
            self.release_due(lane, MAX_BATCH, now);
            self.drop_expired(lane, MAX_BATCH, now);
            let waits = self.lane(lane).paused || self.lane(lane).gone;
            if !waits && self.serve_covered(lane, &mut budget, now) {
                swept.next = now;
            }
            self.trim_finished(lane, now);
            self.trim_dead(lane, now, &mut swept.dead_letters);
            swept.next = swept.next.min(self.redrive(lane, &mut swept.replayed, now));
            self.forget_keys(lane, MAX_BATCH, now);
            self.forget_answers(lane, now);
            swept.next = swept.next.min(self.next_event(lane, now)).min(self.next_forgetting(lane, now));
        }
        swept.next = swept.next.min(self.step_bulks(&mut swept.replayed, now));
        for _ in 0..MAX_BATCH {
            if self.buckets.forget_idle(now).is_none() {
                break;
            }
        }
        self.debits.forget_expired(now);
        swept.debits_dropped = self.debits.take_dropped();
        swept.next = swept.next.min(self.buckets.next_forgetting()).min(self.debits.next_expiry());
        if !self.owed.is_empty() {
            swept.next = now;
        }
        swept.ended = std::mem::take(&mut self.ended);
        swept
    }

    /// Closes breakers that were not probed for so long that they count as closed, so that the journal says so.
    fn heal_breakers(&mut self, now: Time) {
        for index in
            (0..self.upstreams.len()).map(|index| UpstreamIx(u32::try_from(index).unwrap_or(u32::MAX)))
        {
            if self.upstream(index).gates.breaker.has_healed(now) {
                self.change_gates(index, now, |state| state.gates.breaker.heal(now));
            }
        }
    }

    /// Returns at most `max` jobs whose lease expired to the front of their lines, or ends them.
    pub(super) fn recover_lost(&mut self, max: usize, now: Time) -> Vec<JobId> {
        let mut recovered = Vec::new();
        for _ in 0..max {
            let Some(id) = self.leases.expired(now) else { break };
            let Some(lease) = self.leases.remove(id) else {
                break;
            };
            if let Some((job, completion)) =
                lease.used_by.job().and_then(|job| self.take_early(job).map(|completion| (job, completion)))
            {
                let settled = self.end_awaited(job, id, &lease, completion, now);
                self.remember_settled(job, id, settled);
                continue;
            }
            let awaited = matches!(lease.used_by, Use::Awaiting(_));
            let result = if awaited { CallResult::TimedOut } else { CallResult::Unknown };
            self.release(id, &lease, &Report::from(result), now);
            let Some(job) = lease.used_by.job() else { continue };
            self.stop_processing(job);
            recovered.push(self.jobs[job].id);
            self.requeue_lost(job, awaited, now);
        }
        recovered
    }

    fn requeue_lost(&mut self, job: JobIx, awaited: bool, now: Time) {
        let state = &mut self.jobs[job];
        state.lost = state.lost.saturating_add(1);
        let lost = state.lost;
        let retries = self.lane_of(job).spec.as_ref().is_none_or(|spec| spec.retry.retries_ambiguous());
        if !awaited && retries && lost < MAX_LOST {
            self.note(job, now, EventKind::TakenUp);
            self.wait(job, None);
            self.promote_next_after(job);
            return;
        }
        let reason = match (awaited, retries) {
            (true, _) => "the upstream did not report back in time",
            (_, false) => "its worker vanished; it may have been sent, and the lane does not send it twice",
            _ => "ten workers vanished while running it",
        };
        let upstream = self.jobs[job].upstream.map(|upstream| self.upstream(upstream).name.clone());
        let failure = CallFailure { reason: FailureReason::fixed(reason), code: None, upstream };
        let failure = self.fail_attempt(job, failure, now);
        let next =
            awaited && retries && self.jobs[job].submission().is_some_and(|submission| submission.next);
        if !(next && self.requeue_for_rest(job, now)) {
            self.fail_permanently(job, failure, now);
        }
    }

    /// Moves at most `max` jobs that are due into their lines, then retries that the budget has room for. A scheduled
    /// job joins its line as if it were new.
    pub(super) fn release_due(&mut self, lane: LaneIx, max: usize, now: Time) {
        for _ in 0..max {
            let first = self.lane(lane).due.first_key_value().map(|((due, _), job)| (*due, *job));
            let Some((_, job)) = first.filter(|(due, _)| *due <= now) else {
                break;
            };
            self.stop_waiting(job);
            if self.jobs[job].attempts == 0 {
                self.jobs[job].seq = self.lane_mut(lane).take_seq();
            }
            self.wait(job, None);
        }
        self.release_held(lane, max, now);
    }

    /// Drops expired jobs, at most `max`.
    pub(super) fn drop_expired(&mut self, lane: LaneIx, max: usize, now: Time) {
        for _ in 0..max {
            let first = self.lane(lane).expiry.first_key_value().map(|(_, job)| *job);
            let Some(job) = first.filter(|job| self.jobs[*job].is_expired(now)) else {
                return;
            };
            self.drop_job(job, DropReason::TtlExpired, now);
        }
    }

    /// Forgets expired idempotency keys, examining at most `max`. The key of a job that has not ended is kept and no
    /// longer counts as the oldest.
    pub(super) fn forget_keys(&mut self, lane: LaneIx, max: usize, now: Time) {
        for _ in 0..max {
            let Some((key, job)) = self.lane(lane).keys.surplus(now) else {
                return;
            };
            let alive = self
                .jobs
                .find(job)
                .is_some_and(|job| !matches!(self.jobs[job].phase, Phase::Finished { .. }));
            let keys = &mut self.lane_mut(lane).keys;
            if alive {
                keys.prolong(&key, now);
            } else {
                keys.remove(&key);
            }
        }
    }

    /// When the next time-triggered event in `lane` is due.
    pub(super) fn next_event(&self, lane: LaneIx, now: Time) -> Time {
        let budget = self.lane(lane).held_back.waits().then(|| self.budget_opens(lane, now));
        let lane = self.lane(lane);
        let due = lane.due.first_key_value().map(|((due, _), _)| *due);
        // A job may still start in the millisecond in which it expires.
        let expiry = lane.expiry.first_key_value().map(|((at, _), _)| *at + Span::from_millis(1));
        let events = [due, expiry, budget, Some(self.leases.next_expiry())];
        events.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }

    fn next_forgetting(&self, lane: LaneIx, now: Time) -> Time {
        let lane = self.lane(lane);
        let keep = lane.spec.as_ref().map_or(Keep::default(), |spec| spec.keep);
        if lane.letter_to_trim(now).is_some()
            || lane.cache.surplus(lane.cache_spec(), now).is_some()
            || lane.finished.len() as u64 > keep.max
        {
            return now;
        }
        let events = [
            lane.finished.oldest().map(|at| at + keep.span),
            lane.dead.next_expiry(),
            lane.keys.next_expiry(),
            lane.cache.next_expiry(lane.cache_spec()),
        ];
        events.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }
}
