//! Complete: an async upstream reports the end of a job. The job ends, continues along its chain, or nothing changes.

use super::Engine;
use super::jobs::Phase;
use super::leases::{Lease, Use};
use crate::gate::CallResult;
use crate::ids::LeaseId;

use crate::table::JobIx;
use crate::time::Time;
use crate::timeline::EventKind;
use crate::verbs::{CompleteAnswer, Completed, Completion, MAX_BATCH, Outcome, Settled};

impl Engine {
    /// Ends a job that an upstream works on. If its worker still has the job, the completion is kept until the worker
    /// settles the submit.
    pub fn complete(&mut self, completion: Completion, now: Time) -> CompleteAnswer {
        let completed = self.complete_one(completion, now);
        let mut budget = MAX_BATCH;
        self.serve_owed(&mut budget, now);
        CompleteAnswer { completed, ended: std::mem::take(&mut self.ended) }
    }

    fn complete_one(&mut self, mut completion: Completion, now: Time) -> Completed {
        let Some(job) = self.jobs.find(completion.job) else { return Completed::Unknown };
        // The upstream has worked on it, so it was sent.
        if completion.report.result.is_unsent() {
            completion.report.result = CallResult::Unknown;
        }
        let status = self.jobs[job].status();
        let Phase::Processing { lease: id } = self.jobs[job].phase else {
            self.release_cancelled(job, &completion, now);
            return Completed::NotAwaited(status);
        };
        if matches!(completion.outcome, Outcome::Release | Outcome::Awaiting { .. })
            || !self.is_new_completion(job, id, &completion)
        {
            return Completed::NotAwaited(status);
        }
        let message = completion.message;
        let completed = if self.is_with_a_worker(job) {
            self.jobs.bytes += completion.answer.as_ref().map_or(0, |answer| answer.len() as u64);
            self.jobs[job].rare().submission.get_or_insert_default().early = Some(Box::new(completion));
            Completed::Kept
        } else {
            let Some(lease) = self.leases.remove(id) else { return Completed::NotAwaited(status) };
            let settled = self.end_awaited(job, id, &lease, completion, now);
            self.remember_settled(job, id, settled);
            Completed::Settled(settled)
        };
        // The job may have been forgotten when it ended.
        if let Some(state) = self.jobs.get_mut(job) {
            state.rare().submission.get_or_insert_default().remember_message(message);
            self.jobs.touch(job);
        }
        completed
    }

    /// Whether a completion is about what the upstream does under this lease, and is not a repetition.
    fn is_new_completion(&self, job: JobIx, id: LeaseId, completion: &Completion) -> bool {
        let at = self.leases.get(id).and_then(|lease| lease.upstream);
        if at.is_none_or(|at| self.upstream(self.without_key(at)).name != completion.upstream) {
            return false;
        }
        let Some(submission) = self.jobs[job].submission() else { return true };
        let known = submission.external.as_ref().filter(|_| completion.external.is_some());
        let same = known.is_none_or(|known| completion.external.as_ref() == Some(known));
        // Before the answer to a submit, a known external id is that of an earlier submit.
        let right = if self.is_with_a_worker(job) { known.is_none() || !same } else { same };
        let repeated = completion.message.is_some_and(|message| submission.messages.contains(&message));
        right && !repeated && submission.early.is_none()
    }

    /// Releases the slot of a cancelled job when its upstream has ended it.
    fn release_cancelled(&mut self, job: JobIx, completion: &Completion, now: Time) {
        let last = self.jobs[job].settled();
        let Some(Settled::Awaiting(id)) = last.map(|last| last.how) else { return };
        let Some(lease) = self.leases.get(id) else { return };
        let cancelled = matches!(lease.used_by, Use::Call(_) | Use::LaterCall(_));
        let here = |at| self.upstream(self.without_key(at)).name == completion.upstream;
        let here = lease.upstream.is_some_and(here);
        if cancelled
            && here
            && let Some(lease) = self.leases.remove(id)
        {
            self.release(id, &lease, &completion.report, now);
        }
    }

    /// The upstream has accepted the job: a completion that arrived before counts now, unless it was about an earlier
    /// submit.
    pub(super) fn settle_early(&mut self, job: JobIx, id: LeaseId, now: Time) -> Option<Settled> {
        let completion = self.take_early(job)?;
        let external = self.jobs[job].submission().and_then(|submission| submission.external.as_ref());
        if completion.external.is_some() && external.is_some() && completion.external.as_ref() != external {
            return None;
        }
        let lease = self.leases.remove(id)?;
        Some(self.end_awaited(job, id, &lease, completion, now))
    }

    /// Ends a job by its completion. `lease`, under which the upstream held it, has been removed.
    pub(super) fn end_awaited(
        &mut self,
        job: JobIx,
        id: LeaseId,
        lease: &Lease,
        completion: Completion,
        now: Time,
    ) -> Settled {
        let Completion { report, outcome, next, answer, .. } = completion;
        self.release(id, lease, &report, now);
        self.stop_processing(job);
        if let Outcome::Retry { failure, .. } | Outcome::Dead(failure) | Outcome::Failed(failure) = &outcome {
            self.fail_attempt(job, failure.clone(), now);
            if next && self.requeue_for_rest(job, now) {
                return Settled::Requeued;
            }
        }
        match self.fall_back(job, &report, &outcome, now) {
            Some(settled) => settled,
            None => self.decide(job, outcome, answer, now),
        }
    }

    /// Returns a job that its upstream failed to its line, for the remaining upstreams of its chain. Returns `false` if
    /// there are none.
    pub(super) fn requeue_for_rest(&mut self, job: JobIx, now: Time) -> bool {
        let Some(failed) = self.jobs[job].upstream else { return false };
        self.mark_tried(job, failed);
        if self.untried(&self.jobs[job]).next().is_none() || self.jobs[job].is_expired(now) {
            return false;
        }
        self.note(job, now, EventKind::WaitsForRest);
        self.wait(job, None);
        self.promote_next_after(job);
        true
    }
}
