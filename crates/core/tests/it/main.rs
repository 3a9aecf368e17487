//! Long random sequences of all verbs on the engine, judged by independent checkers after every step.
//!
//! More cases: `PROPTEST_CASES=10000 cargo test -p eclusa-core --test it`. Failures that were found are kept under
//! `regressions/` and tried first.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code, but only functions marked as tests are known as such"
)]

mod absence;
mod calls;
mod check;
mod eta;
mod ledger;
mod plan;
mod policies;
mod registrations;
mod regression;
mod repeats;
mod replays;
mod rules;
mod rules_changed;
mod rules_moving;
mod stirred;
mod tenant_limits;
mod world;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// So many sequences each, unless `PROPTEST_CASES` says otherwise.
const CASES: u32 = 120;

fn config(regressions: &'static str) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").is_ok();
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { default.cases } else { CASES },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
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
    fn many_who_want_the_same_are_all_served(plan in plan::caching(), ops in plan::equal_ops()) {
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
