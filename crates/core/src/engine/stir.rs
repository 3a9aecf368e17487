//! Which lanes may have something to start that had nothing before, and which followed jobs changed, so that whoever waits
//! for that is woken.

use super::Engine;
use crate::ids::{JobId, Name};
use crate::job::JobView;
use crate::lane::Closed;
use crate::table::{LaneIx, LineIx, UpstreamIx};

impl Engine {
    /// The lanes that may have something to start since this was last called.
    pub fn take_stirred(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.stirred).into_iter().map(|lane| self.lane(lane).name.clone()).collect()
    }

    /// A job, if it is known, whose next change is told by [`take_news`](Self::take_news).
    pub fn follow(&mut self, id: JobId) -> Option<JobView> {
        self.jobs.follow(self.jobs.find(id)?);
        self.job(id)
    }

    /// The followed jobs that changed since this was last called. Each is told once: who wants more follows it again.
    pub fn take_news(&mut self) -> Vec<JobId> {
        self.jobs.take_news()
    }

    /// Something may start in `lane`.
    pub(super) fn stir(&mut self, lane: LaneIx) {
        self.lane_mut(lane).closed = Closed::default();
        self.stirred.insert(lane);
    }

    /// A job came into a line. That is nothing new if its line or group could not go on when it was last asked: what changes
    /// that says so, or the dispatch that asked knows when.
    pub(super) fn arrived(&mut self, lane: LaneIx, line: LineIx) {
        if !self.lane(lane).is_closed(line) {
            self.stir(lane);
        }
    }

    /// Something came free in `lane`; that is nothing to a lane without jobs in line, and the first that comes is told anyway.
    pub(super) fn came_free(&mut self, lane: LaneIx) {
        self.lane_mut(lane).closed = Closed::default();
        if self.lane(lane).has_jobs_in_line() {
            self.stir(lane);
        }
    }

    /// Something came free at `upstream`.
    pub(super) fn stir_users(&mut self, upstream: UpstreamIx) {
        for lane in (0..self.lanes.len()).map(|lane| LaneIx(u32::try_from(lane).unwrap_or(u32::MAX))) {
            if self.lane(lane).uses(upstream) {
                self.came_free(lane);
            }
        }
    }
}
