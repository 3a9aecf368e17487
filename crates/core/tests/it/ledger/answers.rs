//! Cached answers.

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Cached, End, Ended, Engine, Fallback, JobId, NewJob, Outcome, Payload, ServedBy, Span, Status, Time,
};

use super::{Job, Ledger, State, Verdict, ensure, word};
use crate::rules::{self, upstream_name, upstream_number};

/// A cached answer.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    key: String,
    answer: Payload,
    stored_at: Time,
}

impl Kept {
    pub(super) fn usable_until(&self, ttl: u64, stale: u64) -> Time {
        self.stored_at + Span::from_millis(ttl) + Span::from_millis(stale)
    }
}

/// Whether every breaker of the chain is open; the breakers have their own checker.
fn all_open(chain: &[usize], engine: &Engine, now: Time) -> bool {
    let open = |upstream: &usize| {
        engine.upstream_view(&upstream_name(*upstream), now).is_some_and(|view| view.degraded_until.is_some())
    };
    chain.iter().all(open)
}

/// Whether an answer can end a job: not a job scheduled for later.
fn asks(job: &Job) -> bool {
    job.state == State::Queued || (job.waits() && job.attempts > 0)
}

impl Ledger {
    fn kept(&self, lane: usize, key: &str) -> Option<&Kept> {
        self.kept[lane].iter().find(|kept| kept.key == key)
    }

    fn fresh_until(&self, lane: usize, kept: &Kept) -> Time {
        kept.stored_at + Span::from_millis(self.plan.lanes[lane].cache.unwrap().0)
    }

    fn is_usable(&self, lane: usize, kept: &Kept, now: Time) -> bool {
        let (ttl, stale, _) = self.plan.lanes[lane].cache.unwrap();
        now < kept.usable_until(ttl, stale)
    }

    /// The expected answer at intake, if there is one.
    pub(super) fn intake(&self, lane: usize, new: &NewJob, engine: &Engine, now: Time) -> Option<Cached> {
        self.plan.lanes[lane].cache?;
        let kept = self.kept(lane, new.cache_key.as_deref().filter(|_| new.delay.is_zero())?)?;
        let fresh_until = self.fresh_until(lane, kept);
        let own = new.chain.as_ref().map(|chain| chain.iter().map(upstream_number).collect());
        let chain: Vec<_> = own.unwrap_or_else(|| rules::chain(self.plan.lanes[lane].chain).to_vec());
        let fresh = now < fresh_until;
        let given = fresh || (self.is_usable(lane, kept, now) && all_open(&chain, engine, now));
        given.then(|| Cached {
            answer: kept.answer.clone(),
            stale: (!fresh).then_some(Fallback::CircuitOpen),
            fresh_for: fresh_until.since(now),
            stale_for: now.since(fresh_until),
        })
    }

    /// Jobs that an answer under `key` can end, the most urgent first.
    fn askers(&self, lane: usize, key: &str) -> Vec<JobId> {
        let equal = self.waiting(lane).filter(|(_, job)| job.cache_key.as_deref() == Some(key) && asks(job));
        let mut equal: Vec<_> = equal.map(|(id, job)| (job.level, job.seq, id)).collect();
        equal.sort_unstable();
        equal.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Caches the answer of `id`; returns whether there was one.
    pub(super) fn keep(&mut self, id: JobId, answer: Option<&Payload>, now: Time) -> bool {
        let job = &self.jobs[&id];
        let (Some(key), Some(answer)) = (job.cache_key.clone(), answer) else { return false };
        let (_, _, max) = self.plan.lanes[job.lane].cache.unwrap();
        let kept = &mut self.kept[job.lane];
        kept.retain(|kept| kept.key != key);
        kept.push(Kept { key, answer: answer.clone(), stored_at: now });
        while kept.len() as u64 > max {
            kept.remove(0);
        }
        true
    }

    /// All jobs that wait for the answer of `id` are answered too.
    pub(super) fn answer_equals(&mut self, id: JobId, now: Time) {
        let job = &self.jobs[&id];
        let askers = self.askers(job.lane, job.cache_key.as_deref().unwrap());
        self.serving = true;
        for asker in askers {
            if now > self.jobs[&asker].expires_at {
                self.end(asker, Status::Dropped, "expired");
            } else {
                self.end(asker, Status::Completed, "coalesced");
            }
        }
        self.serving = false;
    }

    /// The name of the stale answer that a failed pass ends with, if it does.
    pub(super) fn falls_back(
        &self,
        id: JobId,
        result: CallResult,
        outcome: &Outcome,
        now: Time,
    ) -> Option<&'static str> {
        let failed = matches!(outcome, Outcome::Retry { .. } | Outcome::Dead(_) | Outcome::Failed(_));
        let fallback = match result {
            CallResult::TimedOut => Fallback::Timeout,
            CallResult::Unreachable => Fallback::Connection,
            CallResult::Failed => Fallback::Error,
            _ => return None,
        };
        let job = &self.jobs[&id];
        let kept = self.kept(job.lane, job.cache_key.as_deref()?)?;
        (failed && self.is_usable(job.lane, kept, now)).then_some(fallback.as_str())
    }

    /// Jobs of `lane` that were reported as answered: an answer must have been due for each, and no job may be left
    /// that only a stale answer can end.
    pub(super) fn served(&mut self, lane: usize, ended: &[Ended], engine: &Engine, now: Time) -> Verdict {
        while let Some(Ended { job: id, end: End::Served(by), .. }) = ended.get(self.reported.len()) {
            let Some(job) = self.jobs.get(id).filter(|job| job.lane == lane) else { break };
            let kept = job.cache_key.as_deref().and_then(|key| self.kept(lane, key));
            let Some(kept) = kept.filter(|_| asks(job)) else {
                return Err(format!("{id:?} was served {by:?}, but is {job:?}"));
            };
            let fresh = now < self.fresh_until(lane, kept);
            let stale = self.is_usable(lane, kept, now) && all_open(&job.chain, engine, now);
            let right = match by {
                ServedBy::Cache => fresh,
                ServedBy::Stale(Fallback::CircuitOpen) => !fresh && stale,
                _ => false,
            };
            ensure!(right, "{id:?} was served {by:?} with {kept:?} at {now:?}");
            self.end(*id, Status::Completed, word(&End::Served(*by)));
        }
        self.none_forgotten(lane, engine, now)
    }

    fn none_forgotten(&self, lane: usize, engine: &Engine, now: Time) -> Verdict {
        for kept in
            self.kept[lane].iter().filter(|kept| !self.paused[lane] && self.is_usable(lane, kept, now))
        {
            for id in self.askers(lane, &kept.key) {
                let job = &self.jobs[&id];
                ensure!(!all_open(&job.chain, engine, now), "{id:?} waits with an answer at hand: {job:?}");
            }
        }
        Ok(())
    }

    /// A job that was served got the cached answer. If its end is reported again, because its settlement was repeated,
    /// it still has the first answer: a newer one may be cached by now.
    pub(super) fn answers_are_right(&mut self, ended: &[Ended], engine: &Engine) -> Verdict {
        for Ended { job: id, end, .. } in ended {
            let (End::Served(by), Some(view)) = (end, engine.job(*id)) else { continue };
            let key = view.cache_key.as_deref().unwrap_or_default();
            let kept = self.kept(rules::lane_number(&view.lane), key).map(|kept| &kept.answer);
            let right = view.served == Some(*by)
                && match self.served_with.get(id) {
                    Some(before) => view.result == *before,
                    None => kept.is_none() || view.result.as_ref() == kept,
                };
            ensure!(right, "{id:?} was served {by:?}, but is shown as {view:?}");
            self.served_with.insert(*id, view.result);
        }
        Ok(())
    }

    /// Another job of the lane with the same key that is processing.
    pub(super) fn processing_equal(&self, id: JobId) -> Option<JobId> {
        let job = &self.jobs[&id];
        let key = job.cache_key.as_ref()?;
        let equal = |other: &Job| other.lane == job.lane && other.cache_key.as_ref() == Some(key);
        let runs = |other: &Job| matches!(other.state, State::Processing(_));
        self.jobs.iter().find(|(at, other)| **at != id && equal(other) && runs(other)).map(|(at, _)| *at)
    }

    /// Checks that a sweep has removed expired answers.
    pub(super) fn forget_answers(&mut self, now: Time) {
        for lane in 0..2 {
            let Some((ttl, stale, _)) = self.plan.lanes[lane].cache else { continue };
            self.kept[lane].retain(|kept| now < kept.usable_until(ttl, stale));
        }
    }
}
