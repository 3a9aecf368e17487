//! Parking: lines that wait for their own bucket, so that others can pass; and what jobs had waited for.

use super::Engine;
use super::dispatch::MAX_SCANNED;
use super::jobs::Phase;
use crate::gate::Reason;
use crate::lane::{Choice, HoldCause, Parked};
use crate::table::{BucketIx, JobIx, LaneIx, LineIx, UpstreamIx};
use crate::time::Time;
use crate::timeline::Waited;
use crate::tokens::Tokens;
use crate::verbs::Denied;

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

    /// Notes what denies a parked line.
    pub(super) fn hold_line(
        &mut self,
        lane: LaneIx,
        line: LineIx,
        (reason, upstream): (Reason, Option<UpstreamIx>),
        now: Time,
    ) {
        let cause = HoldCause { reason, upstream: upstream.map(|upstream| upstream.0) };
        self.lane_mut(lane).lines[line].holds.get_or_insert_default().see(Some(cause), now);
    }

    /// Notes that the head of a line starts: its place at the bucket is free, and its hold is over unless it is parked again.
    pub(super) fn release_line(&mut self, lane: LaneIx, line: LineIx, now: Time) {
        let line = &mut self.lane_mut(lane).lines[line];
        line.ticket = None;
        if let Some(holds) = &mut line.holds {
            holds.see(None, now);
        }
    }

    /// What denies the oldest job in line, if its line is parked.
    pub(super) fn denied_alone(&self, lane: LaneIx) -> Option<Denied> {
        let lane = self.lane(lane);
        let Phase::Queued { line } = self.jobs[lane.oldest_job()?].phase else { return None };
        let line = &lane.lines[line];
        let cause = line.holds.as_ref().filter(|_| line.parked.is_some())?.newest?.cause;
        let upstream = cause.upstream.map(|upstream| self.upstream(UpstreamIx(upstream)).name.clone());
        Some(Denied { upstream, reason: cause.reason })
    }

    /// What held a job while it was in line: its lane or its line, whichever did for longer.
    pub(super) fn waited(&self, index: JobIx, line: LineIx, now: Time) -> Option<Box<Waited>> {
        let job = &self.jobs[index];
        let lane = self.lane(job.lane);
        let all = [Some(&lane.holds), lane.lines[line].holds.as_deref()].into_iter().flatten();
        let waits = all.filter_map(|holds| holds.waited(job.in_line_since(), lane.chain(job.chain), now));
        waits.max_by_key(|waited| waited.until.since(waited.since))
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
