//! Which lanes may have something to start that had nothing before, so that whoever waits for that is woken.

use super::Engine;
use crate::ids::Name;
use crate::table::{LaneIx, UpstreamIx};

/// What happened in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stir {
    /// A job came into a line. That is nothing new to a lane whose only upstream holds it back.
    Arrived,
    /// A slot or a gate came free, or the lane was resumed.
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

    pub(super) fn stir(&mut self, lane: LaneIx, stir: Stir) {
        let state = self.lane_mut(lane);
        let before = state.stir.replace(state.stir.map_or(stir, |known| known.max(stir)));
        if before.is_none() {
            self.stirred.push(lane);
        }
    }

    /// Something came free at `upstream`.
    pub(super) fn stir_users(&mut self, upstream: UpstreamIx) {
        for lane in (0..self.lanes.len()).map(|lane| LaneIx(u32::try_from(lane).unwrap_or(u32::MAX))) {
            if self.lane(lane).uses(upstream) {
                self.stir(lane, Stir::Changed);
            }
        }
    }
}
