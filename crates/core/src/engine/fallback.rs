//! An engine for a process that shares limits with others and cannot reach the owner.
//!
//! It applies its share of every limit. What was free when the gates were last seen is divided too, so that all
//! fallback engines together admit no more than that; what was in use stays in use as long as it can last. Of the scoped
//! buckets, those that were not full are known, with debts and Retry-After. If they are too many to transfer, each starts
//! empty.

use std::collections::BTreeMap;

use super::Engine;
use super::buckets::{FirstBalances, SeenBuckets, TokensTaken};
use super::leases::{Lease, Use};
use super::tenant_limits::TenantHold;
use crate::gate::{GateSpecs, GateView, Gates, Pass, Reason, Share, Used};
use crate::ids::Name;
use crate::spec::Spec;
use crate::table::{BucketIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::tokens::Tokens;
use crate::views::{LaneView, UpstreamView};

/// The number of calls started, by the lane they came through, if any, and their upstream.
pub type StartCounts = BTreeMap<(Option<Name>, Name), u32>;

/// The shared state as a process last saw it.
#[derive(Debug, Clone)]
pub struct LastSeen {
    /// The process's share of every limit.
    pub share: Share,
    /// The lanes.
    pub lanes: Vec<LaneView>,
    /// The upstreams.
    pub upstreams: Vec<UpstreamView>,
    /// The scoped buckets.
    pub buckets: SeenBuckets,
    /// Calls that the process has started since then.
    pub started: StartCounts,
    /// What these calls took from scoped buckets.
    pub taken: TokensTaken,
}

impl Default for LastSeen {
    /// Nothing was ever seen.
    fn default() -> Self {
        Self {
            share: Share::WHOLE,
            lanes: Vec::new(),
            upstreams: Vec::new(),
            buckets: SeenBuckets::Never,
            started: StartCounts::new(),
            taken: TokensTaken::new(),
        }
    }
}

impl LastSeen {
    fn started(&self, which: impl Fn(&(Option<Name>, Name)) -> bool) -> u32 {
        self.started.iter().filter(|(call, _)| which(call)).map(|(_, count)| count).sum()
    }
}

impl Engine {
    /// Creates an engine that continues from what was `seen`. It issues leases of this `epoch`. Leases of other
    /// processes, which it does not know, last at most `lease`.
    pub fn fallback(spec: &Spec, seen: &LastSeen, epoch: u64, lease: Span, now: Time) -> Self {
        let mut engine = Self::new(&spec.share(seen.share));
        engine.leases.epoch = epoch;
        engine.share = Some(seen.share);
        let first = FirstBalances::of(&seen.buckets, &seen.taken, seen.share, (now, now + lease));
        engine.buckets.begin_with(first);
        for view in &seen.upstreams {
            let Some(&upstream) = engine.upstream_by_name.get(&view.name) else { continue };
            let started = seen.started(|(_, name)| *name == view.name || name.without_key() == view.name);
            let state = engine.upstream_mut(upstream);
            let Some(rule) = &state.spec else { continue };
            let used = used(rule, seen.share, &view.gates, started, now + lease);
            state.gates = Gates::of_share(rule, &view.gates, &used, now);
            for _ in 0..used.in_flight {
                // A call at a key also holds a slot of the upstream. Calls at the upstream were seen as well, so these
                // count twice while they last, which errs on the safe side.
                for index in engine.gates_at(upstream) {
                    engine.upstream_mut(index).gates.restore_call(Pass::default());
                }
                engine.lease_elsewhere(Use::Call(None), Some(upstream), Vec::new(), used.ended);
            }
        }
        for view in &seen.lanes {
            let Some(&lane) = engine.lane_by_name.get(&view.name) else { continue };
            let started = seen.started(|(name, _)| name.as_ref() == Some(&view.name));
            let state = engine.lane_mut(lane);
            state.paused = view.paused;
            let Some(rule) = &state.spec else { continue };
            let used = used(&rule.gates, seen.share, &view.gates, started, now + lease);
            state.gates = Gates::of_share(&rule.gates, &view.gates, &used, now);
            for _ in 0..used.in_flight {
                engine.lane_mut(lane).gates.restore_call(Pass::default());
                engine.lease_elsewhere(Use::Call(Some(lane)), None, Vec::new(), used.ended);
            }
        }
        engine
    }

    /// The scoped buckets that are not full, for a process that may have to continue without this engine.
    pub fn not_full_buckets(&self, now: Time) -> SeenBuckets {
        self.buckets.not_full(now)
    }

    /// Slots of a tenant that were in use when they were seen are held until those calls will have ended. For a bucket
    /// that was just created.
    pub(super) fn hold_seen_slots(&mut self, slot: BucketIx, now: Time) {
        let Some(ended) = self.buckets.seen_calls_end().filter(|ended| now < *ended) else { return };
        let state = &self.buckets[slot];
        let in_use = (state.spec.capacity() - state.bucket.balance.max(Tokens::ZERO)).max(Tokens::ZERO);
        for _ in 0..in_use.as_micro().unsigned_abs().div_ceil(Tokens::ONE.as_micro().unsigned_abs()) {
            self.buckets.hold(slot, Tokens::ONE, now);
            self.lease_elsewhere(Use::Call(None), None, vec![(slot, Tokens::ONE)], ended);
        }
    }

    fn lease_elsewhere(
        &mut self,
        used_by: Use,
        upstream: Option<UpstreamIx>,
        holds: Vec<(BucketIx, Tokens)>,
        expires: Time,
    ) {
        let id = self.leases.issue(0);
        let (pass, tenant, correlation) = (Pass::default(), TenantHold::default(), None);
        self.leases.insert(id, Lease { used_by, upstream, pass, holds, tenant, correlation, expires });
    }
}

/// What others may still use of this share, until `ended`.
fn used(rule: &GateSpecs, share: Share, seen: &[GateView], started: u32, ended: Time) -> Used {
    let slots = seen.iter().find(|gate| gate.reason == Reason::Concurrency);
    let in_flight = match (rule.slots(), slots) {
        (Some(own), Some(gate)) => own.saturating_sub(gate.free(share, started)),
        _ => 0,
    };
    Used { share, started, in_flight, ended }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::SeenBucket;
    use crate::gate::{BreakerSpec, BucketSpec, CallResult, WindowSpec};
    use crate::job::Hold;
    use crate::pattern::Patterns;
    use crate::spec::{Chain, LaneSpec, TenantLimits, UpstreamSpec};
    use crate::verbs::{Admission, Admit};

    const LEASE: Span = Span::from_secs(10);

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    /// A lane `a` and an upstream `up` with these gates.
    fn spec(lane: GateSpecs, upstream: GateSpecs) -> Spec {
        let mut rules = LaneSpec::new(name("a"), Chain::new(vec![name("up")]).unwrap());
        rules.gates = lane;
        Spec::new(vec![rules], vec![UpstreamSpec::new(name("up"), upstream)]).unwrap()
    }

    fn slots(slots: u32) -> GateSpecs {
        GateSpecs::default().with_slots("max_concurrent", slots).unwrap()
    }

    fn rate(capacity: u32, per_second: u32) -> GateSpecs {
        let mut rules = GateSpecs::default();
        rules.bucket = Some(BucketSpec::new(capacity, per_second, Span::from_secs(1)).unwrap());
        rules
    }

    fn ask() -> Admit {
        Admit {
            lane: Some(name("a")),
            tenant: None,
            chain: Vec::new(),
            holds: Vec::new(),
            correlation: None,
            lease: LEASE,
            nonce: 7,
            after: None,
            probe: true,
        }
    }

    fn admitted(engine: &mut Engine, now: Time) -> Result<crate::ids::LeaseId, Option<(Reason, Time)>> {
        match engine.admit(&ask(), now).admission {
            Admission::Granted { lease, .. } => Ok(lease),
            Admission::Denied { denial, .. } => Err(Some((denial.reason, denial.at))),
            _ => Err(None),
        }
    }

    fn count(engine: &mut Engine, now: Time) -> usize {
        (0..1_000).take_while(|_| admitted(engine, now).is_ok()).count()
    }

    /// What process `number` of `of` sees of `whole`; `started` calls are its own and not seen yet.
    fn seen(whole: &Engine, number: u32, of: u32, now: Time, started: u32) -> LastSeen {
        let started = StartCounts::from([((Some(name("a")), name("up")), started)]);
        let share = Share::new(number, of).unwrap();
        let (lanes, upstreams, buckets) =
            (whole.lanes(now), whole.upstreams(now), whole.not_full_buckets(now));
        LastSeen { share, lanes, upstreams, buckets, started, taken: TokensTaken::new() }
    }

    #[test]
    fn fallback_engines_together_admit_what_was_free_and_then_the_limit() {
        let mut window = GateSpecs::default();
        window.window = Some(WindowSpec::per_minute(20).unwrap());
        let unlimited = GateSpecs::default;
        for (rules, free, later, more) in [
            (spec(unlimited(), rate(20, 10)), 13, at(2_000), 20),
            (spec(rate(20, 10), unlimited()), 13, at(2_000), 20),
            (spec(unlimited(), window.clone()), 13, at(70_000), 20),
            (spec(window, unlimited()), 13, at(70_000), 20),
            (spec(unlimited(), slots(20)), 13, at(20_000), 20),
            (spec(slots(20), unlimited()), 13, at(20_000), 20),
        ] {
            let mut whole = Engine::new(&rules);
            assert!((0..7).all(|_| admitted(&mut whole, at(0)).is_ok()));
            let mut shares: Vec<_> = (0..3)
                .map(|number| Engine::fallback(&rules, &seen(&whole, number, 3, at(0), 0), 1, LEASE, at(0)))
                .collect();
            let first: usize = shares.iter_mut().map(|share| count(share, at(0))).sum();
            assert!((free - 3..=free).contains(&first), "{first} of {free}: {rules:?}");
            let then: usize = shares.iter_mut().map(|share| count(share, later)).sum();
            assert!((more - 3..=more).contains(&then), "{then} of {more}: {rules:?}");
        }
    }

    #[test]
    fn scoped_buckets_are_divided_too() {
        let rules = spec(GateSpecs::default(), GateSpecs::default());
        let rule = |capacity| BucketSpec::new(capacity, 10, Span::from_secs(1)).unwrap();
        let share = |number| LastSeen { share: Share::new(number, 3).unwrap(), ..LastSeen::default() };
        for (capacity, expected) in [(20, [7, 7, 6]), (2, [1, 1, 0])] {
            let counts = [0, 1, 2].map(|number| {
                let mut engine = Engine::fallback(&rules, &share(number), 1, LEASE, at(0));
                let hold = Hold::new(name("up"), "up/P//", rule(capacity), Tokens::ONE).unwrap();
                let ask = Admit { holds: vec![hold], ..ask() };
                let granted = |admission| matches!(admission, Admission::Granted { .. });
                (0..99).take_while(|_| granted(engine.admit(&ask, at(0)).admission)).count()
            });
            assert_eq!(counts, expected);
        }
    }

    /// An upstream without limits of its own, and a call that takes a token of `USER`, which holds 12 and gains one per
    /// second.
    fn scoped() -> (Spec, Admit) {
        let rule = BucketSpec::new(12, 1, Span::from_secs(1)).unwrap();
        let hold = Hold::new(name("up"), "up/USER//", rule, Tokens::ONE).unwrap();
        (spec(GateSpecs::default(), GateSpecs::default()), Admit { holds: vec![hold], ..ask() })
    }

    fn granted(engine: &mut Engine, ask: &Admit, now: Time) -> bool {
        matches!(engine.admit(ask, now).admission, Admission::Granted { .. })
    }

    fn grants(engine: &mut Engine, ask: &Admit, now: Time) -> usize {
        (0..99).take_while(|_| granted(engine, ask, now)).count()
    }

    #[test]
    fn scoped_buckets_continue_with_what_was_left_of_them() {
        let (rules, ask) = scoped();
        let mut whole = Engine::new(&rules);
        assert!((0..3).all(|_| granted(&mut whole, &ask, at(0))));
        let taken = TokensTaken::from([("up/USER//".into(), Tokens::whole(2))]);
        for (taken, expected) in [(TokensTaken::new(), 3), (taken, 1)] {
            let seen = LastSeen { taken, ..seen(&whole, 0, 3, at(0), 0) };
            let mut share = Engine::fallback(&rules, &seen, 1, LEASE, at(0));
            assert_eq!(grants(&mut share, &ask, at(0)), expected, "of the 9 that were left, in thirds");
            assert_eq!(grants(&mut share, &ask, at(3_000)), 1, "a third of the refill");
        }
        let full = seen(&Engine::new(&rules), 0, 3, at(0), 0);
        let mut share = Engine::fallback(&rules, &full, 1, LEASE, at(0));
        assert_eq!(grants(&mut share, &ask, at(0)), 4);
    }

    #[test]
    fn debts_and_retry_afters_of_scoped_buckets_are_kept_in_fallback() {
        let (rules, ask) = scoped();
        let bucket = |available, closed_until| SeenBucket {
            key: "up/USER//".into(),
            spec: BucketSpec::new(12, 1, Span::from_secs(1)).unwrap(),
            available: Tokens::from_micro(available),
            closed_until,
        };
        for (bucket, opens) in
            [(bucket(-3_000_000, Time::default()), at(6_000)), (bucket(12_000_000, at(30_000)), at(30_000))]
        {
            let buckets = SeenBuckets::NotFull(vec![bucket]);
            let seen = LastSeen { share: Share::new(0, 3).unwrap(), buckets, ..LastSeen::default() };
            let mut share = Engine::fallback(&rules, &seen, 1, LEASE, at(0));
            assert!(!granted(&mut share, &ask, Time::from_millis(opens.as_millis() - 1)));
            assert!(granted(&mut share, &ask, opens));
        }
    }

    #[test]
    fn scoped_buckets_that_are_not_known_start_empty_and_gain_a_share() {
        let (rules, ask) = scoped();
        let mut limited = rules.clone();
        limited.lanes[0].tenant_limits.concurrency = Patterns::of_all(3.try_into().unwrap());
        let seen = LastSeen {
            share: Share::new(0, 3).unwrap(),
            buckets: SeenBuckets::TooMany,
            ..LastSeen::default()
        };
        let mut share = Engine::fallback(&rules, &seen, 1, LEASE, at(0));
        assert_eq!(grants(&mut share, &ask, at(2_999)), 0);
        assert_eq!(grants(&mut share, &ask, at(9_000)), 3);
        let of_tenant = Admit { tenant: Some("acme".into()), holds: Vec::new(), ..ask };
        let mut share = Engine::fallback(&limited, &seen, 1, LEASE, at(0));
        assert_eq!(grants(&mut share, &of_tenant, at(9_999)), 0, "calls elsewhere may hold its slots");
        assert_eq!([10_000, 10_001].map(|ms| grants(&mut share, &of_tenant, at(ms))), [0, 1]);
    }

    #[test]
    fn slots_of_tenants_that_were_in_use_are_not_free_in_fallback() {
        let mut rules = spec(GateSpecs::default(), GateSpecs::default());
        rules.lanes[0].tenant_limits.concurrency = Patterns::of_all(2.try_into().unwrap());
        let ask = Admit { tenant: Some("acme".into()), ..ask() };
        let mut whole = Engine::new(&rules);
        assert!(granted(&mut whole, &ask, at(0)));
        let mut shares = [0, 1]
            .map(|number| Engine::fallback(&rules, &seen(&whole, number, 2, at(0), 0), 1, LEASE, at(0)));
        let count = |shares: &mut [Engine; 2], now| -> usize {
            shares.iter_mut().map(|share| grants(share, &ask, now)).sum()
        };
        assert!(count(&mut shares, at(0)) <= 1);
        assert_eq!(count(&mut shares, at(10_000)) + count(&mut shares, at(10_001)), 2);
    }

    #[test]
    fn limits_of_tenants_are_divided_too() {
        for (limit, expected) in [(20, [7, 7, 6]), (2, [1, 1, 0])] {
            let rate = BucketSpec::new(limit, 10, Span::from_secs(1)).unwrap();
            let by_rate = TenantLimits { rate: Patterns::of_all(rate), ..TenantLimits::default() };
            let slots = Patterns::of_all(limit.try_into().unwrap());
            let by_slots = TenantLimits { concurrency: slots, ..TenantLimits::default() };
            for limits in [by_rate, by_slots] {
                let mut rules = spec(GateSpecs::default(), GateSpecs::default());
                rules.lanes[0].tenant_limits = limits;
                let counts = [0, 1, 2].map(|number| {
                    let share = LastSeen { share: Share::new(number, 3).unwrap(), ..LastSeen::default() };
                    let mut engine = Engine::fallback(&rules, &share, 1, LEASE, at(0));
                    let ask = |tenant: &str| Admit { tenant: Some(tenant.into()), ..ask() };
                    let mut granted = |tenant| {
                        matches!(engine.admit(&ask(tenant), at(0)).admission, Admission::Granted { .. })
                    };
                    let count = (0..99).take_while(|_| granted("acme")).count();
                    assert_eq!(granted("bolt"), count > 0, "its own share");
                    count
                });
                assert_eq!(counts, expected);
            }
        }
    }

    #[test]
    fn calls_started_since_the_last_view_are_not_free_again() {
        let rules = spec(GateSpecs::default(), rate(20, 10));
        let whole = Engine::new(&rules);
        let mut share = Engine::fallback(&rules, &seen(&whole, 0, 2, at(0), 4), 1, LEASE, at(0));
        assert_eq!(count(&mut share, at(0)), 6);
    }

    #[test]
    fn a_limit_of_one_goes_to_one_process() {
        for rules in [spec(GateSpecs::default(), slots(1)), spec(GateSpecs::default(), rate(1, 1))] {
            let unseen = |number| LastSeen { share: Share::new(number, 2).unwrap(), ..LastSeen::default() };
            let counts = [0, 1].map(|number| {
                let mut share = Engine::fallback(&rules, &unseen(number), 1, LEASE, at(0));
                count(&mut share, at(0))
            });
            assert_eq!(counts, [1, 0]);
        }
    }

    #[test]
    fn closed_gates_and_paused_lanes_stay_closed_in_fallback() {
        let mut rules = rate(20, 10);
        rules.breaker = Some(BreakerSpec::new(1, Span::from_secs(30), 1).unwrap());
        let rules = spec(GateSpecs::default(), rules);
        let mut whole = Engine::new(&rules);
        whole.record(&name("up"), CallResult::Failed, at(0));
        let mut share = Engine::fallback(&rules, &seen(&whole, 0, 2, at(0), 0), 1, LEASE, at(100));
        assert_eq!(admitted(&mut share, at(100)), Err(Some((Reason::CircuitOpen, at(30_000)))));
        whole.pause(&name("a"), true, at(0));
        let mut share = Engine::fallback(&rules, &seen(&whole, 0, 2, at(0), 0), 1, LEASE, at(100));
        assert_eq!(admitted(&mut share, at(100)), Err(Some((Reason::Paused, Time::NEVER))));
    }

    #[test]
    fn leases_of_a_fallback_engine_have_their_own_epoch() {
        let rules = spec(GateSpecs::default(), GateSpecs::default());
        let mut share = Engine::fallback(&rules, &LastSeen::default(), 3, LEASE, at(0));
        let lease = admitted(&mut share, at(0)).unwrap();
        assert_eq!(lease.epoch, 3);
    }

    /// Each process has its share of every key, and all of them together admit no more than the keys do.
    #[test]
    fn keys_are_divided_too() {
        let keys = |rules: GateSpecs| {
            let plain = spec(GateSpecs::default(), GateSpecs::default());
            let key = |key: &str| UpstreamSpec::new(name("up").with_key(&name(key)), rules.clone());
            Spec::new(plain.lanes, [plain.upstreams, vec![key("a"), key("b")]].concat()).unwrap()
        };
        for rules in [keys(slots(10)), keys(rate(10, 5))] {
            let mut whole = Engine::new(&rules);
            assert!((0..7).all(|_| admitted(&mut whole, at(0)).is_ok()));
            let shares = (0..3).map(|number| seen(&whole, number, 3, at(0), 0));
            let admits = |seen| count(&mut Engine::fallback(&rules, &seen, 1, LEASE, at(0)), at(0));
            let first: usize = shares.map(admits).sum();
            assert!((7..=13).contains(&first), "{first} of 13: {rules:?}");
        }
    }
}
