//! Settle, advance and extend: what a worker says about its lease. Each is fenced: an unknown lease changes nothing.

use std::sync::Arc;

use super::Engine;
use super::jobs::{LastSettled, Phase};
use super::leases::{Lease, Use};
use super::tenant_limits::TenantHold;
use crate::charge::Charge;
use crate::ended::End;
use crate::gate::{CallResult, NotUntil, Pass, Reason, RequestEnd};
use crate::ids::LeaseId;
use crate::job::{CallFailure, Failure, Payload, Status};
use crate::policy::width;
use crate::table::{BucketIx, JobIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::timeline::{Event, EventKind, FailureNote};
use crate::tokens::Tokens;
use crate::verbs::{Advance, Advanced, MAX_BATCH, Outcome, Report, SettleAnswer, Settled, Settlement};

impl Engine {
    /// Ends leases, independently of each other.
    pub fn settle(&mut self, settlements: Vec<Settlement>, now: Time) -> SettleAnswer {
        let mut budget = MAX_BATCH;
        let settle = |settlement| {
            let settled = self.settle_one(settlement, now);
            self.serve_owed(&mut budget, now);
            settled
        };
        let leases = settlements.into_iter().map(settle).collect();
        SettleAnswer { leases, ended: std::mem::take(&mut self.ended) }
    }

    fn settle_one(&mut self, settlement: Settlement, now: Time) -> Settled {
        let id = settlement.lease;
        let Some(lease) = self.leases.remove(id) else {
            return self.settled_before(id);
        };
        let Some(job) = lease.used_by.job() else {
            self.release(id, &lease, &settlement.report, now);
            return Settled::Released;
        };
        let settled = self.settle_job(job, lease, settlement, now);
        self.remember_settled(job, id, settled);
        settled
    }

    fn settle_job(&mut self, job: JobIx, lease: Lease, settlement: Settlement, now: Time) -> Settled {
        let Settlement { lease: id, report, outcome, answer, unsent } = settlement;
        self.replace_payload(job, unsent);
        if let Outcome::Awaiting { timeout, external, next, poll } = outcome {
            let id = self.await_upstream(job, id, lease, report, now + timeout, now);
            self.submitted(job, external, next, poll, now);
            return self.settle_early(job, id, now).unwrap_or(Settled::Awaiting(id));
        }
        if !matches!(outcome, Outcome::Done | Outcome::DoneUncached)
            && let Some(completion) = self.take_early(job)
        {
            return self.end_awaited(job, id, &lease, completion, now);
        }
        let outcome = self.refusal_as_answer(job, &report, outcome, now);
        self.release(id, &lease, &report, now);
        self.stop_processing(job);
        match self.fall_back(job, &report, &outcome, now) {
            Some(settled) => settled,
            None => self.decide(job, outcome, answer, now),
        }
    }

    /// If the lane says so, a refusal (4xx) that the caller is waiting for is its answer and leaves no dead letter.
    fn refusal_as_answer(&self, job: JobIx, report: &Report, outcome: Outcome, now: Time) -> Outcome {
        let (state, refused) = (&self.jobs[job], report.status.is_some_and(|status| status / 100 == 4));
        let rare = state.rare.as_ref().filter(|rare| rare.replay_of.is_none());
        let waited = rare.and_then(|rare| rare.waited_until).is_some_and(|until| now <= until);
        let rules = self.lane(state.lane).spec.as_ref().and_then(|spec| spec.dead_letters.as_ref());
        match outcome {
            Outcome::Dead(failure)
                if waited
                    && refused
                    && report.result == CallResult::Rejected
                    && rules.is_some_and(|rules| !rules.answers()) =>
            {
                Outcome::Failed(failure)
            }
            outcome => outcome,
        }
    }

    /// The result of the settlement that ended the lease, if that was the last one of a job that still exists: the
    /// answer was lost. Nothing changes, but an end is reported again, because the caller did not receive it.
    fn settled_before(&mut self, id: LeaseId) -> Settled {
        let Some(job) = self.leases.settled_job(id) else { return Settled::Stale };
        let last = self.jobs[job].settled();
        let Some(LastSettled { how, .. }) = last.filter(|last| last.lease == id) else {
            return Settled::Stale;
        };
        if let Settled::Ended(_) = how {
            self.report_end_again(job);
        }
        how
    }

    /// Remembers the result of a job's settlement, unless the job was forgotten when it ended.
    pub(super) fn remember_settled(&mut self, index: JobIx, lease: LeaseId, how: Settled) {
        let Some(job) = self.jobs.get_mut(index) else { return };
        if let Some(older) = job.past().settled.replace(LastSettled { lease, how }) {
            self.leases.forget_settled(older.lease);
        }
        self.leases.remember_settled(lease, index);
    }

    pub(super) fn decide(
        &mut self,
        job: JobIx,
        outcome: Outcome,
        answer: Option<Payload>,
        now: Time,
    ) -> Settled {
        match outcome {
            Outcome::Done | Outcome::DoneUncached => {
                self.count_success(job);
                if outcome == Outcome::Done {
                    self.store_answer(job, answer.as_ref(), now);
                }
                self.keep_answer(job, answer);
                self.finish(job, End::Completed, now);
                Settled::Ended(Status::Completed)
            }
            Outcome::Retry { after, failure } if now + after <= self.jobs[job].expires_at => {
                let at = now + after;
                self.fail_attempt(job, failure, now);
                self.jobs[job].tried = 0;
                self.note(job, now, EventKind::RetryAt(at));
                self.wait(job, Some(at));
                self.promote_next_after(job);
                Settled::RetryAt(at)
            }
            Outcome::Retry { failure, .. } | Outcome::Dead(failure) => {
                self.keep_answer(job, answer);
                let failure = self.fail_attempt(job, failure, now);
                self.fail_permanently(job, failure, now);
                Settled::Ended(Status::Failed)
            }
            Outcome::Failed(failure) => {
                self.keep_answer(job, answer);
                let failure = self.fail_attempt(job, failure, now);
                self.finish(job, End::Failed { failure, dead_letter: false }, now);
                Settled::Ended(Status::Failed)
            }
            // Only `Release` gets here; awaiting jobs keep running.
            Outcome::Release | Outcome::Awaiting { .. } => {
                let state = &mut self.jobs[job];
                if state.tried == 0 {
                    state.attempts -= 1;
                }
                self.note(job, now, EventKind::Released);
                self.wait(job, None);
                self.promote_next_after(job);
                Settled::Requeued
            }
        }
    }

    /// Records once that the upstream failed the job: an advance that found the chain exhausted has already done so.
    /// Returns the failure as stored.
    pub(super) fn fail_attempt(&mut self, job: JobIx, failure: CallFailure, now: Time) -> Failure {
        let noted = |upstream| move |event: &Event<UpstreamIx>| matches!(event.kind, EventKind::Failed(at, _) if at == upstream);
        let state = &mut self.jobs[job];
        if let Some(upstream) = state.upstream
            && !state.timeline().last().is_some_and(noted(upstream))
        {
            self.count_failure(job, upstream, failure.code.as_ref());
            if let Some(code) = &failure.code {
                self.note_failure_code(upstream, code, now);
            }
            self.note(job, now, EventKind::Failed(upstream, Some(FailureNote::of(&failure).into())));
        }
        let failure = failure.at(now);
        self.jobs[job].rare().failure = Some(failure.clone());
        failure
    }

    /// The upstream has accepted the job: its slot stays taken under a new lease, that of the lane is released.
    fn await_upstream(
        &mut self,
        job: JobIx,
        old: LeaseId,
        mut lease: Lease,
        mut report: Report,
        until: Time,
        now: Time,
    ) -> LeaseId {
        // An accepted job was sent, whatever was reported: its tokens must not be returned both now and at its end.
        if report.result.is_unsent() {
            report.result = CallResult::Unknown;
        }
        let id = self.leases.issue(old.nonce);
        if report.result.is_error() {
            self.report_to_gates(old, &lease, &report, now);
        } else {
            // Whether the upstream works is known when it reports the end.
            self.report_answered(&lease, &report, now);
            if let Some(at) = lease.upstream {
                for index in self.gates_at(at) {
                    self.upstream_mut(index).gates.pass_on(old, id, until, now);
                }
            }
        }
        self.settle_holds(&lease, &report, now);
        self.release_lane(&lease, &report, now);
        lease.used_by = Use::Awaiting(job);
        lease.pass = lease.pass.answered();
        lease.expires = until;
        lease.holds.clear();
        lease.tenant = TenantHold::default();
        self.leases.insert(id, lease);
        let state = &mut self.jobs[job];
        state.phase = Phase::Processing { lease: id };
        if let Some(upstream) = state.upstream {
            self.note(job, now, EventKind::Awaiting(upstream));
        }
        self.jobs.touch(job);
        id
    }

    /// Moves a job to the next upstream of its chain that admits it, under the same lease.
    pub fn advance(&mut self, ask: Advance, now: Time) -> Advanced {
        self.advance_unless(None, ask, now)
    }

    /// Like [`Engine::advance`], but grants nothing, for the given reason: a job that could continue waits in its line.
    pub fn advance_later(&mut self, denial: NotUntil, ask: Advance, now: Time) -> Advanced {
        self.advance_unless(Some(denial), ask, now)
    }

    fn advance_unless(&mut self, denied: Option<NotUntil>, ask: Advance, now: Time) -> Advanced {
        let Advance { lease: id, upstream, report, failure, unsent } = ask;
        let Some(lease) = self.leases.get(id) else { return Advanced::Stale };
        let Use::Job(job, _) = lease.used_by else { return Advanced::Stale };
        let Some(current) = lease.upstream else { return Advanced::Exhausted };
        if self.upstream(self.without_key(current)).name != upstream.without_key() {
            // A repeated request: the answer was lost.
            return Advanced::To(self.upstream(current).name.clone());
        }
        if self.jobs[job].submission().is_some_and(|submission| submission.early.is_some()) {
            // The upstream has already reported the end, which counts when the lease is settled.
            return Advanced::Exhausted;
        }
        self.replace_payload(job, unsent);
        self.release_failed(job, id, current, &report, now);
        self.fail_attempt(job, failure, now);
        self.jobs.touch(job);
        self.continue_chain(denied, job, id, now)
    }

    fn continue_chain(&mut self, denied: Option<NotUntil>, job: JobIx, id: LeaseId, now: Time) -> Advanced {
        if self.untried(&self.jobs[job]).next().is_none() || self.jobs[job].is_expired(now) {
            return Advanced::Exhausted;
        }
        let Some(lease) = self.leases.remove(id) else { return Advanced::Stale };
        // A call under an expired lease would release its slots and its place as a probe immediately.
        let expired = (lease.expires <= now).then(|| NotUntil::new(Reason::NoWorker, now));
        let admitted = || self.first_admitting(&self.jobs[job], now).map_err(|(_, denial)| denial);
        let next = denied.or(expired).map_or_else(admitted, Err);
        match next {
            Ok(next) => {
                let holder = (lease.used_by, lease.tenant);
                let at = self.enter_upstream(job, id, holder, (next, None), lease.expires, now);
                Advanced::To(self.upstream(at).name.clone())
            }
            Err(denial) => {
                self.release_lane(&lease, &CallResult::Success.into(), now);
                self.stop_processing(job);
                self.note(job, now, EventKind::WaitsForRest);
                self.wait(job, None);
                self.promote_next_after(job);
                Advanced::Waits(denial)
            }
        }
    }

    /// A call did a part of a running job: the rest is now the payload of the job and of the dead letter it replays.
    fn replace_payload(&mut self, job: JobIx, unsent: Option<Payload>) {
        let Some(unsent) = unsent else { return };
        self.jobs.replace_payload(job, unsent.clone());
        let state = &self.jobs[job];
        let (lane, replay_of) = (state.lane, state.rare.as_ref().and_then(|rare| rare.replay_of));
        if let Some(letter) = replay_of {
            self.lane_mut(lane).dead.change(letter, |letter| letter.payload = unsent);
        }
    }

    /// Releases what the failed call held and marks the upstream as tried.
    fn release_failed(&mut self, job: JobIx, id: LeaseId, failed: UpstreamIx, report: &Report, now: Time) {
        if let Some(lease) = self.leases.get(id).cloned() {
            self.release_upstream(id, &lease, report, now);
        }
        self.leases.change(id, |lease| {
            lease.upstream = None;
            lease.holds.clear();
        });
        self.mark_tried(job, failed);
    }

    /// Marks `failed` as tried in this attempt.
    pub(super) fn mark_tried(&mut self, job: JobIx, failed: UpstreamIx) {
        let (state, failed) = (&self.jobs[job], self.without_key(failed));
        let place = self.lane(state.lane).chain(state.chain).iter().position(|upstream| *upstream == failed);
        self.jobs[job].tried |= place.map_or(0, |place| 1 << place);
    }

    /// Extends leases to `lease` from now. Returns which of them still exist.
    pub fn extend(&mut self, leases: &[LeaseId], lease: Span, now: Time) -> Vec<bool> {
        leases.iter().map(|id| self.extend_one(*id, now + lease, now)).collect()
    }

    pub(super) fn extend_one(&mut self, id: LeaseId, expires: Time, now: Time) -> bool {
        let Some(lease) = self.leases.extend(id, expires) else {
            return false;
        };
        let (job, upstream) = (lease.used_by.job(), lease.upstream);
        if let Some(at) = upstream {
            for index in self.gates_at(at) {
                self.upstream_mut(index).gates.extend(id, expires, now);
            }
        }
        if let Some(job) = job {
            self.jobs.touch(job);
        }
        true
    }

    /// Releases everything a lease held.
    pub(super) fn release(&mut self, id: LeaseId, lease: &Lease, report: &Report, now: Time) {
        self.release_upstream(id, lease, report, now);
        self.release_lane(lease, report, now);
    }

    pub(super) fn release_upstream(&mut self, id: LeaseId, lease: &Lease, report: &Report, now: Time) {
        self.report_to_gates(id, lease, report, now);
        self.settle_holds(lease, report, now);
        if let Some(at) = lease.upstream {
            for index in self.gates_at(at) {
                self.upstream_mut(index).gates.release_slot();
            }
            self.mark_users_ready(self.without_key(at));
        }
    }

    /// Releases the slots of lane and tenant; also the lane's token and its place in the window, if certainly nothing
    /// was sent.
    pub(super) fn release_lane(&mut self, lease: &Lease, report: &Report, now: Time) {
        let Some(lane) = lease.used_by.lane() else { return };
        let untried = match lease.used_by {
            Use::Job(job, _) | Use::Awaiting(job) => self.jobs[job].tried == 0,
            Use::Call(_) => true,
            Use::LaterCall(_) => false,
        };
        if lease.used_by.job().is_none() {
            self.history.count_request(lane, report.result);
        }
        self.came_free(lane);
        let answer = match answer_of(lease, report, now) {
            RequestEnd::NotSent if !untried => RequestEnd::At(now),
            answer => answer,
        };
        self.release_tenant(lease.tenant, answer == RequestEnd::NotSent, now);
        let lane = self.lane_mut(lane);
        let rules = lane.spec.as_ref().map(|spec| &spec.gates);
        lane.gates.release_slot();
        lane.gates.end_request(rules, Pass::default(), answer, now);
        lane.dirty = true;
        if let (RequestEnd::NotSent, Some(rules)) = (answer, rules) {
            lane.gates.refund(rules, now);
        }
    }

    /// Reports to the gates that a call was answered, but not its result.
    fn report_answered(&mut self, lease: &Lease, report: &Report, now: Time) {
        let Some(at) = lease.upstream else { return };
        if let Some(closure) = &report.retry_after {
            let bucket = closure.bucket.clone().or_else(|| self.narrowest(&lease.holds));
            self.close(at, bucket.as_deref(), now + closure.wait, now);
        }
        let answer = answer_of(lease, report, now);
        for index in self.gates_at(at) {
            let state = self.upstream_mut(index);
            state.gates.end_request(state.spec.as_ref(), lease.pass, answer, now);
        }
    }

    fn report_to_gates(&mut self, id: LeaseId, lease: &Lease, report: &Report, now: Time) {
        self.report_answered(lease, report, now);
        let Some(at) = lease.upstream else { return };
        self.count_call(at, report, now);
        for index in self.gates_at(at) {
            self.change_gates(index, now, |state| {
                if let Some(spec) = &state.spec {
                    state.gates.report(spec, id, lease.pass, (report.result, report.took), now);
                }
            });
        }
    }

    /// The call's bucket that is shared with the fewest others.
    fn narrowest(&self, holds: &[(BucketIx, Tokens)]) -> Option<Arc<str>> {
        let buckets = holds.iter().map(|(bucket, _)| &self.buckets[*bucket]);
        let narrowest = buckets.min_by_key(|bucket| width(&bucket.key, bucket.spec.capacity()));
        narrowest.map(|bucket| bucket.key.clone())
    }

    /// Closes a bucket, the upstream, or the key that the call was made with: the upstream said not to call before
    /// `until`.
    pub(super) fn close(&mut self, upstream: UpstreamIx, bucket: Option<&str>, until: Time, now: Time) {
        match bucket.and_then(|key| self.buckets.find(key)) {
            Some(bucket) => self.close_bucket(upstream, bucket, until, now),
            None => self.change_gates(upstream, now, |state| state.gates.close(until)),
        }
    }

    fn settle_holds(&mut self, lease: &Lease, report: &Report, now: Time) {
        for (bucket, hold) in &lease.holds {
            let cost = match self.buckets.terms_of(*bucket) {
                Some(terms) => terms.charge.cost(*hold, report),
                None => Charge::default().cost(*hold, report),
            };
            if let Some(correlation) = lease.correlation.filter(|_| cost > Tokens::ZERO) {
                self.note_debit(correlation, [*bucket], now);
            }
            self.buckets.settle(*bucket, *hold, cost, now);
        }
    }
}

/// The latest time at which the request of a call that ended at `now` can have arrived: when its answer began. A worker
/// that vanished sent nothing after the end of its lease.
fn answer_of(lease: &Lease, report: &Report, now: Time) -> RequestEnd {
    let answered = now - report.answered_ago.unwrap_or_default();
    match report.result {
        unsent if unsent.is_unsent() => RequestEnd::NotSent,
        CallResult::Unknown => RequestEnd::At(answered.min(lease.expires)),
        _ => RequestEnd::At(answered),
    }
}
