//! Whose turn is next is what the next dispatch does.

use std::collections::VecDeque;

use eclusa_core::gate::{CallResult, GateSpecs, WindowSpec};
use eclusa_core::{
    Chain, Dispatch, Engine, Fairness, JobId, LaneSpec, LeaseId, Level, Name, NewJob, Outcome, Report,
    Settlement, Span, Spec, TenantQuery, Time, UpstreamSpec,
};

const TENANTS: [&str; 4] = ["gold-a", "b", "c", "d"];
const CHAINS: [&[&str]; 3] = [&["slow"], &["quick"], &["slow", "quick"]];

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A sequence that looks random and is the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound).unwrap()
    }
}

fn engine(fair: bool) -> Engine {
    let mut lane = LaneSpec::new(name("work"), Chain::new(vec![name("slow")]).unwrap());
    lane.fairness = fair.then(|| Fairness::new(2, vec![("gold-*".to_owned(), 2)]).unwrap());
    let upstream = |called, per_minute| {
        let mut gates = GateSpecs::default();
        gates.window = Some(WindowSpec::per_minute(per_minute).unwrap());
        UpstreamSpec::new(name(called), gates)
    };
    Engine::new(&Spec::new(vec![lane], vec![upstream("slow", 6), upstream("quick", 30)]).unwrap())
}

fn job(number: u128, dice: &mut Dice) -> NewJob {
    let chain = CHAINS[dice.below(3)].iter().map(|upstream| name(upstream)).collect();
    NewJob {
        level: Level::ALL[dice.below(3)],
        chain: Some(chain),
        ..NewJob::new(JobId(number), name("work"), TENANTS[dice.below(4)], *b"x")
    }
}

fn done(lease: LeaseId) -> Settlement {
    let report = Report::from(CallResult::Success);
    Settlement { lease, report, outcome: Outcome::Done, answer: None, unsent: None }
}

/// Runs with random jobs and checks each dispatch. Returns how many jobs were started.
fn run(seed: u64, fair: bool) -> usize {
    let (mut dice, mut engine) = (Dice(seed), engine(fair));
    let (mut ms, mut number, mut started) = (1_000_000, 0, 0);
    let mut running = VecDeque::new();
    for step in 0..400 {
        let now = Time::from_millis(ms);
        match dice.below(5) {
            0 => {
                number += 1;
                engine.enqueue(vec![job(number, &mut dice)], now);
            }
            1 => ms += dice.below(4_000) as u64,
            2 => drop(running.pop_front().map(|lease| engine.settle(vec![done(lease)], now))),
            _ => {
                let tenants = engine.tenants(&TenantQuery::new(name("work"), 100), now).tenants;
                let next: Vec<_> = tenants.into_iter().filter(|view| view.next).collect();
                let (lease, wait) = (Span::from_secs(3_600), Span::ZERO);
                let ask = Dispatch { lane: name("work"), max: 1, lease, nonce: step, wait, denied: None };
                let waiting = engine.lane_view(&name("work"), now).unwrap().queued.iter().sum::<u64>();
                let grants = engine.dispatch(&ask, now).grants;
                assert_eq!(next.len(), usize::from(waiting > 0), "seed {seed}, step {step}");
                if let Some(grant) = grants.first() {
                    assert_eq!(next[0].tenant, grant.tenant, "seed {seed}, step {step}");
                    running.push_back(grant.lease);
                    started += 1;
                }
            }
        }
    }
    started
}

#[test]
fn the_tenant_that_is_shown_as_next_is_granted_next() {
    for fair in [true, false] {
        let started: usize = (0..50).map(|seed| run(seed, fair)).sum();
        assert!(started > 2_000, "only {started} jobs were started");
    }
}
