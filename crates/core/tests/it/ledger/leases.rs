//! What happens under leases.

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admission, Admit, Advanced, Cancelled, Engine, Grant, JobId, LeaseId, Outcome, Payload, Report, Settled,
    Settlement, Status, Time, Usage,
};

use super::{CallEnd, Fact, Heir, Held, Lease, Ledger, MAX_LOST, Start, State, Verdict, ensure, held};
use crate::rules::{self, lane_number, upstream_number};

impl Ledger {
    /// Expired leases, in order of expiry.
    pub(super) fn recover_lost(&mut self, now: Time) -> Vec<JobId> {
        let mut lost: Vec<_> = self.leases.iter().map(|(id, lease)| (lease.expires, *id)).collect();
        lost.retain(|(expires, _)| *expires <= now);
        lost.sort_unstable();
        let mut recovered = Vec::new();
        for (_, id) in lost {
            let Some(lease) = self.leases.remove(&id) else { continue };
            let result = if lease.awaiting { CallResult::TimedOut } else { CallResult::Unknown };
            self.finish_call(id, &lease, &Report::from(result), None);
            let Some(job) = lease.job else { continue };
            recovered.push(job);
            self.stopped(job);
            let state = self.jobs.get_mut(&job).unwrap();
            state.lost += 1;
            if lease.awaiting || self.plan.lanes[state.lane].stops_when_ambiguous || state.lost >= MAX_LOST {
                self.end(job, Status::Failed, "failed");
            } else {
                self.stand_again(job);
            }
        }
        recovered
    }

    pub(super) fn finish_call(&mut self, id: LeaseId, lease: &Lease, report: &Report, heir: Option<Heir>) {
        let job = lease.job.and_then(|job| self.jobs.get(&job));
        // A job that the upstream works on was sent, whatever the report says.
        let contradiction = heir.is_some() && report.result.is_unsent();
        let result = if contradiction { CallResult::Unknown } else { report.result };
        self.facts.push(Fact::Ended(CallEnd {
            lease: id,
            upstream: lease.upstream,
            lane: lease.lane,
            result,
            cost: match &report.usage {
                Usage::Amount(used) => Some(used.as_micro()),
                _ => None,
            },
            retry_after: report.retry_after.clone(),
            held: lease.held.clone(),
            unsent: heir.is_none()
                && report.result.is_unsent()
                && !lease.later
                && job.is_none_or(|job| job.tried.is_empty()),
            heir,
        }));
    }

    pub(super) fn admitted(&mut self, ask: &Admit, admission: &Admission, now: Time) -> Verdict {
        let lane = ask.lane.as_ref().map(lane_number);
        let mut chain: Vec<_> = ask.chain.iter().map(upstream_number).collect();
        if let (Some(lane), true) = (lane, chain.is_empty()) {
            chain = rules::chain(self.plan.lanes[lane].chain).to_vec();
        }
        match admission {
            Admission::Granted { lease, upstream, lease_expires, .. } => {
                let upstream = upstream_number(upstream);
                ensure!(chain.contains(&upstream), "{admission:?} is not of {chain:?}");
                ensure!(lane.is_none_or(|lane| !self.paused[lane]), "{admission:?} in a paused lane");
                ensure!(*lease_expires == now + ask.lease, "{admission:?} at {now:?}");
                let held = ask.holds.iter().map(held).map(|(_, key, tokens)| (key, tokens)).collect();
                self.start(*lease, None, lane, lane, upstream, held, now + ask.lease)
            }
            Admission::Denied { upstream, .. } => {
                let known =
                    upstream.as_ref().is_none_or(|upstream| chain.contains(&upstream_number(upstream)));
                ensure!(known && !chain.contains(&3), "{admission:?} by one that is not of {chain:?}");
                Ok(())
            }
            Admission::UnknownUpstream(name) => {
                ensure!(chain == [3] && upstream_number(name) == 3, "{chain:?} is known, but {admission:?}");
                Ok(())
            }
            Admission::UnknownLane => Err("the lane is known".into()),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each is a different thing")]
    pub(super) fn start(
        &mut self,
        id: LeaseId,
        job: Option<JobId>,
        slot: Option<usize>,
        handed_out_by: Option<usize>,
        upstream: usize,
        held: Held,
        expires: Time,
    ) -> Verdict {
        let lease =
            Lease { job, lane: slot, upstream: Some(upstream), awaiting: false, later: false, expires, held };
        let start = Start {
            lease: id,
            upstream,
            lane: handed_out_by,
            job,
            held: lease.held.clone(),
            lease_expires: expires,
        };
        ensure!(self.leases.insert(id, lease).is_none(), "{id:?} was issued while it was out");
        self.issue(id)?;
        self.facts.push(Fact::Started(start));
        Ok(())
    }

    pub(super) fn issue(&mut self, id: LeaseId) -> Verdict {
        ensure!(!self.issued.contains(&id), "{id:?} was issued twice");
        self.issued.push(id);
        Ok(())
    }

    pub(super) fn granted(&mut self, lane: usize, grant: &Grant, expires: Time) -> Verdict {
        let upstream = upstream_number(&grant.upstream);
        ensure!(self.jobs.contains_key(&grant.job), "{grant:?} is of no job");
        let equal = self.processing_equal(grant.job);
        ensure!(equal.is_none(), "{grant:?} is sent while its equal {equal:?} is under way");
        let job = self.jobs.get_mut(&grant.job).unwrap();
        ensure!(job.state == State::Queued && job.lane == lane, "{grant:?}, but it is {job:?}");
        ensure!(job.untried().contains(&upstream), "{grant:?} is not of its chain: {job:?}");
        if job.tried.is_empty() {
            job.attempts += 1;
        }
        ensure!(grant.attempt == job.attempts, "{grant:?} is attempt {}", job.attempts);
        ensure!(
            grant.lease_expires == expires && grant.expires_at == job.expires_at && grant.level == job.level,
            "{grant:?} of {job:?}"
        );
        job.state = State::Processing(grant.lease);
        let held = job.held_at(upstream);
        self.facts.push(Fact::Served(grant.job, self.jobs[&grant.job].clone()));
        self.start(grant.lease, Some(grant.job), Some(lane), Some(lane), upstream, held, expires)
    }

    pub(super) fn advanced(
        &mut self,
        id: LeaseId,
        report: &Report,
        advanced: &Advanced,
        now: Time,
    ) -> Verdict {
        let lease = self.leases.get(&id).filter(|lease| lease.job.is_some() && !lease.awaiting).cloned();
        let Some(mut lease) = lease else {
            ensure!(*advanced == Advanced::Stale, "a stale advance said {advanced:?}");
            return Ok(());
        };
        let job_id = lease.job.unwrap();
        let Some(failed) = lease.upstream else {
            ensure!(*advanced == Advanced::Exhausted, "an advance after the last said {advanced:?}");
            return Ok(());
        };
        // The lane's slot stays with the lease.
        self.finish_call(id, &Lease { lane: None, ..lease.clone() }, report, None);
        self.jobs.get_mut(&job_id).unwrap().tried.push(failed);
        (lease.upstream, lease.held) = (None, Vec::new());
        self.leases.insert(id, lease.clone());
        let job = self.jobs.get_mut(&job_id).unwrap();
        let over = job.untried().is_empty() || now > job.expires_at;
        ensure!(over == (*advanced == Advanced::Exhausted), "{advanced:?} of {job:?} at {now:?}");
        match advanced {
            Advanced::Exhausted => {}
            Advanced::Stale => return Err(format!("{id:?} is out, but was called stale")),
            Advanced::To(next) => {
                let next = upstream_number(next);
                ensure!(lease.expires > now, "{id:?} expired at {:?} and went on at {now:?}", lease.expires);
                ensure!(job.untried().contains(&next), "advanced to {next} with {job:?}");
                let held = job.held_at(next);
                self.leases.remove(&id);
                self.issued.retain(|known| *known != id);
                self.start(id, Some(job_id), lease.lane, None, next, held, lease.expires)?;
            }
            Advanced::Waits(_) => {
                self.leases.remove(&id);
                self.finish_call(id, &lease, &Report::from(CallResult::Success), None);
                self.stopped(job_id);
                self.stand_again(job_id);
            }
        }
        Ok(())
    }

    pub(super) fn settled(
        &mut self,
        settlement: &Settlement,
        settled: Settled,
        engine: &Engine,
        now: Time,
    ) -> Verdict {
        let Some(lease) = self.leases.remove(&settlement.lease) else {
            return self.settled_again(settlement.lease, settled, engine);
        };
        let job = lease.job;
        self.settled_first(&lease, settlement, settled, now)?;
        if let Some(job) = job {
            let word = self.reported.iter().find(|(reported, _)| *reported == job).map(|(_, word)| *word);
            self.last_settled.insert(job, (settlement.lease, settled, word));
        }
        Ok(())
    }

    /// A repeated settlement of a job that still exists returns what it did, and its end is reported again.
    fn settled_again(&mut self, id: LeaseId, settled: Settled, engine: &Engine) -> Verdict {
        let last = self.last_settled.iter().find(|(_, (lease, ..))| *lease == id);
        let Some((job, (_, how, word))) = last.map(|(job, last)| (*job, *last)) else {
            ensure!(settled == Settled::Stale, "a stale settle said {settled:?}");
            return Ok(());
        };
        let forgotten = engine.job(job).is_none() && settled == Settled::Stale;
        ensure!(settled == how || forgotten, "a repeated settle said {settled:?}, not {how:?}");
        if let (false, Settled::Ended(_), Some(word)) = (forgotten, how, word) {
            self.reported.push((job, word));
        }
        Ok(())
    }

    fn settled_first(
        &mut self,
        lease: &Lease,
        settlement: &Settlement,
        settled: Settled,
        now: Time,
    ) -> Verdict {
        let Settlement { lease: id, report, outcome, answer, unsent: _ } = settlement;
        let id = *id;
        let heir = match (settled, outcome) {
            (Settled::Awaiting(lease), Outcome::Awaiting { timeout, .. }) => Some((lease, now + *timeout)),
            _ => None,
        };
        self.finish_call(id, lease, report, heir);
        let Some(job_id) = lease.job else {
            ensure!(settled == Settled::Released, "a call without a job is {settled:?}");
            return Ok(());
        };
        let fallback = self.falls_back(job_id, report.result, outcome, now);
        let job = self.jobs.get_mut(&job_id).unwrap();
        let expected = match outcome {
            Outcome::Awaiting { timeout: span, .. } => {
                let Settled::Awaiting(new) = settled else {
                    return Err(format!("an awaiting job is {settled:?}"));
                };
                job.state = State::Processing(new);
                let lease = Lease {
                    lane: None,
                    awaiting: true,
                    expires: now + *span,
                    held: Vec::new(),
                    ..lease.clone()
                };
                self.leases.insert(new, lease);
                return self.issue(new);
            }
            _ if fallback.is_some() => Settled::Ended(Status::Completed),
            Outcome::Done | Outcome::DoneUncached => Settled::Ended(Status::Completed),
            Outcome::Retry { after, .. } if now + *after <= job.expires_at => Settled::RetryAt(now + *after),
            Outcome::Retry { .. } | Outcome::Dead(_) | Outcome::Failed(_) => Settled::Ended(Status::Failed),
            Outcome::Release => Settled::Requeued,
        };
        ensure!(settled == expected, "{outcome:?} of {job:?} was {settled:?}");
        self.facts.push(Fact::Stopped(job_id, job.clone()));
        match settled {
            Settled::Ended(Status::Completed) => {
                let reusable = answer.as_ref().filter(|_| *outcome == Outcome::Done);
                self.completed(job_id, fallback, reusable, now);
            }
            Settled::RetryAt(at) => {
                job.tried.clear();
                job.state = State::Pending(at);
                let seq = job.seq;
                self.give_way(job_id, Some(seq));
            }
            Settled::Requeued => {
                if job.tried.is_empty() {
                    job.attempts -= 1;
                }
                self.stand_again(job_id);
            }
            _ => self.end(job_id, Status::Failed, "failed"),
        }
        Ok(())
    }

    pub(super) fn completed(
        &mut self,
        id: JobId,
        fallback: Option<&'static str>,
        answer: Option<&Payload>,
        now: Time,
    ) {
        let kept = fallback.is_none() && self.keep(id, answer, now);
        self.serving = kept;
        self.end(id, Status::Completed, fallback.unwrap_or("completed"));
        self.serving = false;
        if kept {
            self.answer_equals(id, now);
        }
    }

    pub(super) fn cancelled(&mut self, id: JobId, answer: &Cancelled) -> Verdict {
        let state = self.jobs.get(&id).map(|job| job.state);
        match (answer, state) {
            (Cancelled::Yes(_), Some(State::Pending(_) | State::Queued)) => {}
            (Cancelled::Yes(_), Some(State::Processing(lease))) => {
                let later = !self.jobs[&id].tried.is_empty();
                let lease = self.leases.get_mut(&lease).unwrap();
                (lease.job, lease.awaiting, lease.later) = (None, false, later);
                self.stopped(id);
            }
            (Cancelled::AlreadyEnded(reported), Some(State::Ended(status))) if *reported == status => {
                return Ok(());
            }
            (Cancelled::Unknown, None | Some(State::Ended(_))) => return Ok(()),
            _ => return Err(format!("cancel of a job that is {state:?}: {answer:?}")),
        }
        self.end(id, Status::Cancelled, "cancelled");
        Ok(())
    }
}
