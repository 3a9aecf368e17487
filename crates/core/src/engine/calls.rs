//! What calls to each upstream brought in the last minute, for those who only look: a few increments per call. It is not
//! stored.

use std::sync::Arc;

use super::Engine;
use crate::durations::{Durations, Quantiles};
use crate::gate::CallResult;
use crate::table::UpstreamIx;
use crate::time::Time;
use crate::verbs::Report;
use crate::views::{LastFailure, UpstreamView};

const MINUTE_MS: u64 = 60_000;

/// The calls of one minute.
#[derive(Debug, Default)]
struct Minute {
    errors: u64,
    latency: Durations,
}

/// The calls of the running minute and of the one before.
#[derive(Debug, Default)]
pub(super) struct Calls {
    running: Minute,
    before: Minute,
    last_failure: Option<LastFailure>,
}

impl Calls {
    fn count(&mut self, report: &Report, now: Time) {
        if report.result.is_error() {
            self.running.errors += 1;
            self.last_failure = Some(LastFailure { code: code(report), at: now });
        }
        if let Some(took) = report.took {
            self.running.latency.add(took);
        }
    }

    /// Goes on `minutes` later.
    fn roll(&mut self, minutes: u64) {
        std::mem::swap(&mut self.running, &mut self.before);
        self.running.errors = 0;
        self.running.latency.clear();
        if minutes > 1 {
            self.before.errors = 0;
            self.before.latency.clear();
        }
    }

    /// Errors and latency of the last sixty seconds, as if the minute before was spent evenly.
    fn last_minute(&self, minutes: u64, now: Time) -> (u64, Option<Quantiles>) {
        let left = MINUTE_MS - now.as_millis() % MINUTE_MS;
        let (running, before) = match minutes {
            0 => (Some(&self.running), &self.before),
            1 => (None, &self.running),
            _ => return (0, None),
        };
        let mut latency = Durations::default();
        if let Some(running) = running {
            latency.add_share(&running.latency, 1, 1);
        }
        latency.add_share(&before.latency, left, MINUTE_MS);
        let errors = running.map_or(0, |running| running.errors) + before.errors * left / MINUTE_MS;
        (errors, latency.quantiles())
    }
}

impl Engine {
    /// Counts a call that ended, unless it was never made.
    pub(super) fn count_call(&mut self, at: UpstreamIx, report: &Report, now: Time) {
        if report.result == CallResult::NotSent {
            return;
        }
        let minute = minute(now);
        if minute > self.calls_minute {
            let minutes = minute - std::mem::replace(&mut self.calls_minute, minute);
            self.upstreams.iter_mut().for_each(|upstream| upstream.calls.roll(minutes));
        }
        let upstream = self.without_key(at);
        self.upstreams[upstream.0 as usize].calls.count(report, now);
    }

    /// The failure of a job says more about the code than the report of its call.
    pub(super) fn note_failure_code(&mut self, upstream: UpstreamIx, code: &Arc<str>, now: Time) {
        let last = &mut self.upstreams[upstream.0 as usize].calls.last_failure;
        if let Some(last) = last.as_mut().filter(|last| last.at == now && last.code != *code) {
            last.code = code.clone();
        }
    }

    /// Adds what calls brought in the last minute.
    pub(super) fn show_calls(&self, at: UpstreamIx, view: &mut UpstreamView, now: Time) {
        let calls = &self.upstream(at).calls;
        let minutes = minute(now).saturating_sub(self.calls_minute);
        (view.errors_last_minute, view.latency) = calls.last_minute(minutes, now);
        view.last_failure.clone_from(&calls.last_failure);
    }
}

fn minute(now: Time) -> u64 {
    now.as_millis() / MINUTE_MS
}

/// The status, or the word for a failure without one.
fn code(report: &Report) -> Arc<str> {
    match (report.status, report.result) {
        (Some(status), _) => status.to_string().into(),
        (None, CallResult::TimedOut) => "timeout".into(),
        (None, CallResult::Throttled) => "429".into(),
        (None, CallResult::Unreachable) => "unreachable".into(),
        (None, _) => "failed".into(),
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
        assert_eq!(calls.last_minute(1, at(75)).0, 45, "nothing was counted since, so nothing rolled");
        calls.roll(1);
        calls.count(&report(CallResult::Success, 2_000), at(75));
        let (errors, latency) = calls.last_minute(0, at(75));
        assert_eq!(errors, 45, "a success is no error");
        assert!(latency.is_some_and(|both| both.p50.as_millis().abs_diff(100) < 13), "{latency:?}");
        calls.roll(2);
        assert_eq!(calls.last_minute(0, at(200)), (0, None));
    }
}
