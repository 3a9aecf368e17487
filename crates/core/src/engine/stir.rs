//! Which lanes may have something to start that had nothing before, and which followed jobs changed, so that whoever waits
//! for that is woken.

use super::Engine;
use crate::ids::{JobId, Name};
use crate::job::JobView;
use crate::table::{LaneIx, UpstreamIx};

/// What happened in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stir {
    /// A job came into a line. That is nothing new to a lane whose only upstream holds it back.
    Arrived,
    /// A slot or a gate came free, the lane was resumed, or its first job came.
    Changed,
}

impl Engine {
    /// The lanes in which something happened since this was last called.
    pub fn take_stirred(&mut self) -> Vec<(Name, Stir)> {
        let lanes = std::mem::take(&mut self.stirred);
        let mut take = |lane: LaneIx| {
            let lane = self.lane_mut(lane);
            lane.stir.take().map(|stir| (lane.name.clone(), stir))
        };
        lanes.into_iter().filter_map(&mut take).collect()
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

    pub(super) fn stir(&mut self, lane: LaneIx, stir: Stir) {
        let state = self.lane_mut(lane);
        let before = state.stir.replace(state.stir.map_or(stir, |known| known.max(stir)));
        if before.is_none() {
            self.stirred.push(lane);
        }
    }

    /// Something came free in `lane`; that is nothing to a lane without jobs in line, and the first that comes is told anyway.
    pub(super) fn came_free(&mut self, lane: LaneIx) {
        if self.lane(lane).has_jobs_in_line() {
            self.stir(lane, Stir::Changed);
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
