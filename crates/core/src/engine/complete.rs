//! What an upstream tells of a job that it worked on: its end, the way on along its chain, or nothing new.

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
    /// Ends a job that an upstream works on. What is told of a job that its worker still has is kept until the worker has
    /// said how the submit went.
    pub fn complete(&mut self, told: Completion, now: Time) -> CompleteAnswer {
        let completed = self.complete_one(told, now);
        let mut budget = MAX_BATCH;
        self.serve_owed(&mut budget, now);
        CompleteAnswer { completed, ended: std::mem::take(&mut self.ended) }
    }

    fn complete_one(&mut self, mut told: Completion, now: Time) -> Completed {
        let Some(job) = self.jobs.find(told.job) else { return Completed::Unknown };
        // What the upstream has worked on was sent.
        if told.report.result.is_unsent() {
            told.report.result = CallResult::Unknown;
        }
        let status = self.jobs[job].status();
        let Phase::Processing { lease: id } = self.jobs[job].phase else {
            self.release_cancelled(job, &told, now);
            return Completed::NotAwaited(status);
        };
        if matches!(told.outcome, Outcome::Release | Outcome::Awaiting { .. })
            || !self.is_news(job, id, &told)
        {
            return Completed::NotAwaited(status);
        }
        let message = told.message;
        let completed = if self.is_with_a_worker(job) {
            self.jobs.bytes += told.answer.as_ref().map_or(0, |answer| answer.len() as u64);
            self.jobs[job].rare().away.get_or_insert_default().early = Some(Box::new(told));
            Completed::Kept
        } else {
            let Some(lease) = self.leases.remove(id) else { return Completed::NotAwaited(status) };
            let settled = self.end_awaited(job, id, &lease, told, now);
            self.remember_settled(job, id, settled);
            Completed::Settled(settled)
        };
        // It may be forgotten as it ends.
        if let Some(state) = self.jobs.get_mut(job) {
            state.rare().away.get_or_insert_default().hear(message);
            self.jobs.touch(job);
        }
        completed
    }

    /// Whether it is told of what the upstream does under this lease, and for the first time.
    fn is_news(&self, job: JobIx, id: LeaseId, told: &Completion) -> bool {
        let at = self.leases.get(id).and_then(|lease| lease.upstream);
        if at.is_none_or(|at| self.upstream(self.without_key(at)).name != told.upstream) {
            return false;
        }
        let Some(away) = self.jobs[job].away() else { return true };
        let known = away.external.as_ref().filter(|_| told.external.is_some());
        let same = known.is_none_or(|known| told.external.as_ref() == Some(known));
        // What the job is called before the answer to its submit is from an earlier one.
        let right = if self.is_with_a_worker(job) { known.is_none() || !same } else { same };
        let repeated = told.message.is_some_and(|message| away.heard.contains(&message));
        right && !repeated && away.early.is_none()
    }

    /// The upstream has ended what was cancelled here: its slot comes free.
    fn release_cancelled(&mut self, job: JobIx, told: &Completion, now: Time) {
        let last = self.jobs[job].rare.as_ref().and_then(|rare| rare.settled);
        let Some(Settled::Awaiting(id)) = last.map(|last| last.how) else { return };
        let Some(lease) = self.leases.get(id) else { return };
        let cancelled = matches!(lease.used_by, Use::Call(_) | Use::LaterCall(_));
        let here = |at| self.upstream(self.without_key(at)).name == told.upstream;
        let here = lease.upstream.is_some_and(here);
        if cancelled
            && here
            && let Some(lease) = self.leases.remove(id)
        {
            self.leave(id, &lease, &told.report, now);
        }
    }

    /// The worker has said that the upstream took the job in: what that told before counts now, unless it was told of an
    /// earlier submit.
    pub(super) fn settle_early(&mut self, job: JobIx, id: LeaseId, now: Time) -> Option<Settled> {
        let told = self.take_early(job)?;
        let external = self.jobs[job].away().and_then(|away| away.external.as_ref());
        if told.external.is_some() && external.is_some() && told.external.as_ref() != external {
            return None;
        }
        let lease = self.leases.remove(id)?;
        Some(self.end_awaited(job, id, &lease, told, now))
    }

    /// The upstream has told how a job ended that it held under `lease`, which is over.
    pub(super) fn end_awaited(
        &mut self,
        job: JobIx,
        id: LeaseId,
        lease: &Lease,
        told: Completion,
        now: Time,
    ) -> Settled {
        let Completion { report, outcome, next, answer, .. } = told;
        self.leave(id, lease, &report, now);
        self.stop_processing(job);
        if let Outcome::Retry { failure, .. } | Outcome::Dead(failure) | Outcome::Failed(failure) = &outcome {
            self.fail_attempt(job, failure.clone(), now);
            if next && self.goes_to_the_rest(job, now) {
                return Settled::Requeued;
            }
        }
        match self.fall_back(job, &report, &outcome, now) {
            Some(settled) => settled,
            None => self.decide(job, outcome, answer, now),
        }
    }

    /// Puts a job that its upstream failed back into its line, for those of its chain that are left; says whether there are
    /// any.
    pub(super) fn goes_to_the_rest(&mut self, job: JobIx, now: Time) -> bool {
        let Some(failed) = self.jobs[job].upstream else { return false };
        self.mark_tried(job, failed);
        if self.untried(&self.jobs[job]).is_empty() || self.jobs[job].is_expired(now) {
            return false;
        }
        self.jobs[job].note(now, EventKind::WaitsForRest);
        self.wait(job, None);
        self.give_way_after(job);
        true
    }
}
