//! Calls that another process admitted: the gates of a process cut off from the owner, and how its calls are counted
//! afterwards.

use super::{GateSpecs, GateView, Gates, Pass, RequestEnd};
use crate::gate::{Breaker, Bucket, CallResult, Cooldown, Pace, Reason, Share, Window};
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// What a process that is cut off knows about running calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    /// Its share of every limit.
    pub(crate) share: Share,
    /// Calls that it started since it last saw the gates.
    pub(crate) started: u32,
    /// Slots of its share that are taken, each by a lease.
    pub(crate) in_flight: u32,
    /// When all calls of other processes will have ended.
    pub(crate) ended: Time,
}

impl GateView {
    /// The share of what is free of the limit, minus the calls `started` since.
    pub(crate) fn free(&self, share: Share, started: u32) -> u32 {
        let free = self.limit.unwrap_or(0).saturating_sub(self.level).max(0);
        share.of(u32::try_from(free).unwrap_or(u32::MAX)).saturating_sub(started)
    }
}

impl Gates {
    /// Gates for a process's share `spec` of the rules, based on the last `seen` state of the shared gates: what was
    /// free then is divided as well. Of the places used in the window, `in_flight` belong to known leases; the others
    /// belong to calls that end by `ended`.
    pub(crate) fn of_share(spec: &GateSpecs, seen: &[GateView], used: &Used, now: Time) -> Self {
        let mut gates = Self::default();
        for gate in seen {
            gates.take_over(spec, gate, used, now);
        }
        gates
    }

    fn take_over(&mut self, spec: &GateSpecs, gate: &GateView, used: &Used, now: Time) {
        let Used { share, started, in_flight, ended } = *used;
        match (gate.reason, gate.denies_until) {
            (Reason::CircuitOpen, Some(until)) => self.breaker = Breaker::open_until(until),
            (Reason::Cooldown, Some(until)) => self.cooldown = Cooldown::hot_until(until),
            (Reason::UpstreamRetryAfter, Some(until)) => self.close(until),
            (Reason::Window, _) => {
                if let Some(rule) = &spec.window {
                    let used = rule.limit().saturating_sub(gate.free(share, started));
                    self.window = Window::used(rule, used.saturating_sub(in_flight), ended, now);
                }
            }
            (Reason::RateLimit, _) => {
                if let Some(rule) = &spec.bucket {
                    let left =
                        gate.level.max(0) / i64::from(share.count()) - Tokens::whole(started).as_micro();
                    let left = Tokens::from_micro(left.max(0)).min(rule.capacity());
                    self.bucket = Some(Bucket::holding(left, now));
                }
            }
            (Reason::Pace, _) => {
                if let Some(rule) = &spec.pace {
                    let interval = gate.level.max(0).unsigned_abs() * u64::from(share.count());
                    self.pace = Some(Pace::after_start(rule, Span::from_millis(interval), now));
                }
            }
            _ => {}
        }
    }

    /// Counts a call that began at `began` in another process, without checking the gates. A call that ended still uses
    /// its place in the window; a running one also holds a slot. The bucket is charged separately for all such calls.
    pub(crate) fn catch_up(
        &mut self,
        spec: Option<&GateSpecs>,
        began: Time,
        ended: Option<Time>,
        now: Time,
    ) -> Pass {
        let pass = Pass { generation: self.breaker.generation_at(began), answered: false };
        self.starts.count(began, now);
        if let Some(rule) = spec.and_then(|spec| spec.pace.as_ref()) {
            self.pace.get_or_insert_with(|| Pace::new(rule)).take(rule, began);
        }
        self.restore_call(pass);
        if let Some(ended) = ended {
            self.release_slot();
            self.end_request(spec, pass, RequestEnd::At(ended), now);
        }
        pass
    }

    /// Takes from its own bucket, without checking the balance.
    pub(crate) fn charge(&mut self, spec: &GateSpecs, tokens: Tokens, now: Time) {
        if let Some(rule) = &spec.bucket {
            self.bucket.get_or_insert_with(|| Bucket::full(rule, now)).spend(rule, tokens, now);
        }
    }

    /// Counts the result of a call that began at `began` and ended at `at`, some time ago.
    pub(crate) fn record_late(&mut self, spec: &GateSpecs, result: CallResult, began: Time, at: Time) {
        if let Some(rule) = &spec.breaker {
            self.breaker.record_late(rule, result, began, at);
        }
        self.adapt(spec, result, None, at);
    }
}
