//! The points of a lane add up to its totals, across restarts.

use eclusa_core::{Engine, HistoryOf, HistoryQuery, HistoryView, LanePoint, MAX_MINUTES, Name, Time};

use super::{Checker, Step};
use crate::calls::Call;
use crate::ledger::{Verdict, ensure};
use crate::rules::lane_name;

/// The points of a lane, with the counts of jobs only.
pub(crate) fn job_counts(engine: &Engine, lane: &Name, minutes: u32, now: Time) -> Vec<LanePoint> {
    let query = HistoryQuery { of: HistoryOf::Lanes(vec![lane.clone()]), minutes };
    let HistoryView::Lanes { points, .. } = engine.history(&query, now) else { return Vec::new() };
    let jobs = |point: LanePoint| LanePoint { requests: 0, failed_requests: 0, wait: None, ..point };
    points.into_iter().map(jobs).collect()
}

/// Begins with the first call.
#[derive(Default)]
pub(crate) struct Sums {
    began: Option<Time>,
}

impl Checker for Sums {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        let began = *self.began.get_or_insert(step.now);
        let minutes = u32::try_from(step.now.since(began).as_millis() / 60_000 + 2).unwrap_or(u32::MAX);
        if minutes > MAX_MINUTES || !matches!(step.call, Call::Sweep | Call::Dispatch(_)) {
            return Ok(());
        }
        for (lane, view) in [0, 1].map(lane_name).iter().zip(step.engine.lanes(step.now)) {
            let points = job_counts(step.engine, lane, minutes, step.now);
            let sum = |count: fn(&LanePoint) -> u64| points.iter().map(count).sum::<u64>();
            let sums = [
                sum(|point| point.accepted),
                sum(|point| point.started),
                sum(|point| point.completed),
                sum(|point| point.failed),
                sum(|point| point.dropped),
            ];
            let totals = view.totals;
            let expected = [
                totals.accepted,
                totals.started,
                totals.completed_jobs(),
                totals.failed,
                totals.dropped_jobs(),
            ];
            ensure!(sums == expected, "the points of {lane} add up to {sums:?} instead of {expected:?}");
            let last = points.last().ok_or("there are no points")?;
            let jobs = (view.queued.iter().sum::<u64>() + view.pending, view.processing);
            let shown = (last.waiting.unwrap_or_default(), last.processing.unwrap_or_default());
            ensure!(shown == jobs, "the last point of {lane} has {shown:?} instead of {jobs:?} jobs");
        }
        Ok(())
    }
}
