//! The end of a job: exactly one final status.

use super::Engine;
use super::jobs::{Job, Phase};
use crate::dead_letter::{DeadLetter, Kept, TrimReason};
use crate::ended::{End, Ended};
use crate::ids::{JobId, Name};
use crate::job::{DropReason, Failure, FailureReason, Hold, Payload, Status};
use crate::lane::JobHold;
use crate::spec::{DeadLetterSpec, Keep};
use crate::table::{JobIx, LaneIx};
use crate::time::{Span, Time};
use crate::timeline::EventKind;
use crate::verbs::MAX_BATCH;

impl Engine {
    /// Drops a waiting job.
    pub(super) fn drop_job(&mut self, index: JobIx, reason: DropReason, now: Time) {
        let avoided = (reason == DropReason::TtlExpired).then(|| self.kept_from(index, now)).flatten();
        self.stop_waiting(index);
        self.finish_having_avoided(index, End::Dropped(reason), avoided, now);
    }

    /// If all breakers of its chain are open: the upstream that a job in line was waiting for.
    fn kept_from(&self, index: JobIx, now: Time) -> Option<Name> {
        let job = &self.jobs[index];
        let in_line = matches!(job.phase, Phase::Queued { .. }) && !self.lane(job.lane).paused;
        let first = self.lane(job.lane).chain(job.chain).first().filter(|_| in_line)?;
        self.all_open(job.lane, job.chain, now).then(|| self.upstream(*first).name.clone())
    }

    /// Stores the upstream's answer with a job that is about to end.
    pub(super) fn keep_answer(&mut self, index: JobIx, answer: Option<Payload>) {
        if let Some(answer) = answer {
            self.jobs.bytes += answer.len() as u64;
            self.jobs[index].rare().result = Some(answer);
        }
    }

    /// Ends a job that failed permanently: with a dead letter, if the lane keeps them.
    pub(super) fn fail_permanently(&mut self, index: JobIx, failure: Failure, now: Time) {
        let dead_letter = self.add_dead_letter(index, now);
        self.finish(index, End::Failed { failure, dead_letter }, now);
    }

    /// Returns whether a new letter was written.
    fn add_dead_letter(&mut self, index: JobIx, now: Time) -> bool {
        let job = &self.jobs[index];
        let replay_of = job.rare.as_ref().and_then(|rare| rare.replay_of);
        let spec = self.lane(job.lane).spec.as_ref().and_then(|spec| spec.dead_letters.as_ref());
        let Some(ttl) = spec.map(DeadLetterSpec::ttl) else { return false };
        let (id, lane, correlation) = (job.id, job.lane, job.correlation());
        let letter = self.letter_of(job, ttl, now);
        let state = self.lane_mut(lane);
        if let Some(first) = replay_of.filter(|first| state.dead.get(*first).is_some()) {
            // The job may be an edited replay: the letter holds what was sent last.
            state.dead.change_kept(first, |old| {
                let (before, kept) = (&mut old.letter, letter);
                before.failed_attempts += kept.failed_attempts;
                before.last_failure = kept.last_failure;
                (before.payload, before.chain, before.holds) = (kept.payload, kept.chain, kept.holds);
                old.correlation = correlation;
            });
            return false;
        }
        let number = state.take_seq();
        state.totals.dead += 1;
        state.dead.add(number, Kept { job: id, letter, correlation });
        true
    }

    fn letter_of(&self, job: &Job, ttl: Span, now: Time) -> DeadLetter {
        let lane = self.lane(job.lane);
        let rare = job.rare.as_deref();
        DeadLetter {
            key: rare.and_then(|rare| rare.key.clone()),
            tenant: lane.tenants[job.tenant].name.clone(),
            level: job.level,
            payload: job.payload.clone(),
            chain: lane
                .chain(job.chain)
                .iter()
                .map(|upstream| self.upstream(*upstream).name.clone())
                .collect(),
            holds: self.holds_of(job),
            failed_attempts: job.attempts,
            last_failure: rare.and_then(|rare| rare.failure.clone()).unwrap_or_else(|| unknown_failure(now)),
            enqueued_at: job.created_at,
            moved_at: now,
            ttl,
            replay: None,
            callback: job.callback().cloned(),
            redrives: 0,
        }
    }

    fn holds_of(&self, job: &Job) -> Vec<Hold> {
        let named = |hold: &JobHold| {
            let bucket = &self.buckets[hold.bucket];
            let upstream = self.upstream(hold.upstream).name.clone();
            Hold { upstream, bucket: bucket.key.clone(), spec: bucket.spec, tokens: hold.tokens, terms: None }
        };
        job.holds().into_iter().flat_map(|holds| holds.iter()).map(named).collect()
    }

    /// Ends a job that is neither waiting nor running.
    pub(super) fn finish(&mut self, index: JobIx, end: End, now: Time) {
        self.finish_having_avoided(index, end, None, now);
    }

    fn finish_having_avoided(&mut self, index: JobIx, end: End, avoided: Option<Name>, now: Time) {
        let lane = self.jobs[index].lane;
        let cache_key = self.jobs[index].cache_key().cloned();
        let status = end.status();
        if let Some(holds) = self.jobs[index].rare.as_mut().and_then(|rare| rare.holds.take()) {
            holds.iter().for_each(|hold| self.buckets.remove_user(hold.bucket, now));
        }
        self.end_replay(index, status, now);
        self.take_early(index);
        let state = self.lane_mut(lane);
        state.totals.count_end(&end);
        let number = state.take_seq();
        state.finished.push(now, index);
        let (dropped, served) = match end {
            End::Dropped(reason) => (Some(reason), None),
            End::Served(by) => (None, Some(by)),
            End::Completed | End::Failed { .. } | End::Cancelled => (None, None),
        };
        self.jobs[index].phase = Phase::Finished { at: now, number, status, dropped, served };
        self.jobs.touch(index);
        self.note_unstored(index, now, EventKind::Ended(status));
        self.call_back(index, now);
        self.report_end(index, end, avoided);
        if let Some(key) = cache_key {
            self.promote_next(lane, &key, None);
        }
        self.trim_finished(lane, now);
    }

    fn report_end(&mut self, index: JobIx, end: End, avoided: Option<Name>) {
        let job = &self.jobs[index];
        let lane = self.lane(job.lane);
        let ended = Ended {
            job: job.id,
            lane: lane.name.clone(),
            tenant: lane.tenants[job.tenant].name.clone(),
            level: job.level,
            attempts: job.attempts,
            created_at: job.created_at,
            end,
            avoided,
            forgotten: None,
        };
        self.ended.push(ended);
    }

    /// Reports the end of a finished job again.
    pub(super) fn report_end_again(&mut self, index: JobIx) {
        let job = &self.jobs[index];
        let Phase::Finished { at, status, dropped, served, .. } = job.phase else { return };
        let failure = job.rare.as_ref().and_then(|rare| rare.failure.clone());
        let end = match (status, dropped, served) {
            (Status::Cancelled, ..) => End::Cancelled,
            (_, Some(reason), _) => End::Dropped(reason),
            (_, _, Some(by)) => End::Served(by),
            (Status::Failed, ..) => End::Failed {
                failure: failure.unwrap_or_else(|| unknown_failure(at)),
                dead_letter: self.lane(job.lane).dead.get(job.id).is_some(),
            },
            _ => End::Completed,
        };
        self.report_end(index, end, None);
    }

    fn end_replay(&mut self, index: JobIx, status: Status, now: Time) {
        let job = &self.jobs[index];
        let Some(first) = job.rare.as_ref().and_then(|rare| rare.replay_of) else {
            return;
        };
        let (id, lane) = (job.id, job.lane);
        self.note_redrive_end(lane, first, id, status, now);
        self.note_bulk_end(lane, first, id, status, now);
        let lane = self.lane_mut(lane);
        if status == Status::Completed {
            lane.dead.retire(first, now);
            lane.dirty = true;
        } else {
            lane.dead.change(first, |letter| letter.replay = None);
        }
    }

    /// Forgets finished jobs beyond the lane's retention.
    pub(super) fn trim_finished(&mut self, lane: LaneIx, now: Time) {
        let keep = self.lane(lane).spec.as_ref().map_or(Keep::default(), |spec| spec.keep);
        for _ in 0..MAX_BATCH {
            let Some(job) = self.lane_mut(lane).finished.pop_surplus(keep, now) else {
                return;
            };
            self.forget_job(job);
        }
    }

    fn forget_job(&mut self, index: JobIx) {
        let Some(job) = self.remove_job(index) else {
            return;
        };
        // A job that is forgotten as it ends is the last one reported.
        if let Some(mut ended) = self.ended.pop_if(|ended| ended.job == job.id) {
            ended.forgotten = Some(Box::new(self.view_job(&job)));
            self.ended.push(ended);
        }
        let lane = self.lane_mut(job.lane);
        let current = [0, 1, 2].map(|level: usize| lane.levels[level].turns.current);
        lane.tenants.forget_idle(&current);
    }

    /// Removes a job that is neither waiting, running nor listed as finished.
    pub(super) fn remove_job(&mut self, index: JobIx) -> Option<Job> {
        self.take_early(index);
        let job = self.jobs.remove(index)?;
        if let Some(external) = job.submission().and_then(|submission| submission.external.as_ref()) {
            self.submissions.forget(external, index);
        }
        if let Some(last) = job.settled() {
            self.leases.forget_settled(last.lease);
        }
        let result = job.rare.as_ref().and_then(|rare| rare.result.as_ref());
        self.jobs.bytes -= result.map_or(0, |result| result.len() as u64);
        self.lane_mut(job.lane).tenants.release(job.tenant);
        Some(job)
    }

    /// Removes dead letters that have expired or exceed the lane's maximum.
    pub(super) fn trim_dead(&mut self, lane: LaneIx, now: Time, gone: &mut Vec<(Name, JobId, TrimReason)>) {
        let state = self.lane_mut(lane);
        for _ in 0..MAX_BATCH {
            let Some((job, surplus)) = state.letter_to_trim(now) else {
                return;
            };
            state.dead.retire(job, now);
            if surplus == TrimReason::OverCap {
                state.totals.dead_trimmed += 1;
            }
            state.dirty = true;
            gone.push((state.name.clone(), job, surplus));
        }
    }
}

fn unknown_failure(at: Time) -> Failure {
    Failure { reason: FailureReason::fixed("failed without a reason"), code: None, at, upstream: None }
}
