//! Replay of dead letters.

use super::Engine;
use super::jobs::Job;
use crate::dead_letter::Kept;
use crate::ids::{JobId, Name};
use crate::job::{Hold, NewJob};
use crate::time::{Span, Time};
use crate::verbs::{Enqueued, Replayed};

impl Engine {
    /// Enqueues a dead letter again, as job `id`. The letter stays until that job succeeds; while it is under way
    /// another replay gives the same job back, and so does one repeated with the same `id` after that job has ended.
    pub fn replay(&mut self, lane: &Name, letter: JobId, id: JobId, now: Time) -> Replayed {
        let Some(index) = self.lane_by_name.get(lane).copied() else {
            return Replayed::Unknown;
        };
        let replays = |job: &Job| {
            let replay_of = job.rare.as_ref().and_then(|rare| rare.replay_of);
            job.lane == index && replay_of == Some(letter)
        };
        if self.jobs.find(id).is_some_and(|job| replays(&self.jobs[job])) {
            return Replayed::As(id, Vec::new());
        }
        let Some(Kept { letter: found, correlation, .. }) = self.lane(index).dead.kept(letter) else {
            return Replayed::Unknown;
        };
        if let Some(running) = found.replay {
            return Replayed::As(running, Vec::new());
        }
        let job = NewJob {
            id,
            lane: lane.clone(),
            tenant: found.tenant.clone(),
            level: found.level,
            payload: found.payload.clone(),
            key: None,
            fingerprint: None,
            // Somebody wants it sent again, whatever was answered to others.
            cache_key: None,
            ttl: None,
            delay: Span::ZERO,
            chain: Some(found.chain.clone()),
            holds: found.holds.iter().map(|hold| self.hold_of_now(hold)).collect(),
            correlation: *correlation,
            // The job's end was told when it died.
            callback: None,
        };
        let replayed = self.enqueue_one(job, Some(letter), false, now);
        let ended = std::mem::take(&mut self.ended);
        match replayed {
            Enqueued::Accepted(_) => {
                self.lane_mut(index).dead.change(letter, |letter| letter.replay = Some(id));
                Replayed::As(id, ended)
            }
            Enqueued::Existing(_) | Enqueued::Conflict(_) => Replayed::IdTaken,
            Enqueued::QueueFull => Replayed::QueueFull,
            Enqueued::UnknownLane
            | Enqueued::Invalid(_)
            | Enqueued::Cached(_)
            | Enqueued::NotInTime { .. } => Replayed::Unknown,
        }
    }

    /// `hold` under the rule its bucket has now, which may have changed since the letter was written.
    fn hold_of_now(&self, hold: &Hold) -> Hold {
        let spec = self.buckets.find(&hold.bucket).map_or(hold.spec, |bucket| self.buckets[bucket].spec);
        Hold { spec, tokens: hold.tokens.min(spec.capacity()), ..hold.clone() }
    }

    /// Lets a dead letter go; says whether there was one.
    pub fn discard(&mut self, lane: &Name, letter: JobId) -> bool {
        let (lane, now) = (self.lane_by_name.get(lane).copied(), self.time.last());
        lane.is_some_and(|lane| {
            let lane = self.lane_mut(lane);
            lane.dirty = true;
            lane.dead.leave(letter, now).is_some()
        })
    }
}
