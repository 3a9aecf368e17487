//! Equal requests are sent once: the others wait for the answer, and if none comes the next of them goes.
//!
//! If jobs are set aside for a key, then one of that key is processing, stands in a line, or has just succeeded.

use super::Engine;
use super::jobs::Phase;
use crate::lane::WaitingIn;
use crate::table::{JobIx, LaneIx};

impl Engine {
    /// Makes a job that began to wait known to its equals.
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
            // It needs no upstream if all of them are closed.
            self.stir(lane);
        }
    }

    /// The opposite of [`Engine::join_equals`], before anything about the job changes.
    pub(super) fn leave_equals(&mut self, index: JobIx) {
        let job = &self.jobs[index];
        let (Some(key), Some(waiting_in)) = (job.cache_key().cloned(), job.waiting_in()) else { return };
        let (level, seq, chain) = (job.level, job.seq, job.chain);
        let lane = self.lane_of(index);
        lane.equals.remove(&key, waiting_in, level, seq);
        lane.equals.uncover(chain, seq);
    }

    /// A job began to be processed.
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

    /// A job is processed no longer.
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

    /// Takes a job out of its line while an equal one is processing.
    pub(super) fn set_aside(&mut self, index: JobIx) {
        self.leave_equals(index);
        let (phase, seq) = (self.jobs[index].phase, self.jobs[index].seq);
        if let Phase::Queued { line } = phase
            && let Some((bucket, parked)) = self.lane_of(index).pull(line, seq)
        {
            self.buckets.unpark(bucket, &parked);
        }
        self.stand_aside(index);
        self.jobs.touch(index);
    }

    /// Puts a job that is counted among the waiting ones where it waits for the answer of another.
    pub(super) fn stand_aside(&mut self, index: JobIx) {
        self.jobs[index].phase = Phase::Coalesced;
        let level = self.jobs[index].level;
        self.lane_of(index).levels[level as usize].aside += 1;
        self.join_equals(index);
    }

    /// Puts a job that was set aside back into its own line, at its own place.
    fn promote(&mut self, index: JobIx) {
        self.leave_equals(index);
        let level = self.jobs[index].level;
        self.lane_of(index).levels[level as usize].aside -= 1;
        self.stand_in_line(index);
        self.join_equals(index);
        self.jobs.touch(index);
    }

    /// Lets the first of those set aside go on where no job of their key will bring an answer: none but number
    /// `failed`, which has just tried in vain, is processing or in a line, and none has just succeeded.
    pub(super) fn give_way(&mut self, lane: LaneIx, key: &str, failed: Option<u64>) {
        let equals = &self.lane(lane).equals;
        let Some(next) = equals.first_aside(key) else { return };
        let answer_comes = equals.leader(key).is_some() || equals.is_in_line(key, failed);
        let owed = |number| self.owed.contains_key(&(lane, number));
        if !answer_comes && !self.entry(lane, key).is_some_and(|(_, entry)| owed(entry.number)) {
            self.promote(next);
        }
    }

    /// A job stopped processing without success and waits again.
    pub(super) fn give_way_after(&mut self, index: JobIx) {
        let job = &self.jobs[index];
        if let Some(key) = job.cache_key().cloned() {
            self.give_way(job.lane, &key, Some(job.seq));
        }
    }

    /// After a change of rules: nobody waits for an answer that will not come.
    pub(super) fn settle_equals(&mut self, lane: LaneIx) {
        for key in self.lane(lane).equals.keys_with_aside() {
            if self.lane(lane).cache_spec().is_some() {
                self.give_way(lane, &key, None);
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
    /// Where it waits, if an answer to an equal request may end it.
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
