//! Long random sequences of all verbs on the engine, checked by independent checkers after every step.
//!
//! The cases are the same on every run. Other and more cases:
//! `PROPTEST_RNG_SEED=7 PROPTEST_CASES=10000 cargo nextest run -p eclusa-core`. Known failures are kept under
//! `regressions/` and tried first; a new one is printed and not written to a file.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code, but only functions marked as tests are known as such"
)]

mod calls;
mod check;
mod eta;
mod fallback;
mod holds;
mod ledger;
mod plan;
mod policies;
mod ready_lanes;
mod registrations;
mod regression;
mod repeats;
mod replays;
mod rules;
mod rules_changed;
mod rules_moving;
mod tenant_limits;
mod turns;
mod world;

use std::any::Any;
use std::fmt;

use proptest::prelude::*;
use proptest::test_runner::{FailurePersistence, FileFailurePersistence, PersistedSeed, RngSeed};

/// The number of sequences per test, unless `PROPTEST_CASES` is set.
const CASES: u32 = 120;

/// The seed when a test runs without cargo, which sets `PROPTEST_RNG_SEED` (`.cargo/config.toml`).
const SEED: RngSeed = RngSeed::Fixed(20_261_101);

/// A file with seeds of cases that failed once. It is read and never written.
#[derive(Debug, Clone, PartialEq)]
struct Regressions(&'static str);

impl FailurePersistence for Regressions {
    fn load_persisted_failures2(&self, source_file: Option<&'static str>) -> Vec<PersistedSeed> {
        FileFailurePersistence::Direct(self.0).load_persisted_failures2(source_file)
    }

    fn save_persisted_failure2(
        &mut self,
        _: Option<&'static str>,
        seed: PersistedSeed,
        shrunken: &dyn fmt::Debug,
    ) {
        eprintln!(
            "To try this case first on every run, add to {}:\ncc {seed} # shrinks to {shrunken:?}",
            self.0
        );
    }

    fn box_clone(&self) -> Box<dyn FailurePersistence> {
        Box::new(self.clone())
    }

    fn eq(&self, other: &dyn FailurePersistence) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn kept_failures_are_read_and_new_ones_are_not_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/regressions/open.txt");
    let before = std::fs::read_to_string(path).unwrap();
    let mut kept = Regressions(path);
    let seeds = kept.load_persisted_failures2(None);
    assert_eq!(seeds.len(), before.lines().filter(|line| line.starts_with("cc ")).count());
    kept.save_persisted_failure2(None, seeds[0].clone(), &"a value");
    assert_eq!(std::fs::read_to_string(path).unwrap(), before);
    assert!(matches!(config(path).rng_seed, RngSeed::Fixed(_)), "every run draws other cases");
    let plain = ProptestConfig::default();
    let fixed = matches!(plain.rng_seed, RngSeed::Fixed(_)) && plain.failure_persistence.is_none();
    assert!(fixed, "`.cargo/config.toml` is not in force: run this with cargo, inside the repository");
}

fn config(regressions: &'static str) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").is_ok();
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { default.cases } else { CASES },
        failure_persistence: Some(Box::new(Regressions(regressions))),
        rng_seed: match default.rng_seed {
            RngSeed::Random => SEED,
            given @ RngSeed::Fixed(_) => given,
        },
        max_shrink_iters: 4_000,
        ..default
    }
}

proptest! {
    #![proptest_config(config(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/regressions/gated.txt")))]

    #[test]
    fn every_guarantee_holds_at_every_step(plan in plan::gated(), ops in plan::ops()) {
        world::play(&plan, &ops, false).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(config(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/regressions/open.txt")))]

    #[test]
    fn without_gates_the_order_is_exact(plan in plan::open(), ops in plan::ops()) {
        world::play(&plan, &ops, true).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(config(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/regressions/caching.txt")))]

    #[test]
    fn many_equal_jobs_are_all_served(plan in plan::caching(), ops in plan::equal_ops()) {
        world::play(&plan, &ops, false).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(config(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/regressions/moving.txt")))]

    #[test]
    fn rules_change_in_place_as_over_a_restart(
        plans in proptest::collection::vec(plan::gated(), 3),
        moves in rules_moving::moves(),
    ) {
        rules_moving::play(&plans, &moves).map_err(TestCaseError::fail)?;
    }
}
