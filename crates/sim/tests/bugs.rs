//! Every planted bug is caught.

use sim::Bug;

/// A bug must show in this many worlds that are made for it.
const WORLDS: u64 = 400;

fn caught(bug: Bug) {
    let found = (0..WORLDS).any(|seed| sim::run_for(seed, bug, true).violation.is_some());
    assert!(found, "{bug:?} is not caught in {WORLDS} worlds");
}

macro_rules! bugs {
    ($($test:ident: $bug:ident,)*) => {
        $(#[test]
        fn $test() {
            caught(Bug::$bug);
        })*

        #[test]
        fn every_bug_has_a_test() {
            assert_eq!(Bug::ALL, [$(Bug::$bug),*]);
        }
    };
}

bugs! {
    fence_on_epoch_only: FenceOnEpochOnly,
    term_before_run: TermBeforeRun,
    epoch_stored_plus_one: EpochStoredPlusOne,
    run_ignored: RunIgnored,
    no_settling: NoSettling,
    chunk_changed_before_repeat: ChunkChangedBeforeRepeat,
    reads_not_fenced: ReadsNotFenced,
    subscribe_after_take: SubscribeAfterTake,
    beat_not_compared: BeatNotCompared,
    no_renewal_while_loading: NoRenewalWhileLoading,
    unfinished_snapshot_read: UnfinishedSnapshotRead,
    tail_always_matches: TailAlwaysMatches,
    lease_epoch_from_restore: LeaseEpochFromRestore,
    answers_before_sync: AnswersBeforeSync,
    answers_before_replication: AnswersBeforeReplication,
    job_accepted_again: JobAcceptedAgain,
    dispatch_granted_twice: DispatchGrantedTwice,
    late_question_accepted: LateQuestionAccepted,
    old_sequence_accepted: OldSequenceAccepted,
    readonly_is_fenced: ReadonlyIsFenced,
    age_by_registration_order: AgeByRegistrationOrder,
    idle_death_unnoticed: IdleDeathUnnoticed,
    window_without_sum: WindowWithoutSum,
    answers_without_bound: AnswersWithoutBound,
    trim_too_far: TrimTooFar,
    emptied_taken_as_first: EmptiedTakenAsFirst,
    time_runs_back: TimeRunsBack,
    confirm_on_another_connection: ConfirmOnAnotherConnection,
    claim_never_ends: ClaimNeverEnds,
    answers_of_lost_tenure_kept: AnswersOfLostTenureKept,
    deaf_owner_stays: DeafOwnerStays,
}
