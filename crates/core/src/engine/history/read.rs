//! Reading: points without gaps, up to the running minute.

use super::super::Engine;
use super::ring::{Minute, Ring};
use super::{KeptGateChange, LaneMinute, UpstreamMinute, minute_of, start_of};
use crate::durations::Quantiles;
use crate::ids::Name;
use crate::table::UpstreamIx;
use crate::time::Time;
use crate::verbs::{
    GateTransition, HistoryOf, HistoryQuery, HistoryView, LanePoint, MAX_MINUTES, UpstreamPoint,
};

/// The minutes of an answer, the last of which is running.
#[derive(Clone, Copy)]
struct Range {
    first: u32,
    last: u32,
}

impl Range {
    fn new(minutes: u32, now: Time) -> Self {
        let last = minute_of(now);
        Self { first: last.saturating_sub(minutes.clamp(1, MAX_MINUTES) - 1), last }
    }
}

impl Engine {
    /// What happened in the last minutes. A lane or upstream that is not known has no events.
    pub fn history(&self, query: &HistoryQuery, now: Time) -> HistoryView {
        let range = Range::new(query.minutes, now);
        let from = start_of(range.first);
        match &query.of {
            HistoryOf::AllLanes => HistoryView::Lanes { from, points: self.points_of_all(range) },
            HistoryOf::Lanes(names) => HistoryView::Lanes { from, points: self.points_of(names, range) },
            HistoryOf::Upstream(name) => match self.upstream_by_name.get(name) {
                Some(upstream) => HistoryView::Upstream {
                    from,
                    points: self.upstream_points(*upstream, range),
                    transitions: self.transitions_since(*upstream, from),
                },
                None => HistoryView::Upstream {
                    from,
                    points: upstream_points(&Ring::default(), None, range),
                    transitions: Vec::new(),
                },
            },
        }
    }

    fn points_of_all(&self, range: Range) -> Vec<LanePoint> {
        let running = self.history.running.map(|minute| self.running_minute_of_all(minute));
        let now = self.lanes.iter().map(|lane| (lane.waiting, lane.processing));
        let now = now.fold((0, 0), |sum, lane| (sum.0 + lane.0, sum.1 + lane.1));
        lane_points(&self.history.all, running.as_ref(), now, range)
    }

    fn points_of(&self, names: &[Name], range: Range) -> Vec<LanePoint> {
        let known = names.iter().filter_map(|name| self.lane_by_name.get(name));
        let points = known.map(|lane| {
            let (number, lane) = (lane.0 as usize, self.lane(*lane));
            let running = self.history.running.map(|minute| self.running_minute_of(number, minute));
            let now = (lane.waiting, lane.processing);
            lane_points(&self.history.lanes[number].points, running.as_ref(), now, range)
        });
        let sum = points.reduce(|mut sum, points| {
            sum.iter_mut().zip(&points).for_each(|(sum, point)| sum.add(point));
            sum
        });
        sum.unwrap_or_else(|| lane_points(&Ring::default(), None, (0, 0), range))
    }

    fn upstream_points(&self, upstream: UpstreamIx, range: Range) -> Vec<UpstreamPoint> {
        let calls = &self.upstream(upstream).calls;
        let running = self.history.running.and_then(|minute| calls.running_minute(minute));
        upstream_points(&self.history.upstreams[upstream.0 as usize].points, running.as_ref(), range)
    }

    fn transitions_since(&self, upstream: UpstreamIx, from: Time) -> Vec<GateTransition> {
        let kept = self.history.upstreams[upstream.0 as usize].transitions.iter();
        let transition = |change: &KeptGateChange| GateTransition {
            at: change.at,
            upstream: self.upstream(UpstreamIx(change.of)).name.clone(),
            kind: change.kind,
        };
        kept.filter(|change| change.at >= from).map(transition).collect()
    }
}

/// The points of one series in `range`, with the `running` minute, or one that is over and was not closed yet. `now` is how
/// many jobs wait and are processed now.
fn lane_points(
    ring: &Ring<LaneMinute>,
    running: Option<&LaneMinute>,
    now: (u64, u64),
    range: Range,
) -> Vec<LanePoint> {
    let mut known = ring.iter().chain(running).peekable();
    let mut has_jobs = false;
    while let Some(before) = known.next_if(|point| point.minute < range.first) {
        has_jobs = before.has_jobs();
    }
    let mut point = |minute| match known.next_if(|point| point.minute == minute) {
        Some(point) => {
            has_jobs = point.has_jobs();
            LanePoint::from(point)
        }
        None if minute == range.last => without_events(Some(now)),
        // A minute that jobs waited for would have been stored.
        None => without_events((!has_jobs).then_some((0, 0))),
    };
    (range.first..=range.last).map(&mut point).collect()
}

fn without_events(jobs: Option<(u64, u64)>) -> LanePoint {
    let (waiting, processing) = (jobs.map(|jobs| jobs.0), jobs.map(|jobs| jobs.1));
    LanePoint { waiting, processing, ..LanePoint::default() }
}

fn upstream_points(
    ring: &Ring<UpstreamMinute>,
    running: Option<&UpstreamMinute>,
    range: Range,
) -> Vec<UpstreamPoint> {
    let mut known = ring.iter().chain(running).skip_while(|point| point.minute() < range.first).peekable();
    let mut point =
        |minute| known.next_if(|point| point.minute == minute).map(UpstreamPoint::from).unwrap_or_default();
    (range.first..=range.last).map(&mut point).collect()
}

impl From<&LaneMinute> for LanePoint {
    fn from(point: &LaneMinute) -> Self {
        Self {
            accepted: point.accepted.into(),
            started: point.started.into(),
            completed: point.completed.into(),
            failed: point.failed.into(),
            dropped: point.dropped.into(),
            requests: point.requests.into(),
            failed_requests: point.failed_requests.into(),
            waiting: Some(point.waiting.into()),
            processing: Some(point.processing.into()),
            wait: point.wait.map(Quantiles::from),
        }
    }
}

impl From<&UpstreamMinute> for UpstreamPoint {
    fn from(point: &UpstreamMinute) -> Self {
        let statuses = point.statuses.iter().map(|(status, calls)| (*status, (*calls).into()));
        Self {
            calls: point.calls.into(),
            errors: point.errors.into(),
            statuses: statuses.collect(),
            latency: point.latency.map(Quantiles::from),
        }
    }
}
