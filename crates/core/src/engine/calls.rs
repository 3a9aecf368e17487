//! Counts how calls to each upstream end, minute by minute: a few increments per call. The counts are displayed and become
//! points of the history; they decide nothing and are not stored, except the last failure.

use std::sync::Arc;

use super::Engine;
use super::history::{MINUTE_MS, QuantilesMs, UpstreamMinute};
use super::record::Record;
use crate::durations::{Durations, Quantiles};
use crate::gate::CallResult;
use crate::table::UpstreamIx;
use crate::time::Time;
use crate::verbs::{CallStatus, Report};
use crate::views::{LastFailure, UpstreamView};

/// Statuses that are counted separately in the running minute; further ones count as [`CallStatus::Other`].
const MAX_STATUSES: usize = 16;
/// Statuses of a finished minute, the most frequent ones; the rest count as [`CallStatus::Other`].
const MAX_KEPT_STATUSES: usize = 8;

/// The calls of one minute.
#[derive(Debug, Default)]
struct CallCounts {
    calls: u32,
    errors: u32,
    statuses: Vec<(CallStatus, u32)>,
    latency: Durations,
}

impl CallCounts {
    fn count(&mut self, report: &Report) {
        self.calls += 1;
        self.errors += u32::from(report.result.is_error());
        let status = CallStatus::of(report);
        if !self.count_status(status) {
            self.count_status(CallStatus::Other);
        }
        if let Some(took) = report.took {
            self.latency.add(took);
        }
    }

    /// Counts a status; `false` if there are too many others.
    fn count_status(&mut self, status: CallStatus) -> bool {
        let known = self.statuses.iter_mut().find(|(known, _)| *known == status);
        if let Some((_, count)) = known {
            *count += 1;
            return true;
        }
        let counted = self.statuses.len() < MAX_STATUSES || status == CallStatus::Other;
        self.statuses.extend(counted.then_some((status, 1)));
        counted
    }

    /// The most frequent statuses, and the rest together.
    fn most_frequent(&self) -> Vec<(CallStatus, u32)> {
        let (mut kept, mut other) = (self.statuses.clone(), 0);
        kept.retain(|(status, count)| {
            let counted = *status != CallStatus::Other;
            other += if counted { 0 } else { *count };
            counted
        });
        kept.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        other += kept.drain(kept.len().min(MAX_KEPT_STATUSES)..).map(|(_, count)| count).sum::<u32>();
        kept.extend((other > 0).then_some((CallStatus::Other, other)));
        kept
    }

    fn clear(&mut self) {
        (self.calls, self.errors) = (0, 0);
        self.statuses.clear();
        self.latency.clear();
    }
}

/// The calls of the running minute and of the previous one.
#[derive(Debug, Default)]
pub(super) struct Calls {
    running: CallCounts,
    previous: CallCounts,
    last_failure: Option<LastFailure>,
    failure_unsaved: bool,
}

impl Calls {
    fn count(&mut self, report: &Report, now: Time) {
        self.running.count(report);
        if report.result.is_error() {
            let code = CallStatus::of(report).to_string().into();
            self.last_failure = Some(LastFailure { code, at: now });
            self.failure_unsaved = true;
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        self.failure_unsaved
    }

    pub(super) fn touch_failure(&mut self) {
        self.failure_unsaved = self.last_failure.is_some();
    }

    /// The last failure of upstream `number` as a record.
    pub(super) fn failure_record(&self, upstream: u32) -> Option<Record> {
        self.last_failure.clone().map(|failure| Record::UpstreamFailure { upstream, failure })
    }

    /// The last failure of upstream `number`, if it is not saved.
    pub(super) fn drain_failure(&mut self, upstream: u32) -> Option<Record> {
        std::mem::take(&mut self.failure_unsaved).then(|| self.failure_record(upstream)).flatten()
    }

    pub(super) fn restore_failure(&mut self, failure: LastFailure) {
        self.last_failure = Some(failure);
    }

    /// Begins another minute, `minutes` after the running one.
    pub(super) fn roll(&mut self, minutes: u32) {
        std::mem::swap(&mut self.running, &mut self.previous);
        self.running.clear();
        if minutes > 1 {
            self.previous.clear();
        }
    }

    /// The running minute as a point; `None` if no call has ended in it.
    pub(super) fn running_minute(&self, minute: u32) -> Option<UpstreamMinute> {
        let CallCounts { calls, errors, latency, .. } = &self.running;
        (*calls > 0).then(|| UpstreamMinute {
            minute,
            calls: *calls,
            errors: *errors,
            statuses: self.running.most_frequent(),
            latency: latency.quantiles().map(QuantilesMs::from),
        })
    }

    /// Errors and latency of the last sixty seconds, assuming that calls were spread evenly over the previous minute.
    fn last_minute(&self, minutes: u32, now: Time) -> (u64, Option<Quantiles>) {
        let left = MINUTE_MS - now.as_millis() % MINUTE_MS;
        let (running, previous) = match minutes {
            0 => (Some(&self.running), &self.previous),
            1 => (None, &self.running),
            _ => return (0, None),
        };
        let mut latency = Durations::default();
        if let Some(running) = running {
            latency.add_share(&running.latency, 1, 1);
        }
        latency.add_share(&previous.latency, left, MINUTE_MS);
        let errors = running.map_or(0, |running| running.errors.into());
        (errors + u64::from(previous.errors) * left / MINUTE_MS, latency.quantiles())
    }
}

impl Engine {
    /// Counts a call that ended, unless it was never made.
    pub(super) fn count_call(&mut self, at: UpstreamIx, report: &Report, now: Time) {
        if report.result == CallResult::NotSent {
            return;
        }
        let upstream = self.without_key(at);
        self.upstreams[upstream.0 as usize].calls.count(report, now);
    }

    /// Replaces the code of the last failure by that of the job, which is more specific.
    pub(super) fn note_failure_code(&mut self, upstream: UpstreamIx, code: &Arc<str>, now: Time) {
        let calls = &mut self.upstreams[upstream.0 as usize].calls;
        let last = calls.last_failure.as_mut();
        if let Some(last) = last.filter(|last| last.at == now && last.code != *code) {
            last.code = code.clone();
            calls.failure_unsaved = true;
        }
    }

    /// Adds the counts of the last minute to a view.
    pub(super) fn show_calls(&self, at: UpstreamIx, view: &mut UpstreamView, now: Time) {
        let calls = &self.upstream(at).calls;
        let minutes = self.history.minutes_since(now);
        (view.errors_last_minute, view.latency) = calls.last_minute(minutes, now);
        view.last_failure.clone_from(&calls.last_failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    fn report(result: CallResult, took: u64) -> Report {
        Report { took: Some(Span::from_millis(took)), ..Report::from(result) }
    }

    #[test]
    fn the_last_minute_fades_out_evenly() {
        let at = |secs: u64| Time::from_millis(1_700_000_040_000 + secs * 1_000);
        let mut calls = Calls::default();
        (0..60).for_each(|second| calls.count(&report(CallResult::TimedOut, 100), at(second)));
        assert_eq!(calls.last_minute(0, at(59)).0, 60);
        assert_eq!(calls.last_failure, Some(LastFailure { code: "timeout".into(), at: at(59) }));
        assert_eq!(calls.last_minute(1, at(75)).0, 45, "no minute was begun since");
        calls.roll(1);
        calls.count(&report(CallResult::Success, 2_000), at(75));
        let (errors, latency) = calls.last_minute(0, at(75));
        assert_eq!(errors, 45, "a success is no error");
        assert!(latency.is_some_and(|both| both.p50.as_millis().abs_diff(100) < 13), "{latency:?}");
        calls.roll(2);
        assert_eq!(calls.last_minute(0, at(200)), (0, None));
    }
}
