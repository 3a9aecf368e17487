//! When gates will let the next calls start, as far as that can be predicted.

use super::gates::{GateSpecs, Gates};
use super::window::{Window, WindowSpec};
use crate::time::{Span, Time};
use crate::tokens::Tokens;

impl Gates {
    /// When a call with `ahead` others before it starts, if all start as soon as they may. Slots are ignored: when they
    /// come free depends on how long calls take.
    pub(crate) fn nth_start(&self, spec: &GateSpecs, ahead: u64, now: Time) -> Time {
        let open = self.opens(spec, now);
        let Some(window) = &spec.window else { return self.nth_without_window(spec, ahead, open, now) };
        // A call without a free place reuses the place of the call `limit` positions before it, one span later.
        let (rounds, place) = (ahead / u64::from(window.limit()), ahead % u64::from(window.limit()));
        let first =
            self.nth_without_window(spec, place, open, now).max(self.window.place_at(window, place, now));
        (first + times(window.span(), rounds)).max(self.nth_without_window(spec, ahead, open, now))
    }

    fn nth_without_window(&self, spec: &GateSpecs, ahead: u64, open: Time, now: Time) -> Time {
        let pace = self.pace.filter(|_| spec.pace.is_some());
        let pace = pace.map(|pace| pace.next_at.max(open) + times(pace.interval(), ahead));
        let bucket = spec.bucket.zip(self.tokens(spec, now)).map(|(rule, balance)| {
            let wanted = Tokens::whole(u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1));
            now + rule.time_to_gain(Tokens::from_micro((wanted.as_micro() - balance.as_micro()).max(0)))
        });
        [pace, bucket].into_iter().flatten().fold(open, Time::max)
    }

    /// When breaker, cooldown and Retry-After let calls through again.
    fn opens(&self, spec: &GateSpecs, now: Time) -> Time {
        let breaker = spec.breaker.as_ref().and_then(|rule| self.breaker.admits(rule, now).err());
        let cooldown = spec.cooldown.as_ref().and_then(|_| self.cooldown.admits(now).err());
        let closed = [breaker, cooldown].into_iter().flatten().map(|denial| denial.at);
        // A running probe usually ends before its lease does.
        closed.filter(|at| *at < Time::NEVER).fold(self.closed_until.max(now), Time::max)
    }
}

impl Window {
    /// When place number `ahead` (from 0) can be taken; `ahead` is below the limit.
    fn place_at(&self, rule: &WindowSpec, ahead: u64, now: Time) -> Time {
        let free = u64::from(rule.limit()).saturating_sub(u64::from(self.count(now)));
        let Some(over) = (ahead + 1).checked_sub(free).filter(|over| *over > 0) else { return now };
        let over = u32::try_from(over).unwrap_or(u32::MAX);
        self.answered().over_at(over, now).unwrap_or(now + rule.span())
    }
}

fn times(span: Span, count: u64) -> Span {
    Span::from_millis(span.as_millis().saturating_mul(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{BreakerSpec, BucketSpec, CallResult, PaceSpec};
    use crate::ids::LeaseId;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    fn lease(number: u64) -> LeaseId {
        LeaseId { epoch: 1, number, nonce: number }
    }

    /// Starts `count` calls in turn, each as soon as it may, all answered at once; returns their start times.
    fn run(spec: &GateSpecs, gates: &mut Gates, count: u64, mut now: Time) -> Vec<Time> {
        let mut starts = Vec::new();
        for number in 0..count {
            while let Err(denial) = gates.admits(spec, now, now) {
                now = denial.at.max(now + Span::from_millis(1));
            }
            let pass = gates.take(spec, lease(number), now + Span::from_secs(10), now);
            gates.end_request(Some(spec), pass, crate::gate::gates::RequestEnd::At(now), now);
            gates.release_slot();
            starts.push(now);
        }
        starts
    }

    fn check(spec: &GateSpecs, before: u64) {
        let mut gates = Gates::default();
        run(spec, &mut gates, before, at(0));
        let now = at(500);
        let predicted: Vec<_> = (0..300).map(|ahead| gates.nth_start(spec, ahead, now)).collect();
        let real = run(spec, &mut gates, 300, now);
        for (ahead, (predicted, real)) in predicted.iter().zip(&real).enumerate() {
            let off = predicted.as_millis().abs_diff(real.as_millis());
            assert!(off <= 5, "{ahead} ahead: predicted {predicted:?}, started {real:?}");
        }
    }

    #[test]
    fn predictions_are_right_where_only_time_decides() {
        let mut spec = GateSpecs::default();
        check(&spec, 0);
        spec.bucket = Some(BucketSpec::new(10, 5, Span::from_secs(1)).unwrap());
        check(&spec, 0);
        check(&spec, 7);
        spec.window = Some(WindowSpec::per_minute(60).unwrap());
        check(&spec, 0);
        check(&spec, 8);
        spec.bucket = None;
        check(&spec, 40);
        spec.window = None;
        spec.pace =
            Some(PaceSpec::new(Span::from_millis(250), Span::from_millis(50), Span::from_secs(9)).unwrap());
        check(&spec, 3);
    }

    #[test]
    fn an_open_breaker_delays_all() {
        let mut spec = GateSpecs::default();
        spec.breaker = Some(BreakerSpec::new(1, Span::from_secs(30), 1).unwrap());
        let mut gates = Gates::default();
        gates.record(&spec, CallResult::Failed, at(0));
        assert_eq!(gates.nth_start(&spec, 5, at(1_000)), at(30_000));
        gates.close(at(45_000));
        assert_eq!(gates.nth_start(&spec, 5, at(1_000)), at(45_000));
    }
}
