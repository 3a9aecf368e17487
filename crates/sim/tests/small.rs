//! Small worlds with every placement of two faults: the first at one of the commands around the first appends.

use std::ops::Range;

use eclusa_fleet::Ack;
use sim::Bug;

const FIRST: Range<u64> = 17..23;
const LATER: u64 = 24;

fn searched(ack: Ack) {
    let placed = sim::place_faults(ack, FIRST, LATER, None);
    assert!(placed.violation.is_none(), "{:?}", placed.violation);
    assert_eq!(placed.worlds, (FIRST.end - FIRST.start) * 4 * LATER * 8);
}

#[test]
fn no_two_faults_break_a_small_world_with_ack_write() {
    searched(Ack::Write);
}

#[test]
fn no_two_faults_break_a_small_world_with_ack_replicate() {
    searched(Ack::Replicate);
}

#[test]
fn placed_faults_find_a_fleet_that_does_not_settle() {
    for bug in
        [Bug::NoSettling, Bug::RunIgnored, Bug::TermBeforeRun, Bug::EpochStoredPlusOne, Bug::ClaimNeverEnds]
    {
        let placed = sim::place_faults(Ack::Write, FIRST, LATER, Some(bug));
        assert!(placed.violation.is_some(), "{bug:?}");
    }
}
