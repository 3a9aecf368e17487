//! What happened in each minute of the last day, for charts: a series of points per lane, one per upstream, and one of all
//! lanes together, because quantiles cannot be added up. And the last transitions of each upstream's gates.
//!
//! A minute is counted while it runs and closed when [`Engine::now`] is asked in a later one. It then becomes a point, which is
//! stored, unless there is nothing to show. Jobs are counted by the totals of their lane, of which a point is the difference. The
//! totals at the beginning of the running minute are stored, so a restart loses none. How long jobs waited, the requests of
//! direct lanes and the calls to upstreams are counted apart; what the running minute has of these is lost by a restart.
//!
//! A point is kept until there is one that is a day newer, in whichever series, so that what is kept depends only on the points
//! that were stored.

mod read;
mod ring;
mod save;

use std::collections::{BTreeSet, VecDeque};

use self::ring::{Minute, Ring};
use super::Engine;
use crate::durations::{Durations, Quantiles};
use crate::gate::{CallResult, GateChangeKind};
use crate::lane::{Lane, Totals};
use crate::table::{LaneIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::verbs::{CallStatus, MAX_MINUTES};

/// Transitions that are kept of each upstream.
pub(crate) const MAX_TRANSITIONS: u64 = 200;

pub(super) const MINUTE_MS: u64 = 60_000;

/// Minutes since the Unix epoch.
fn minute_of(now: Time) -> u32 {
    u32::try_from(now.as_millis() / MINUTE_MS).unwrap_or(u32::MAX)
}

fn start_of(minute: u32) -> Time {
    Time::from_millis(u64::from(minute) * MINUTE_MS)
}

/// The totals of a lane that points are differences of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct JobCounts {
    pub(crate) accepted: u64,
    pub(crate) started: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) dropped: u64,
}

impl From<&Totals> for JobCounts {
    fn from(totals: &Totals) -> Self {
        Self {
            accepted: totals.accepted,
            started: totals.started,
            completed: totals.completed_jobs(),
            failed: totals.failed,
            dropped: totals.dropped_jobs(),
        }
    }
}

/// The running minute, and the totals of each lane when it began. A lane that is not listed is newer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningMinute {
    pub(crate) minute: u32,
    pub(crate) lanes: Vec<JobCounts>,
}

/// A finished minute of a lane, or of all lanes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LaneMinute {
    pub(crate) minute: u32,
    pub(crate) accepted: u32,
    pub(crate) started: u32,
    pub(crate) completed: u32,
    pub(crate) failed: u32,
    pub(crate) dropped: u32,
    pub(crate) requests: u32,
    pub(crate) failed_requests: u32,
    /// At the end of the minute, as the next one.
    pub(crate) waiting: u32,
    pub(crate) processing: u32,
    pub(crate) wait: Option<QuantilesMs>,
}

impl Minute for LaneMinute {
    fn minute(&self) -> u32 {
        self.minute
    }
}

impl LaneMinute {
    /// Whether nothing happened and no job was left.
    fn is_empty(&self) -> bool {
        *self == Self { minute: self.minute, ..Self::default() }
    }

    /// Whether jobs waited or were processed when it ended. A point of the next minute then follows, if a process runs.
    fn has_jobs(&self) -> bool {
        self.waiting > 0 || self.processing > 0
    }

    fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.accepted, other.accepted),
            (&mut self.started, other.started),
            (&mut self.completed, other.completed),
            (&mut self.failed, other.failed),
            (&mut self.dropped, other.dropped),
            (&mut self.requests, other.requests),
            (&mut self.failed_requests, other.failed_requests),
            (&mut self.waiting, other.waiting),
            (&mut self.processing, other.processing),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

/// A finished minute of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpstreamMinute {
    pub(crate) minute: u32,
    pub(crate) calls: u32,
    pub(crate) errors: u32,
    /// The most frequent first.
    pub(crate) statuses: Vec<(CallStatus, u32)>,
    pub(crate) latency: Option<QuantilesMs>,
}

impl Minute for UpstreamMinute {
    fn minute(&self) -> u32 {
        self.minute
    }
}

/// [`Quantiles`] as points keep them, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuantilesMs {
    pub(crate) p50: u32,
    pub(crate) p95: u32,
}

impl From<Quantiles> for QuantilesMs {
    fn from(Quantiles { p50, p95 }: Quantiles) -> Self {
        Self { p50: small(p50.as_millis()), p95: small(p95.as_millis()) }
    }
}

impl From<QuantilesMs> for Quantiles {
    fn from(QuantilesMs { p50, p95 }: QuantilesMs) -> Self {
        Self { p50: Span::from_millis(p50.into()), p95: Span::from_millis(p95.into()) }
    }
}

/// A transition of a gate, as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptGateChange {
    pub(crate) at: Time,
    /// The number of the upstream, or of its key.
    pub(crate) of: u32,
    pub(crate) kind: GateChangeKind,
}

/// What is counted of a lane, and its finished minutes.
#[derive(Debug, Default)]
struct LaneSeries {
    /// The lane's totals when the running minute began.
    base: JobCounts,
    waits: Durations,
    requests: u32,
    failed_requests: u32,
    points: Ring<LaneMinute>,
}

/// The finished minutes of an upstream, and transitions of its gates. What is counted is in `calls.rs`.
#[derive(Debug, Default)]
struct UpstreamSeries {
    points: Ring<UpstreamMinute>,
    /// The number of the next transition.
    next: u64,
    /// The last of them.
    transitions: VecDeque<KeptGateChange>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct MinuteHistory {
    /// `None` before the first time is known.
    running: Option<u32>,
    /// When the running minute ends.
    ends: Time,
    all: Ring<LaneMinute>,
    /// By lane number.
    lanes: Vec<LaneSeries>,
    /// By upstream number.
    upstreams: Vec<UpstreamSeries>,
    /// The newest minute of all points.
    newest: u32,
    unsaved: UnsavedHistory,
}

/// A series of lane points: of one lane, or of all (`None`).
type LaneKey = Option<u32>;

#[derive(Debug, Default)]
struct UnsavedHistory {
    lanes: BTreeSet<(LaneKey, u32)>,
    upstreams: BTreeSet<(u32, u32)>,
    transitions: BTreeSet<(u32, u64)>,
    /// The running minute, to be saved with the next change of anything: while nothing happens, nothing is written.
    running: bool,
    /// The running minute, even if nothing else changed.
    running_now: bool,
}

impl MinuteHistory {
    pub(super) fn add_lane(&mut self) {
        self.lanes.push(LaneSeries::default());
    }

    pub(super) fn add_upstream(&mut self) {
        self.upstreams.push(UpstreamSeries::default());
    }

    /// The number of whole minutes since the running one began.
    pub(super) fn minutes_since(&self, now: Time) -> u32 {
        self.running.map_or(0, |running| minute_of(now).saturating_sub(running))
    }

    /// Counts the first start of a job.
    pub(super) fn count_start(&mut self, lane: LaneIx, waited: Span) {
        self.lanes[lane.0 as usize].waits.add(waited);
    }

    /// Counts a request of a direct lane that ended.
    pub(super) fn count_request(&mut self, lane: LaneIx, result: CallResult) {
        if result == CallResult::NotSent {
            return;
        }
        let series = &mut self.lanes[lane.0 as usize];
        series.requests = series.requests.saturating_add(1);
        series.failed_requests = series.failed_requests.saturating_add(u32::from(result.is_error()));
    }

    /// Keeps a transition at `of`, which is `upstream` or one of its keys.
    pub(super) fn keep_change(
        &mut self,
        upstream: UpstreamIx,
        of: UpstreamIx,
        kind: GateChangeKind,
        at: Time,
    ) {
        let series = &mut self.upstreams[upstream.0 as usize];
        self.unsaved.transitions.insert((upstream.0, series.next));
        series.push(KeptGateChange { at, of: of.0, kind });
    }

    fn points(&mut self, lane: LaneKey) -> &mut Ring<LaneMinute> {
        match lane {
            Some(lane) => &mut self.lanes[lane as usize].points,
            None => &mut self.all,
        }
    }

    /// Adds a point that ends a minute, unless there is nothing to show.
    fn close_lane(&mut self, lane: LaneKey, point: LaneMinute) {
        let points = self.points(lane);
        // What follows a minute that left jobs is stored even if it is empty: otherwise no process ran.
        if point.is_empty() && !points.last().is_some_and(LaneMinute::has_jobs) {
            return;
        }
        let minute = point.minute;
        points.put(point);
        self.newest = self.newest.max(minute);
        self.unsaved.lanes.insert((lane, minute));
    }

    fn close_upstream(&mut self, upstream: u32, point: UpstreamMinute) {
        let minute = point.minute;
        self.upstreams[upstream as usize].points.put(point);
        self.newest = self.newest.max(minute);
        self.unsaved.upstreams.insert((upstream, minute));
    }

    /// Drops the points that are a day older than the newest.
    pub(super) fn drop_old(&mut self) {
        let first = self.newest.saturating_sub(MAX_MINUTES - 1);
        self.all.drop_before(first);
        self.lanes.iter_mut().for_each(|series| series.points.drop_before(first));
        self.upstreams.iter_mut().for_each(|series| series.points.drop_before(first));
    }

    fn begin(&mut self, minute: u32, lanes: &[Lane]) {
        self.running = Some(minute);
        self.ends = start_of(minute.saturating_add(1));
        self.unsaved.running = true;
        for (series, lane) in self.lanes.iter_mut().zip(lanes) {
            series.base = JobCounts::from(&lane.totals);
            series.waits.clear();
            (series.requests, series.failed_requests) = (0, 0);
        }
    }
}

impl UpstreamSeries {
    fn push(&mut self, change: KeptGateChange) {
        if self.transitions.len() as u64 == MAX_TRANSITIONS {
            self.transitions.pop_front();
        }
        self.transitions.push_back(change);
        self.next += 1;
    }

    /// The number of the first transition that is kept.
    fn first(&self) -> u64 {
        self.next - self.transitions.len() as u64
    }

    fn transition(&self, number: u64) -> Option<&KeptGateChange> {
        let place = usize::try_from(number.checked_sub(self.first())?).ok()?;
        self.transitions.get(place)
    }
}

impl Engine {
    /// Closes the running minute if it is over.
    pub(super) fn close_minute(&mut self, now: Time) {
        if now >= self.history.ends {
            self.close_minute_at(now);
        }
    }

    #[cold]
    fn close_minute_at(&mut self, now: Time) {
        let minute = minute_of(now);
        if let Some(running) = self.history.running {
            for number in 0..self.lanes.len() {
                let point = self.running_minute_of(number, running);
                self.history.close_lane(u32::try_from(number).ok(), point);
            }
            let all = self.running_minute_of_all(running);
            self.history.close_lane(None, all);
            for (number, upstream) in (0..).zip(&mut self.upstreams) {
                if let Some(point) = upstream.calls.running_minute(running) {
                    self.history.close_upstream(number, point);
                }
                upstream.calls.roll(minute.saturating_sub(running));
            }
            self.history.drop_old();
        }
        self.history.begin(minute, &self.lanes);
    }

    /// What a lane has counted in the running minute.
    fn running_minute_of(&self, number: usize, minute: u32) -> LaneMinute {
        let (lane, series) = (&self.lanes[number], &self.history.lanes[number]);
        let (total, base) = (JobCounts::from(&lane.totals), series.base);
        LaneMinute {
            minute,
            accepted: small(total.accepted.saturating_sub(base.accepted)),
            started: small(total.started.saturating_sub(base.started)),
            completed: small(total.completed.saturating_sub(base.completed)),
            failed: small(total.failed.saturating_sub(base.failed)),
            dropped: small(total.dropped.saturating_sub(base.dropped)),
            requests: series.requests,
            failed_requests: series.failed_requests,
            waiting: small(lane.waiting),
            processing: small(lane.processing),
            wait: series.waits.quantiles().map(QuantilesMs::from),
        }
    }

    fn running_minute_of_all(&self, minute: u32) -> LaneMinute {
        let (mut all, mut waits) = (LaneMinute { minute, ..LaneMinute::default() }, Durations::default());
        for (number, series) in self.history.lanes.iter().enumerate() {
            all.add(&self.running_minute_of(number, minute));
            waits.add_share(&series.waits, 1, 1);
        }
        all.wait = waits.quantiles().map(QuantilesMs::from);
        all
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
