//! Worlds with faults: the checkers find no violation. `cargo run --release -p sim -- --seeds N` runs more.

use sim::Bug;

fn clean(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let violation = sim::run(seed).violation;
        assert!(violation.is_none(), "seed {seed}: {violation:?}");
    }
}

#[test]
fn a_seed_makes_one_trace() {
    for seed in 0..20 {
        assert_eq!(sim::run(seed), sim::run(seed));
    }
    assert_ne!(sim::run(1).hash, sim::run(2).hash);
}

#[test]
fn the_first_worlds_are_clean() {
    clean(0..1_000);
}

#[test]
fn the_next_worlds_are_clean() {
    clean(1_000..2_000);
}

#[test]
fn the_worlds_made_for_bugs_are_clean_without_them() {
    for bug in Bug::ALL {
        for seed in 0..20 {
            let violation = sim::run_for(seed, bug, false).violation;
            assert!(violation.is_none(), "{bug:?}, seed {seed}: {violation:?}");
        }
    }
}
