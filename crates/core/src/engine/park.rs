//! Parking: lines that wait for their own bucket, so that others can pass.

use super::Engine;
use super::dispatch::MAX_SCANNED;
use crate::lane::{Choice, Parked};
use crate::table::{BucketIx, LaneIx};
use crate::time::Time;
use crate::tokens::Tokens;

impl Engine {
    /// Parks a line until `bucket` may have `hold` tokens for it. At `recheck_at` it checks other upstreams of its
    /// chain.
    pub(super) fn park(
        &mut self,
        lane: LaneIx,
        choice: Choice,
        (bucket, hold): (BucketIx, Tokens),
        until: Time,
        recheck_at: Option<Time>,
    ) {
        let ticket = match self.lane(lane).lines[choice.line].ticket {
            Some(ticket) => ticket,
            None => self.buckets.draw_ticket(),
        };
        let state = self.lane_mut(lane);
        state.lines[choice.line].ticket = Some(ticket);
        let rank = state.lines[choice.line].rank();
        let parked = Parked { rank, lane, line: choice.line, hold, recheck_at };
        state.park(choice.line, bucket, parked);
        state.held_back.line_parked(state.lines[choice.line].key());
        self.buckets.park(bucket, parked, until);
    }

    /// Makes lines eligible again whose bucket has refilled.
    pub(super) fn wake_parked(&mut self, now: Time) {
        let mut scanned = 0;
        while scanned < MAX_SCANNED
            && let Some(woken) = self.buckets.wake(now)
        {
            scanned += woken.len().max(1);
            for parked in woken {
                self.lane_mut(parked.lane).unpark(parked.line);
            }
        }
    }
}
