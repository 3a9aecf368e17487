//! Lines that wait for a bucket of their own, out of the way of others.

use super::Engine;
use super::dispatch::MAX_LOOKS;
use crate::lane::{Choice, Parked};
use crate::table::{BucketIx, LaneIx};
use crate::time::Time;
use crate::tokens::Tokens;

impl Engine {
    /// Takes a line out of the running until `bucket` may have `hold` for it. `look_at` is when it looks at other upstreams.
    pub(super) fn park(
        &mut self,
        lane: LaneIx,
        choice: Choice,
        (bucket, hold): (BucketIx, Tokens),
        until: Time,
        look_at: Option<Time>,
    ) {
        let ticket = match self.lane(lane).lines[choice.line].ticket {
            Some(ticket) => ticket,
            None => self.buckets.draw_ticket(),
        };
        let state = self.lane_mut(lane);
        state.lines[choice.line].ticket = Some(ticket);
        let rank = state.lines[choice.line].rank();
        let parked = Parked { rank, lane, line: choice.line, hold, look_at };
        state.park(choice.line, bucket, parked);
        state.held_back.line_parked(state.lines[choice.line].key());
        self.buckets.park(bucket, parked, until);
    }

    /// Puts lines back into the running whose bucket has refilled.
    pub(super) fn wake_parked(&mut self, now: Time) {
        let mut looks = 0;
        while looks < MAX_LOOKS
            && let Some(woken) = self.buckets.wake(now)
        {
            looks += woken.len().max(1);
            for parked in woken {
                self.lane_mut(parked.lane).unpark(parked.line);
            }
        }
    }
}
