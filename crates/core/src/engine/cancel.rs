//! Cancelling jobs; pausing and resuming lanes.

use super::Engine;
use super::jobs::Phase;
use super::leases::Use;
use crate::ended::End;
use crate::ids::{JobId, Name};
use crate::time::Time;
use crate::verbs::Cancelled;

impl Engine {
    /// Cancels a job. A running job is fenced off at once: its call may continue and keeps its slots until its worker
    /// releases them or its lease expires, but its result does not change the job.
    pub fn cancel(&mut self, job: JobId, now: Time) -> Cancelled {
        let Some(index) = self.jobs.find(job) else {
            return Cancelled::Unknown;
        };
        match self.jobs[index].phase {
            Phase::Finished { status, .. } => return Cancelled::AlreadyEnded(status),
            Phase::Pending { .. } | Phase::HeldBack { .. } | Phase::Queued { .. } | Phase::Coalesced => {
                self.stop_waiting(index);
            }
            Phase::Processing { lease } => {
                let later = self.jobs[index].tried != 0;
                self.leases.change(lease, |lease| {
                    let lane = lease.used_by.lane();
                    lease.used_by = if later { Use::LaterCall(lane) } else { Use::Call(lane) };
                });
                self.stop_processing(index);
            }
        }
        self.finish(index, End::Cancelled, now);
        match self.ended.pop() {
            Some(ended) => Cancelled::Yes(Box::new(ended)),
            None => Cancelled::Unknown,
        }
    }

    /// Pauses or resumes the dispatch of a lane. Returns whether the lane exists.
    pub fn pause(&mut self, lane: &Name, paused: bool, now: Time) -> bool {
        let Some(lane) = self.lane_by_name.get(lane).copied() else {
            return false;
        };
        self.mark_ready(lane);
        let lane = self.lane_mut(lane);
        lane.paused = paused;
        lane.dirty = true;
        lane.holds_dirty |= lane.holds.pause(paused, now);
        true
    }
}
