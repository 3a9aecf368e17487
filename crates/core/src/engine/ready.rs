//! Readiness: which lanes may be able to start jobs again and which followed jobs changed, so that their waiters are
//! woken.

use super::Engine;
use crate::ids::{JobId, Name};
use crate::job::JobView;
use crate::lane::Closed;
use crate::table::{LaneIx, LineIx, UpstreamIx};

impl Engine {
    /// The lanes that may have become able to start jobs since the last call.
    pub fn take_ready_lanes(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.ready_lanes).into_iter().map(|lane| self.lane(lane).name.clone()).collect()
    }

    /// The job, if it exists. Its next change is reported by [`take_changed_jobs`](Self::take_changed_jobs).
    pub fn follow(&mut self, id: JobId) -> Option<JobView> {
        self.jobs.follow(self.jobs.find(id)?);
        self.job(id)
    }

    /// The followed jobs that changed since the last call. Each is reported once; follow it again for the next change.
    pub fn take_changed_jobs(&mut self) -> Vec<JobId> {
        self.jobs.take_changed_jobs()
    }

    /// Marks `lane` as possibly able to start jobs.
    pub(super) fn mark_ready(&mut self, lane: LaneIx) {
        self.lane_mut(lane).closed = Closed::default();
        self.ready_lanes.insert(lane);
    }

    /// Handles a job that joined a line. If its line or group was denied at the last dispatch, nothing can start:
    /// whatever changes that marks the lane, or the dispatch has answered when to ask again.
    pub(super) fn arrived(&mut self, lane: LaneIx, line: LineIx) {
        if !self.lane(lane).is_closed(line) {
            self.mark_ready(lane);
        }
    }

    /// Handles something that became free in `lane`. Without jobs in line there is nothing to start, and the first job
    /// that joins marks the lane anyway.
    pub(super) fn came_free(&mut self, lane: LaneIx) {
        self.lane_mut(lane).closed = Closed::default();
        if self.lane(lane).has_jobs_in_line() {
            self.mark_ready(lane);
        }
    }

    /// Handles something that became free at `upstream`.
    pub(super) fn mark_users_ready(&mut self, upstream: UpstreamIx) {
        for lane in (0..self.lanes.len()).map(|lane| LaneIx(u32::try_from(lane).unwrap_or(u32::MAX))) {
            if self.lane(lane).uses(upstream) {
                self.came_free(lane);
            }
        }
    }
}
