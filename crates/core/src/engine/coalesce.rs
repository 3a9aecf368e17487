//! Coalescing: equal requests are sent once. The others wait for the answer; if none comes, the next one is sent.
//!
//! Invariant: if jobs are set aside for a key, a job with that key is processing, is in a line, or has just succeeded.

use super::Engine;
use super::jobs::Phase;
use crate::lane::WaitingIn;
use crate::table::{JobIx, LaneIx};

impl Engine {
    /// Adds a job that started to wait to the index of equal jobs.
    pub(super) fn join_equals(&mut self, index: JobIx) {
        let job = &self.jobs[index];
        let (Some(key), Some(waiting_in)) = (job.cache_key().cloned(), job.waiting_in()) else { return };
        let (lane, level, seq, chain) = (job.lane, job.level, job.seq, job.chain);
        let number = self.entry(lane, &key).map(|(_, entry)| entry.number);
        let state = self.lane_mut(lane);
        state.equals.add(&key, waiting_in, level, seq, index);
        if let Some(number) = number {
            state.equals.cover(chain, seq, index);
            if seq < number {
                self.owed.insert((lane, number), key);
            }
            // A cached answer can end it even if all upstreams are closed.
            self.mark_ready(lane);
        }
    }

    /// The opposite of [`Engine::join_equals`]; call it before anything about the job changes.
    pub(super) fn leave_equals(&mut self, index: JobIx) {
        let job = &self.jobs[index];
        let (Some(key), Some(waiting_in)) = (job.cache_key().cloned(), job.waiting_in()) else { return };
        let (level, seq, chain) = (job.level, job.seq, job.chain);
        let lane = self.lane_of(index);
        lane.equals.remove(&key, waiting_in, level, seq);
        lane.equals.uncover(chain, seq);
    }

    /// Counts a job as processing.
    pub(super) fn begin_processing(&mut self, index: JobIx) {
        let (key, seq) = (self.jobs[index].cache_key().cloned(), self.jobs[index].seq);
        let tenant = self.jobs[index].tenant;
        let lane = self.lane_of(index);
        lane.processing += 1;
        lane.tenants[tenant].processing += 1;
        if let Some(key) = key {
            lane.equals.start(&key, seq, index);
        }
    }

    /// Counts a job as no longer processing.
    pub(super) fn stop_processing(&mut self, index: JobIx) {
        self.stop_polling(index);
        let (key, seq) = (self.jobs[index].cache_key().cloned(), self.jobs[index].seq);
        let tenant = self.jobs[index].tenant;
        let lane = self.lane_of(index);
        lane.processing -= 1;
        lane.tenants[tenant].processing -= 1;
        if let Some(key) = key {
            lane.equals.stop(&key, seq);
        }
    }

    /// The job whose answer will serve this one too.
    pub(super) fn leader_of(&self, index: JobIx) -> Option<JobIx> {
        let job = &self.jobs[index];
        let lane = self.lane(job.lane);
        lane.cache_spec()?;
        lane.equals.leader(job.cache_key()?)
    }

    /// Removes a job from its line while an equal one is processing.
    pub(super) fn set_aside(&mut self, index: JobIx) {
        self.leave_equals(index);
        let (phase, seq) = (self.jobs[index].phase, self.jobs[index].seq);
        if let Phase::Queued { line } = phase
            && let Some((bucket, parked)) = self.lane_of(index).pull(line, seq)
        {
            self.buckets.unpark(bucket, &parked);
        }
        self.join_aside(index);
        self.jobs.touch(index);
    }

    /// Sets aside a job that is counted as waiting, until another job's answer arrives.
    pub(super) fn join_aside(&mut self, index: JobIx) {
        self.jobs[index].phase = Phase::Coalesced;
        let level = self.jobs[index].level;
        self.lane_of(index).levels[level as usize].aside += 1;
        self.join_equals(index);
    }

    /// Returns a job that was set aside to its position in its line.
    fn promote(&mut self, index: JobIx) {
        self.leave_equals(index);
        let level = self.jobs[index].level;
        self.lane_of(index).levels[level as usize].aside -= 1;
        self.join_line(index);
        self.join_equals(index);
        self.jobs.touch(index);
    }

    /// Returns the first job set aside for `key` to its line if no other job will bring the answer: none is processing,
    /// in a line (except number `failed`, which has just failed), or has just succeeded.
    pub(super) fn promote_next(&mut self, lane: LaneIx, key: &str, failed: Option<u64>) {
        let equals = &self.lane(lane).equals;
        let Some(next) = equals.first_aside(key) else { return };
        let answer_comes = equals.leader(key).is_some() || equals.is_in_line(key, failed);
        let owed = |number| self.owed.contains_key(&(lane, number));
        if !answer_comes && !self.entry(lane, key).is_some_and(|(_, entry)| owed(entry.number)) {
            self.promote(next);
        }
    }

    /// Like [`Engine::promote_next`], after a job stopped processing without success and waits again.
    pub(super) fn promote_next_after(&mut self, index: JobIx) {
        let job = &self.jobs[index];
        if let Some(key) = job.cache_key().cloned() {
            self.promote_next(job.lane, &key, Some(job.seq));
        }
    }

    /// After a change of rules, makes sure that no job waits for an answer that will not come.
    pub(super) fn settle_equals(&mut self, lane: LaneIx) {
        for key in self.lane(lane).equals.keys_with_aside() {
            if self.lane(lane).cache_spec().is_some() {
                self.promote_next(lane, &key, None);
            } else {
                self.promote_all(lane, &key);
            }
        }
    }

    fn promote_all(&mut self, lane: LaneIx, key: &str) {
        while let Some(job) = self.lane(lane).equals.first_aside(key) {
            self.promote(job);
        }
    }
}

impl super::jobs::Job {
    /// Where the job waits, if the answer to an equal request may end it.
    pub(super) fn waiting_in(&self) -> Option<WaitingIn> {
        match self.phase {
            Phase::Queued { .. } => Some(WaitingIn::Line),
            Phase::Coalesced => Some(WaitingIn::Aside),
            Phase::HeldBack { .. } => Some(WaitingIn::Backoff),
            Phase::Pending { .. } if self.attempts > 0 => Some(WaitingIn::Backoff),
            Phase::Pending { .. } | Phase::Processing { .. } | Phase::Finished { .. } => None,
        }
    }
}
