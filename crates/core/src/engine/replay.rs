//! Replay of dead letters.

use super::Engine;
use super::jobs::Job;
use crate::dead_letter::Kept;
use crate::ids::{JobId, Name};
use crate::job::{Hold, NewJob};
use crate::table::LaneIx;
use crate::time::{Span, Time};
use crate::verbs::{Enqueued, Replay, Replayed};

impl Engine {
    /// Enqueues a dead letter again. The letter is kept until the job succeeds. While the job is in progress, another
    /// replay returns the same job; so does a replay repeated with the same `id` after the job has ended.
    pub fn replay(&mut self, ask: Replay, now: Time) -> Replayed {
        match self.replay_one(ask, now) {
            Replayed::As(id, _) => Replayed::As(id, std::mem::take(&mut self.ended)),
            refused => {
                self.ended.clear();
                refused
            }
        }
    }

    /// Like [`Engine::replay`], as a part of another verb, which reports the ended jobs.
    pub(super) fn replay_one(&mut self, ask: Replay, now: Time) -> Replayed {
        let Replay { lane, letter, id, edit } = ask;
        let Some(index) = self.lane_by_name.get(&lane).copied() else {
            return Replayed::Unknown;
        };
        let replays = |job: &Job| {
            let replay_of = job.rare.as_ref().and_then(|rare| rare.replay_of);
            job.lane == index && replay_of == Some(letter)
        };
        if self.jobs.find(id).is_some_and(|job| replays(&self.jobs[job])) {
            return Replayed::As(id, Vec::new());
        }
        let Some(kept) = self.lane(index).dead.kept(letter) else {
            return Replayed::Unknown;
        };
        if let Some(running) = kept.letter.replay {
            return Replayed::As(running, Vec::new());
        }
        let key = kept.letter.key.clone();
        let job = self.job_of_letter((&lane, index), kept, id, edit, now);
        match self.enqueue_one(job, Some(letter), false, now) {
            Enqueued::Accepted(_) => {
                if let Some(job) = self.jobs.find(id) {
                    self.jobs[job].rare().key = key;
                }
                self.lane_mut(index).dead.change(letter, |letter| letter.replay = Some(id));
                Replayed::As(id, Vec::new())
            }
            Enqueued::Existing(_) | Enqueued::Conflict(_) => Replayed::IdTaken,
            Enqueued::QueueFull => Replayed::QueueFull,
            Enqueued::Invalid(problem) => Replayed::Invalid(problem),
            Enqueued::UnknownLane | Enqueued::Cached(_) | Enqueued::NotInTime { .. } => Replayed::Unknown,
        }
    }

    fn job_of_letter(
        &self,
        (lane, index): (&Name, LaneIx),
        kept: &Kept,
        id: JobId,
        edit: Option<Box<NewJob>>,
        now: Time,
    ) -> NewJob {
        let Kept { letter, correlation, .. } = kept;
        let (payload, chain, holds, correlation) = if let Some(edit) = edit {
            (edit.payload, edit.chain, edit.holds, edit.correlation)
        } else {
            let holds = letter.holds.iter().map(|hold| self.hold_of_now(hold)).collect();
            (letter.payload.clone(), Some(letter.chain.clone()), holds, *correlation)
        };
        // No caller waits for it on a connection, so it may wait as long as the letter is kept.
        let kept_for = (letter.moved_at + letter.ttl).since(now);
        let lane_ttl = self.lane(index).spec.as_ref().and_then(|spec| spec.ttl);
        let deliverable = Name::new(super::CALLBACKS).is_ok_and(|lane| self.configured_lane(&lane).is_some());
        NewJob {
            tenant: letter.tenant.clone(),
            level: letter.level,
            ttl: lane_ttl.map(|ttl| ttl.max(kept_for)),
            delay: Span::ZERO,
            chain,
            holds,
            correlation,
            callback: letter.callback.clone().filter(|_| deliverable),
            // The idempotency key remains that of the first job, and cached answers are not used.
            ..NewJob::new(id, lane.clone(), &letter.tenant, payload)
        }
    }

    /// `hold` with the current rule of its bucket, which may have changed since the letter was written.
    fn hold_of_now(&self, hold: &Hold) -> Hold {
        let spec = self.buckets.find(&hold.bucket).map_or(hold.spec, |bucket| self.buckets[bucket].spec);
        Hold { spec, tokens: hold.tokens.min(spec.capacity()), ..hold.clone() }
    }

    /// Discards a dead letter. Returns whether it existed.
    pub fn discard(&mut self, lane: &Name, letter: JobId) -> bool {
        let (lane, now) = (self.lane_by_name.get(lane).copied(), self.time.last());
        lane.is_some_and(|lane| {
            let lane = self.lane_mut(lane);
            lane.dirty = true;
            lane.dead.retire(letter, now).is_some()
        })
    }
}
