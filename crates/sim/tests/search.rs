//! Exhaustive searches of small fleets. `ECLUSA_LONG=1` searches larger ones.

use sim::{Bounds, Bug};

/// No search of these tests has more states.
const MOST: usize = 40_000_000;

const CALM: Bounds = Bounds {
    processes: 2,
    appends: 1,
    regressions: 0,
    kills: 0,
    starts: 0,
    stops: 0,
    step_downs: 0,
    troubles: 0,
};

fn long() -> bool {
    std::env::var_os("ECLUSA_LONG").is_some()
}

fn clean(bounds: Bounds) {
    let found = sim::search(bounds, MOST, None);
    println!("{bounds:?}: {} states, {} steps", found.states, found.steps);
    if let Some((violation, trace)) = found.violation {
        panic!("{violation:?} after\n{}", trace.join("\n"));
    }
    assert!(found.complete, "there are more than {MOST} states");
}

fn finds(bounds: Bounds, bug: Bug, invariants: &[&str]) {
    let found = sim::search(bounds, MOST, Some(bug));
    let Some((violation, trace)) = found.violation else {
        panic!("{bug:?} is not found in {} states", found.states)
    };
    println!("{bug:?} after {} states: {violation:?} after\n{}", found.states, trace.join("\n"));
    assert!(invariants.contains(&violation.invariant), "{violation:?}");
}

#[test]
fn three_processes_and_one_regression() {
    clean(Bounds { processes: 3, regressions: 1, ..CALM });
}

#[test]
fn two_regressions() {
    clean(Bounds { regressions: 2, ..CALM });
    clean(Bounds { processes: 3, appends: 0, regressions: 2, ..CALM });
}

#[test]
fn three_processes_two_appends_and_two_regressions() {
    if long() {
        clean(Bounds { processes: 3, appends: 2, regressions: 2, ..CALM });
    }
}

#[test]
fn a_regression_and_a_death() {
    clean(Bounds { processes: 3, regressions: 1, kills: 1, ..CALM });
    if long() {
        clean(Bounds { regressions: 1, kills: 1, starts: 1, ..CALM });
    }
}

#[test]
fn two_regressions_and_a_death() {
    clean(Bounds { appends: 0, regressions: 2, kills: 1, ..CALM });
    if long() {
        clean(Bounds { processes: 3, appends: 0, regressions: 2, kills: 1, ..CALM });
        clean(Bounds { processes: 3, regressions: 2, kills: 1, ..CALM });
    }
}

#[test]
fn a_regression_while_a_process_or_a_message_is_slow() {
    clean(Bounds { appends: 0, regressions: 1, troubles: 1, ..CALM });
    if long() {
        clean(Bounds { regressions: 1, troubles: 1, ..CALM });
    }
}

#[test]
fn a_regression_around_a_release() {
    clean(Bounds { appends: 0, regressions: 1, stops: 1, troubles: 1, ..CALM });
    if long() {
        clean(Bounds { appends: 0, regressions: 1, step_downs: 1, troubles: 1, ..CALM });
    }
}

#[test]
fn takeovers_while_processes_or_messages_are_slow() {
    clean(Bounds { kills: 1, stops: 1, troubles: 1, ..CALM });
    clean(Bounds { kills: 1, step_downs: 1, troubles: 1, ..CALM });
    if long() {
        clean(Bounds { processes: 3, kills: 1, stops: 1, troubles: 1, ..CALM });
        clean(Bounds { kills: 1, troubles: 2, ..CALM });
    }
}

#[test]
fn an_owner_that_is_fenced_by_its_epoch_only_is_found() {
    finds(Bounds { regressions: 2, ..CALM }, Bug::FenceOnEpochOnly, &["I1", "I2"]);
}

#[test]
fn an_epoch_that_is_used_twice_is_found() {
    let bounds = Bounds { processes: 3, appends: 0, regressions: 2, kills: 1, ..CALM };
    finds(bounds, Bug::EpochStoredPlusOne, &["I9"]);
}

#[test]
fn a_run_that_is_ignored_is_found() {
    finds(Bounds { regressions: 2, ..CALM }, Bug::RunIgnored, &["I1", "I2", "I3"]);
}

#[test]
fn a_fleet_that_does_not_settle_is_found() {
    finds(Bounds { regressions: 1, troubles: 1, ..CALM }, Bug::NoSettling, &["I3"]);
}

#[test]
fn a_term_that_is_compared_before_the_run_is_found() {
    finds(Bounds { regressions: 1, kills: 1, ..CALM }, Bug::TermBeforeRun, &["I3"]);
}

#[test]
fn chunks_on_a_foreign_base_are_found() {
    let bounds = Bounds { processes: 1, appends: 2, regressions: 2, kills: 1, starts: 1, ..CALM };
    finds(bounds, Bug::TailAlwaysMatches, &["I1", "I2"]);
}

#[test]
fn an_emptied_server_that_is_taken_at_once_is_found() {
    finds(Bounds { regressions: 1, kills: 1, starts: 1, ..CALM }, Bug::EmptiedTakenAsFirst, &["I3"]);
}

#[test]
fn a_beat_that_is_not_compared_is_found() {
    finds(Bounds { troubles: 2, ..CALM }, Bug::BeatNotCompared, &["I10"]);
}
