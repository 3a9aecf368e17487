//! Gate transitions, for the log and the history.

use super::{Engine, Upstream};
use crate::gate::{GateChange, GateChangeKind, GateMarks, begins};
use crate::policy::BucketId;
use crate::table::{BucketIx, UpstreamIx};
use crate::time::Time;

impl Engine {
    /// The gate transitions since the last call, in order.
    pub fn take_gate_changes(&mut self) -> Vec<GateChange> {
        std::mem::take(&mut self.gate_changes)
    }

    /// Changes the gates of an upstream and records the transitions.
    pub(super) fn change_gates<T>(
        &mut self,
        index: UpstreamIx,
        now: Time,
        change: impl FnOnce(&mut Upstream) -> T,
    ) -> T {
        let state = self.upstream_mut(index);
        let before = state.gates.marks();
        let answer = change(state);
        if state.gates.marks() != before {
            self.note_changes(index, before, now);
        }
        answer
    }

    #[cold]
    fn note_changes(&mut self, index: UpstreamIx, before: GateMarks, now: Time) {
        let state = self.upstream(index);
        let name = state.name.clone();
        let upstream = self.without_key(index);
        for kind in state.gates.changes_since(before, now) {
            self.history.keep_change(upstream, index, kind, now);
            self.gate_changes.push(GateChange { upstream: name.clone(), policy: None, kind });
        }
    }

    /// Closes a scoped bucket until then, as the upstream asked.
    pub(super) fn close_bucket(&mut self, upstream: UpstreamIx, bucket: BucketIx, until: Time, now: Time) {
        let before = self.buckets[bucket].bucket.closed_until();
        self.buckets[bucket].bucket.close(until);
        self.buckets.touch(bucket);
        let after = self.buckets[bucket].bucket.closed_until();
        if begins(before, after, now) {
            let policy = BucketId::parse(&self.buckets[bucket].key).map(|id| id.policy);
            let upstream = self.upstream(self.without_key(upstream)).name.clone();
            let kind = GateChangeKind::Closed { lasts: after.since(now) };
            self.gate_changes.push(GateChange { upstream, policy, kind });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{BreakerSpec, CallResult, CooldownSpec, GateSpecs, HEALTHY_AFTER};
    use crate::ids::Name;
    use crate::spec::{Spec, UpstreamSpec};
    use crate::time::Span;
    use crate::verbs::{Admission, Admit, Outcome, Report, RetryAfter, Settlement};

    const OPEN: Span = Span::from_secs(30);

    fn at(secs: u64) -> Time {
        Time::from_millis(1_000_000) + Span::from_secs(secs)
    }

    fn engine(gates: impl FnOnce(&mut GateSpecs)) -> (Engine, Name) {
        let name = Name::new("up").unwrap();
        let mut specs = GateSpecs::default();
        gates(&mut specs);
        let spec = Spec::new(Vec::new(), vec![UpstreamSpec::new(name.clone(), specs)]).unwrap();
        (Engine::new(&spec), name)
    }

    fn breaker(gates: &mut GateSpecs) {
        gates.breaker = Some(BreakerSpec::new(2, OPEN, 1).unwrap());
    }

    fn call(engine: &mut Engine, upstream: &Name, report: Report, now: Time) {
        let (chain, lease) = (vec![upstream.clone()], Span::from_secs(10));
        let ask = Admit {
            lane: None,
            tenant: None,
            chain,
            holds: Vec::new(),
            correlation: None,
            lease,
            nonce: 1,
            after: None,
            probe: true,
        };
        let Admission::Granted { lease, .. } = engine.admit(&ask, now).admission else { panic!("denied") };
        let settlement = Settlement { lease, report, outcome: Outcome::Release, answer: None, unsent: None };
        engine.settle(vec![settlement], now);
    }

    fn kinds(engine: &mut Engine) -> Vec<GateChangeKind> {
        engine.take_gate_changes().into_iter().map(|change| change.kind).collect()
    }

    #[test]
    fn each_breaker_transition_is_reported_once_and_in_order() {
        let (mut engine, up) = engine(breaker);
        call(&mut engine, &up, CallResult::Failed.into(), at(0));
        assert_eq!(kinds(&mut engine), []);
        call(&mut engine, &up, CallResult::Failed.into(), at(0));
        let opened = |failures| GateChangeKind::BreakerOpened { failures, lasts: OPEN };
        assert_eq!(kinds(&mut engine), [opened(2)]);
        assert_eq!(kinds(&mut engine), [], "reported once");
        call(&mut engine, &up, CallResult::Failed.into(), at(30));
        assert_eq!(kinds(&mut engine), [GateChangeKind::BreakerHalfOpened, opened(3)]);
        call(&mut engine, &up, CallResult::Success.into(), at(60));
        assert_eq!(kinds(&mut engine), [GateChangeKind::BreakerHalfOpened, GateChangeKind::BreakerClosed]);
        engine.reset(&up, at(61));
        assert_eq!(kinds(&mut engine), [], "it was closed");
    }

    #[test]
    fn a_sweep_closes_a_breaker_that_was_not_probed_for_long() {
        let (mut engine, up) = engine(breaker);
        engine.record(&up, CallResult::Failed, at(0));
        engine.record(&up, CallResult::Failed, at(0));
        engine.take_gate_changes();
        engine.sweep(at(0) + OPEN);
        assert_eq!(kinds(&mut engine), []);
        engine.sweep(at(0) + OPEN + HEALTHY_AFTER);
        assert_eq!(kinds(&mut engine), [GateChangeKind::BreakerClosed]);
    }

    #[test]
    fn the_beginning_of_cooldowns_and_closures_is_reported() {
        let ladder = CooldownSpec::new(&[10, 30].map(Span::from_secs)).unwrap();
        let (mut engine, up) = engine(|gates| gates.cooldown = Some(ladder));
        engine.record(&up, CallResult::Failed, at(0));
        engine.record(&up, CallResult::Failed, at(0));
        engine.record(&up, CallResult::Failed, at(0));
        let began = |errors, secs| GateChangeKind::CooldownBegan { errors, lasts: Span::from_secs(secs) };
        assert_eq!(kinds(&mut engine), [began(1, 10), began(2, 30)], "the third prolongs nothing");
        engine.record(&up, CallResult::Success, at(1));
        assert_eq!(kinds(&mut engine), [GateChangeKind::CooldownEnded]);
        let retry_after = Some(RetryAfter { wait: Span::from_secs(5), bucket: None });
        let report = Report { retry_after, ..Report::from(CallResult::Success) };
        call(&mut engine, &up, report, at(2));
        assert_eq!(kinds(&mut engine), [GateChangeKind::Closed { lasts: Span::from_secs(5) }]);
        engine.reset(&up, at(3));
        assert_eq!(kinds(&mut engine), [GateChangeKind::Reopened]);
    }
}
