//! Adaptive pace: finds the rate that the upstream accepts, by additive increase and multiplicative decrease (AIMD).
//!
//! The rate grows with successes while calls start as fast as it allows. It falls when the upstream says "too many
//! requests", when calls fail, and when they take much longer than before. One burst of such signals is one decrease:
//! only a call that began after the last decrease can cause another.
//!
//! The rate at the last decrease is kept as the *knee*. Growth is fast far from it and slow close to it, so that the
//! rate is just below the limit most of the time, and a raised limit is found within seconds.

use crate::gate::{CallResult, PaceSpec};
use crate::time::{Span, Time};

/// One start per second.
const ONE: u64 = 1_000_000;

/// Growth per second: this share of the rate until a limit was met, and of the distance to the knee afterwards.
const TOWARDS_KNEE_PERCENT: u64 = 30;
/// Additional growth per second: this share of the knee, which takes the rate past it.
const PAST_KNEE_PERCENT: u64 = 1;
/// The longest time that one success accounts for.
const LONGEST_GROWTH: Span = Span::from_secs(1);
/// The same below the knee: with few calls, one refusal in ten seconds would be too many.
const LONGEST_GROWTH_TO_KNEE: Span = Span::from_millis(100);

/// Two decreases are at least this far apart. Limits that are counted over a second need that long to admit calls
/// again.
const SHORTEST_HOLD: Span = Span::from_secs(1);
/// The rate after a decrease, in percent.
const SLOWED_PERCENT: u64 = 85;
/// The rate after a decrease, in percent, if the previous decrease did not help.
const SLOWED_AGAIN_PERCENT: u64 = 70;

/// Latency and failures are judged over this many calls.
const BATCH: u32 = 16;
/// Failures in a batch that are a signal; fewer have causes other than the rate.
const FAILURES: u32 = 2;
/// A mean latency above this multiple of the floor is a signal.
const TOLERANCE: u64 = 2;
/// And it must exceed the floor by this much, for upstreams that answer within milliseconds.
const TOLERANCE_US: u64 = 10_000;
/// Longer latencies count as this.
const LONGEST_LATENCY: Span = Span::from_secs(3_600);
/// A call counts at most as this multiple of the floor: a single slow one is no signal.
const OUTLIER: u64 = 8;
/// A batch raises the floor by this fraction of the difference. A lower mean becomes the floor at once.
const FLOOR_STEP: u64 = 64;
/// After this many decreases in a row because of latency, the load is not the cause: the latency is the new floor.
const TRIES: u32 = 3;

/// A start that is late by no more than this, or one interval, counts as starting as soon as allowed.
const LATE: Span = Span::from_millis(10);

/// What was learned about an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    /// Millionths of a start per second.
    pub(crate) rate: u64,
    /// The rate at the last decrease, if there was one.
    pub(crate) knee: Option<u64>,
    pub(crate) slowed_at: Time,
    /// Decreases in a row.
    pub(crate) strikes: u32,
    /// When a success last raised the rate.
    pub(crate) grown_at: Time,
    /// Whether the last call started as soon as the pace allowed.
    pub(crate) used: bool,
    /// The part of a millisecond by which the next start is due earlier than its rounded time.
    pub(crate) owed_us: u64,
    /// The lowest mean latency, in microseconds.
    pub(crate) floor_us: Option<u64>,
    /// The calls since the last decrease or the last whole batch.
    pub(crate) batch: Batch,
}

/// Calls that are judged as one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Batch {
    /// Calls that succeeded or failed.
    pub(crate) calls: u32,
    pub(crate) failed: u32,
    /// Successes whose latency is known.
    pub(crate) timed: u32,
    /// The sum of their latencies.
    pub(crate) total_us: u64,
}

impl Adaptive {
    /// Starts with this interval between calls.
    pub(super) fn new(interval_us: u64) -> Self {
        Self {
            rate: per_second(interval_us),
            knee: None,
            slowed_at: Time::default(),
            strikes: 0,
            grown_at: Time::default(),
            used: false,
            owed_us: 0,
            floor_us: None,
            batch: Batch::default(),
        }
    }

    /// The interval between starts, in microseconds.
    pub(super) fn interval_us(&self, spec: &PaceSpec) -> u64 {
        (ONE * 1_000_000).div_ceil(self.rate.max(1)).clamp(micros(spec.min()), micros(spec.max()))
    }

    /// When the next call may start after one at `now`, which was allowed from `allowed_at` on. A call that started a
    /// little late does not lower the rate: the next may start that much sooner, but not below the shortest interval.
    pub(super) fn take(&mut self, spec: &PaceSpec, allowed_at: Time, now: Time) -> Time {
        let interval_us = self.interval_us(spec);
        let late = now.since(allowed_at);
        let tolerated_us = interval_us.max(micros(LATE));
        self.used = micros(late) <= tolerated_us;
        let late_us = micros(late).saturating_add(self.owed_us).min(interval_us.min(micros(LATE)));
        let wait_us = interval_us - late_us;
        let wait = Span::from_millis(wait_us.div_ceil(1_000)).max(spec.min());
        self.owed_us = micros(wait).saturating_sub(wait_us);
        now + wait
    }

    /// Learns from a call that ended at `now` after `took`, if that is known.
    pub(super) fn report(&mut self, spec: &PaceSpec, result: CallResult, took: Option<Span>, now: Time) {
        if !self.is_relevant(took, now) {
            return;
        }
        match result {
            CallResult::Throttled => self.slow(self.slowed(), now),
            CallResult::Failed | CallResult::TimedOut | CallResult::Unreachable => {
                self.batch.calls += 1;
                self.batch.failed += 1;
                if self.batch.failed >= FAILURES {
                    self.slow(self.slowed(), now);
                }
            }
            CallResult::Success => {
                self.grow(now);
                self.note_success(took, now);
            }
            CallResult::Rejected | CallResult::NotSent | CallResult::Unknown => {}
        }
        self.fit(spec);
    }

    /// Keeps the rate within its bounds.
    pub(super) fn fit(&mut self, spec: &PaceSpec) {
        let [slowest, fastest] = [spec.max(), spec.min()].map(|interval| per_second(micros(interval)));
        self.rate = self.rate.clamp(slowest, fastest);
    }

    /// Whether the call began after the last decrease, and the pause after that is over. Earlier calls say nothing
    /// about the lower rate.
    fn is_relevant(&self, took: Option<Span>, now: Time) -> bool {
        if self.slowed_at == Time::default() {
            return true;
        }
        let floor = Span::from_millis(self.floor_us.unwrap_or(0) / 1_000);
        let began_after = now.since(self.slowed_at) > took.unwrap_or(floor);
        began_after && now >= self.slowed_at + SHORTEST_HOLD
    }

    fn slowed(&self) -> u64 {
        if self.strikes == 0 { SLOWED_PERCENT } else { SLOWED_AGAIN_PERCENT }
    }

    fn slow(&mut self, percent: u64, now: Time) {
        self.knee = Some(self.rate);
        self.rate = self.rate * percent / 100;
        self.slowed_at = now;
        self.grown_at = now;
        self.strikes = self.strikes.saturating_add(1);
        self.batch = Batch::default();
    }

    /// Grows the rate for the time since the last success.
    fn grow(&mut self, now: Time) {
        let elapsed = now.since(self.grown_at);
        self.grown_at = now;
        if !self.used {
            return;
        }
        let (per_second, longest) = match self.knee {
            None => (self.rate * TOWARDS_KNEE_PERCENT, LONGEST_GROWTH),
            Some(knee) => {
                let step = knee.abs_diff(self.rate) * TOWARDS_KNEE_PERCENT + knee * PAST_KNEE_PERCENT;
                (step, if self.rate < knee { LONGEST_GROWTH_TO_KNEE } else { LONGEST_GROWTH })
            }
        };
        self.rate += per_second * elapsed.min(longest).as_millis() / (100 * 1_000);
    }

    fn note_success(&mut self, took: Option<Span>, now: Time) {
        self.batch.calls += 1;
        if let Some(took) = took {
            let most = self.floor_us.map_or(u64::MAX, |floor| (floor + TOLERANCE_US) * OUTLIER);
            self.batch.timed += 1;
            self.batch.total_us += micros(took.min(LONGEST_LATENCY)).min(most);
        }
        if self.batch.calls < BATCH {
            return;
        }
        let Batch { timed, total_us, .. } = std::mem::take(&mut self.batch);
        match total_us.checked_div(timed.into()) {
            Some(mean) => self.judge_latency(mean, now),
            None => self.strikes = 0,
        }
    }

    fn judge_latency(&mut self, mean: u64, now: Time) {
        let Some(floor) = self.floor_us else {
            self.floor_us = Some(mean);
            return;
        };
        let most = floor * TOLERANCE + TOLERANCE_US;
        if mean <= most {
            self.strikes = 0;
            self.floor_us = Some(if mean < floor { mean } else { floor + (mean - floor) / FLOOR_STEP });
        } else if self.strikes >= TRIES {
            (self.floor_us, self.strikes) = (Some(mean), 0);
        } else {
            // The higher the latency, the larger the decrease.
            let percent = (most * 100 / mean).clamp(SLOWED_AGAIN_PERCENT, SLOWED_PERCENT);
            self.slow(percent, now);
        }
    }
}

fn micros(span: Span) -> u64 {
    span.as_millis().saturating_mul(1_000)
}

/// Millionths of a start per second at this interval; never beyond it.
fn per_second(interval_us: u64) -> u64 {
    ONE * 1_000_000 / interval_us.max(1)
}
