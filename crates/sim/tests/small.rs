//! Small worlds with every placement of two faults: the first at one of the commands around the first appends.

use std::ops::Range;

use eclusa_fleet::Ack;
use sim::Bug;

const FIRST: Range<u64> = 17..23;
const LATER: u64 = 24;

fn searched(ack: Ack) {
    let searched = sim::search(ack, FIRST, LATER, None);
    assert!(searched.violation.is_none(), "{:?}", searched.violation);
    assert_eq!(searched.worlds, (FIRST.end - FIRST.start) * 4 * LATER * 7);
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
fn the_search_finds_a_fleet_that_does_not_settle() {
    for bug in [Bug::NoSettling, Bug::RunIgnored, Bug::TermBeforeRun, Bug::EpochStoredPlusOne] {
        let searched = sim::search(Ack::Write, FIRST, LATER, Some(bug));
        assert!(searched.violation.is_some(), "{bug:?}");
    }
}
