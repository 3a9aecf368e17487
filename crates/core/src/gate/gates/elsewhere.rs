//! What calls take that were admitted elsewhere: by others that a process has lost, or by a process that was lost.

use super::{Answer, GateSpecs, GateView, Gates, Pass};
use crate::gate::{Breaker, Bucket, CallResult, Cooldown, Pace, Reason, Share, Window};
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// What a process that lost the others knows of the calls under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    /// What falls to it of every limit.
    pub(crate) share: Share,
    /// Calls that it began since it last saw the gates.
    pub(crate) started: u32,
    /// Slots of its part that are taken, each by a lease.
    pub(crate) in_flight: u32,
    /// When all calls of others will have ended.
    pub(crate) ended: Time,
}

impl GateView {
    /// What falls to `part` of what is free of its limit, less what was `started` there since.
    pub(crate) fn free(&self, share: Share, started: u32) -> u32 {
        let free = self.limit.unwrap_or(0).saturating_sub(self.level).max(0);
        share.of(u32::try_from(free).unwrap_or(u32::MAX)).saturating_sub(started)
    }
}

impl Gates {
    /// Gates under `spec`, the part of rules whose gates all who share them last saw like this: what was free then is
    /// divided too, and `started` calls have begun here since. Of the places that are used in the window `in_flight` are
    /// told of by leases; the others are those of calls that end by `ended`.
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

    /// Takes what a call took that began at `began` elsewhere, without asking: one that ended leaves its place in the
    /// window, one that runs holds a slot too. The bucket is charged for all such calls together.
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
            self.end_request(spec, pass, Answer::At(ended), now);
        }
        pass
    }

    /// Takes from its own bucket, without asking whether so much is there.
    pub(crate) fn charge(&mut self, spec: &GateSpecs, tokens: Tokens, now: Time) {
        if let Some(rule) = &spec.bucket {
            self.bucket.get_or_insert_with(|| Bucket::full(rule, now)).spend(rule, tokens, now);
        }
    }

    /// Counts what a call that began at `began` told at `at`, some time ago.
    pub(crate) fn record_late(&mut self, spec: &GateSpecs, result: CallResult, began: Time, at: Time) {
        if let Some(rule) = &spec.breaker {
            self.breaker.record_late(rule, result, began, at);
        }
        self.adapt(spec, result, None, at);
    }
}
