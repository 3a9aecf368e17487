//! Cached answers: fresh ones at intake and before a start, stale ones if nothing newer is available.

use super::Engine;
use crate::ended::{End, Fallback, ServedBy};
use crate::gate::{BreakerState, CallResult};
use crate::job::{DropReason, NewJob, Payload, Status};
use crate::lane::Entry;
use crate::retry::CONNECTION_BROKEN;
use crate::spec::CacheSpec;
use crate::table::{GroupIx, JobIx, LaneIx};
use crate::time::Time;
use crate::timeline::EventKind;
use crate::verbs::{Cached, MAX_BATCH, Outcome, Report, Settled};

/// Jobs that one verb examines to find those that a stale answer can end.
const MAX_SCANNED: usize = 4 * MAX_BATCH;

impl Engine {
    /// The entry under `key`, if the lane has a cache.
    pub(super) fn entry(&self, lane: LaneIx, key: &str) -> Option<(&CacheSpec, &Entry)> {
        let lane = self.lane(lane);
        Some((lane.cache_spec()?, lane.cache.get(key)?))
    }

    /// The cached answer to a new request, which then needs no job. A delayed request is not answered from the cache
    /// now.
    pub(super) fn answer_at_intake(
        &mut self,
        lane: LaneIx,
        chain: GroupIx,
        job: &NewJob,
        now: Time,
    ) -> Option<Cached> {
        let key = job.cache_key.as_deref().filter(|_| job.delay.is_zero())?;
        let (spec, entry) = self.entry(lane, key)?;
        let fresh_until = spec.fresh_until(entry.stored_at);
        let fresh = now < fresh_until;
        let stands_in = || now < spec.usable_until(entry.stored_at) && self.all_open(lane, chain, now);
        if !fresh && !stands_in() {
            return None;
        }
        let cached = Cached {
            answer: entry.answer.clone(),
            stale: (!fresh).then_some(Fallback::CircuitOpen),
            fresh_for: fresh_until.since(now),
            stale_for: now.since(fresh_until),
        };
        let state = self.lane_mut(lane);
        state.totals.answered_at_intake += 1;
        state.totals.cache_hits += u64::from(fresh);
        state.totals.fallbacks += u64::from(!fresh);
        state.dirty = true;
        Some(cached)
    }

    /// Whether every breaker of a chain is open and not yet ready for a probe.
    pub(super) fn all_open(&self, lane: LaneIx, chain: GroupIx, now: Time) -> bool {
        self.lane(lane).chain(chain).iter().all(|upstream| {
            let upstream = self.upstream(*upstream);
            let guarded = upstream.spec.as_ref().is_some_and(|spec| spec.breaker.is_some());
            guarded && upstream.gates.breaker().state(now) == BreakerState::Open
        })
    }

    /// The answer under a job's key, if it is still fresh.
    fn fresh_answer(&self, index: JobIx, now: Time) -> Option<Payload> {
        let job = &self.jobs[index];
        let (spec, entry) = self.entry(job.lane, job.cache_key()?)?;
        (now < spec.fresh_until(entry.stored_at)).then(|| entry.answer.clone())
    }

    /// The answer under a job's key, if it is fresh or may still be used as a stale one.
    fn usable_answer(&self, index: JobIx, now: Time) -> Option<Payload> {
        let job = &self.jobs[index];
        let (spec, entry) = self.entry(job.lane, job.cache_key()?)?;
        (now < spec.usable_until(entry.stored_at)).then(|| entry.answer.clone())
    }

    /// Ends a waiting job with a fresh answer. Returns whether there was one.
    pub(super) fn serve_fresh(&mut self, index: JobIx, now: Time) -> bool {
        let Some(answer) = self.fresh_answer(index, now) else { return false };
        self.end_with(index, answer, ServedBy::Cache, now);
        true
    }

    /// Ends a job with an answer that did not come from its own call. A waiting job that has expired is dropped
    /// instead.
    fn end_with(&mut self, index: JobIx, answer: Payload, by: ServedBy, now: Time) {
        if self.jobs[index].is_waiting() && self.jobs[index].is_expired(now) {
            self.drop_job(index, DropReason::TtlExpired, now);
            return;
        }
        self.stop_waiting(index);
        self.keep_answer(index, Some(answer));
        self.note(index, now, EventKind::Served(by));
        self.finish(index, End::Served(by), now);
    }

    /// Caches the answer of a successful call; waiting equal jobs are owed it.
    pub(super) fn store_answer(&mut self, index: JobIx, answer: Option<&Payload>, now: Time) {
        let job = &self.jobs[index];
        let (lane, key) = (job.lane, job.cache_key().cloned());
        let (Some(key), Some(answer)) = (key, answer) else { return };
        let state = self.lane_mut(lane);
        let Some(spec) = state.cache_spec().copied() else { return };
        let number = state.take_seq();
        let entry = Entry { answer: answer.clone(), stored_at: now, number };
        if state.cache.store(&key, entry, &spec) && state.equals.first_before(&key, number).is_some() {
            self.owed.insert((lane, number), key);
        }
    }

    /// Ends up to `budget` jobs that were waiting when an equal one succeeded. They get that answer, whatever its age,
    /// unless it was evicted.
    pub(super) fn serve_owed(&mut self, budget: &mut usize, now: Time) {
        while *budget > 0
            && let Some(((lane, number), key)) = self.owed.first_key_value()
        {
            let (lane, number, key) = (*lane, *number, key.clone());
            let entry = self.entry(lane, &key).filter(|(_, entry)| entry.number == number);
            let answer = entry.map(|(_, entry)| entry.answer.clone());
            if let Some((answer, job)) = answer.zip(self.lane(lane).equals.first_before(&key, number)) {
                self.end_with(job, answer, ServedBy::Coalesced, now);
                *budget -= 1;
            } else {
                self.owed.remove(&(lane, number));
                self.promote_next(lane, &key, None);
            }
        }
    }

    /// Ends waiting jobs that have a usable answer while all breakers of their chain are open. Returns whether `budget`
    /// was too small.
    pub(super) fn serve_covered(&mut self, lane: LaneIx, budget: &mut usize, now: Time) -> bool {
        let mut from = (GroupIx(0), 0);
        let mut scanned = 0;
        while let Some(((chain, seq), job)) = self.lane(lane).equals.next_covered(from) {
            if !self.all_open(lane, chain, now) {
                from = (GroupIx(chain.0 + 1), 0);
                continue;
            }
            if *budget == 0 || scanned == MAX_SCANNED {
                return true;
            }
            scanned += 1;
            from = (chain, seq + 1);
            let fresh = self.fresh_answer(job, now).map(|answer| (answer, ServedBy::Cache));
            let stale = ServedBy::Stale(Fallback::CircuitOpen);
            match fresh.or_else(|| self.usable_answer(job, now).map(|answer| (answer, stale))) {
                Some((answer, by)) => {
                    self.end_with(job, answer, by, now);
                    *budget -= 1;
                }
                None => self.lane_mut(lane).equals.uncover(chain, seq),
            }
        }
        false
    }

    /// Ends a job whose pass failed with a stale answer, if the failure is one that `stale_if_error` covers.
    pub(super) fn fall_back(
        &mut self,
        index: JobIx,
        report: &Report,
        outcome: &Outcome,
        now: Time,
    ) -> Option<Settled> {
        let (Outcome::Retry { failure, .. } | Outcome::Dead(failure) | Outcome::Failed(failure)) = outcome
        else {
            return None;
        };
        let why = match report.result {
            CallResult::TimedOut => Fallback::Timeout,
            CallResult::Unreachable => Fallback::Connection,
            CallResult::Failed if failure.code.as_deref() == Some(CONNECTION_BROKEN) => Fallback::Connection,
            CallResult::Failed => Fallback::Error,
            _ => return None,
        };
        let answer = self.usable_answer(index, now)?;
        self.fail_attempt(index, failure.clone(), now);
        self.end_with(index, answer, ServedBy::Stale(why), now);
        Some(Settled::Ended(Status::Completed))
    }

    /// Forgets answers that can no longer be used.
    pub(super) fn forget_answers(&mut self, lane: LaneIx, now: Time) {
        for _ in 0..MAX_BATCH {
            let state = self.lane_mut(lane);
            let Some(key) = state.cache.surplus(state.cache_spec(), now).cloned() else {
                return;
            };
            state.cache.remove(&key);
        }
    }
}
