//! Bugs that are planted in the model of the server, the toy engine or the driver, to check that the checkers find
//! them.

use eclusa_fleet::Ack;

use crate::config::{Config, Fault};

/// A bug. The correct behaviour is described where it is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The server fences appends only by their epoch.
    FenceOnEpochOnly,
    /// The server checks the term before the run.
    TermBeforeRun,
    /// The server's new epoch is the stored one plus one.
    EpochStoredPlusOne,
    /// Neither looks nor appends know the run of the server.
    RunIgnored,
    /// Looks do not show that the run has changed, so only the owner settles.
    NoSettling,
    /// The driver adds to a chunk before it repeats it.
    ChunkChangedBeforeRepeat,
    /// The driver publishes answers of reads at once.
    ReadsNotFenced,
    /// The driver subscribes to a term after it was taken.
    SubscribeAfterTake,
    /// The server does not compare the beat when a term is taken.
    BeatNotCompared,
    /// The driver does not renew the term while it reads the journal.
    NoRenewalWhileLoading,
    /// The loader accepts snapshots without an end.
    UnfinishedSnapshotRead,
    /// The driver says that the last chunk of the journal is the process's own.
    TailAlwaysMatches,
    /// The engine builds lease ids from the highest epoch that it has read.
    LeaseEpochFromRestore,
    /// Answers are sent with the append, although they must be on disk.
    AnswersBeforeSync,
    /// Answers are sent with the append, although a replica must have them.
    AnswersBeforeReplication,
    /// The engine accepts a job that it has already.
    JobAcceptedAgain,
    /// The owner forgets which dispatches it has answered.
    DispatchGrantedTwice,
    /// The owner runs questions that were asked of another term.
    LateQuestionAccepted,
    /// The owner runs questions that are older than what their asker has acknowledged.
    OldSequenceAccepted,
    /// The driver treats "try again" as "superseded".
    ReadonlyIsFenced,
    /// The engine follows the rules that were registered last.
    AgeByRegistrationOrder,
    /// Nobody looks at the owner unless a question is asked.
    IdleDeathUnnoticed,
    /// Every asker may send as much as all of them.
    WindowWithoutSum,
    /// The owner does not wait until an asker has received its answers.
    AnswersWithoutBound,
    /// The owner trims chunks whose live records it did not append again.
    TrimTooFar,
    /// An emptied server looks like one that never had a term.
    EmptiedTakenAsFirst,
    /// The engine does not restore its time from the chunks.
    TimeRunsBack,
    /// The owner waits for a replica on a connection that has written nothing.
    ConfirmOnAnotherConnection,
    /// A claim counts for as long as anybody renews one.
    ClaimNeverEnds,
    /// An owner that has lost its term repeats in its next one what it answered then.
    AnswersOfLostTenureKept,
    /// An owner that nobody can reach believes that no other process is connected, and stays the owner.
    DeafOwnerStays,
}

impl Bug {
    /// Configures a world in which this bug shows: some need combinations of faults that are rare.
    pub(crate) fn focus(self, cfg: &mut Config) {
        match self {
            Bug::UnfinishedSnapshotRead => {
                cfg.faults = vec![Fault::FlushAll, Fault::FailOver];
                (cfg.chunk_bytes, cfg.strikes, cfg.latency_ms) = (2_500_000, 100, 20);
            }
            Bug::TailAlwaysMatches => {
                cfg.faults = vec![Fault::Kill, Fault::Pause, Fault::FailOver, Fault::FailBack];
                (cfg.lag_ms, cfg.fault_ms, cfg.chunk_bytes, cfg.ask_ms) = (2_000, 4_000, 300_000, 100);
            }
            Bug::LateQuestionAccepted => {
                cfg.faults = vec![Fault::CutOwner, Fault::Pause];
                (cfg.late, cfg.processes, cfg.ask_ms, cfg.fault_ms) = (150, 3, 100, 1_500);
            }
            Bug::BeatNotCompared => {
                cfg.faults = vec![Fault::CutOwner, Fault::Pause];
                (cfg.latency_ms, cfg.ask_ms, cfg.fault_ms) = (50, 800, 500);
            }
            Bug::TermBeforeRun => {
                cfg.faults = vec![Fault::Kill, Fault::FailOver];
                cfg.lag_ms = 2_000;
            }
            Bug::NoRenewalWhileLoading => {
                cfg.faults = vec![Fault::Kill];
                (cfg.page, cfg.page_ms) = (2, 900);
            }
            Bug::WindowWithoutSum => {
                cfg.faults = vec![Fault::Pause];
                (cfg.large, cfg.ask_ms, cfg.processes) = (95, 100, 4);
            }
            Bug::AnswersWithoutBound => {
                cfg.faults = vec![Fault::Pause];
                (cfg.long, cfg.ask_ms) = (95, 100);
            }
            Bug::AnswersBeforeSync => cfg.ack = Ack::Fsync,
            Bug::AnswersBeforeReplication => cfg.ack = Ack::Replicate,
            Bug::EmptiedTakenAsFirst => cfg.faults = vec![Fault::FlushAll, Fault::RestartEmpty],
            Bug::ConfirmOnAnotherConnection => {
                cfg.faults = vec![Fault::CutOwner, Fault::Cut];
                (cfg.ack, cfg.lag_ms, cfg.fault_ms) = (Ack::Replicate, 2_000, 500);
            }
            Bug::ClaimNeverEnds => {
                cfg.faults = vec![Fault::Kill, Fault::FailOver, Fault::FlushAll];
                cfg.strikes = 100;
            }
            Bug::AnswersOfLostTenureKept => {
                cfg.faults = vec![Fault::CutOwner, Fault::Pause];
                (cfg.processes, cfg.loss, cfg.ask_ms, cfg.fault_ms) = (3, 15, 100, 1_500);
            }
            Bug::DeafOwnerStays => {
                cfg.faults = vec![Fault::Deafen];
                cfg.ask_ms = 100;
            }
            Bug::TimeRunsBack => cfg.faults = vec![Fault::Kill, Fault::FailOver],
            Bug::NoSettling | Bug::RunIgnored => {
                cfg.faults = vec![Fault::FailOver, Fault::RestartOld];
                cfg.lag_ms = 2_000;
            }
            _ => {}
        }
    }

    /// Every bug.
    pub const ALL: [Bug; 31] = [
        Bug::FenceOnEpochOnly,
        Bug::TermBeforeRun,
        Bug::EpochStoredPlusOne,
        Bug::RunIgnored,
        Bug::NoSettling,
        Bug::ChunkChangedBeforeRepeat,
        Bug::ReadsNotFenced,
        Bug::SubscribeAfterTake,
        Bug::BeatNotCompared,
        Bug::NoRenewalWhileLoading,
        Bug::UnfinishedSnapshotRead,
        Bug::TailAlwaysMatches,
        Bug::LeaseEpochFromRestore,
        Bug::AnswersBeforeSync,
        Bug::AnswersBeforeReplication,
        Bug::JobAcceptedAgain,
        Bug::DispatchGrantedTwice,
        Bug::LateQuestionAccepted,
        Bug::OldSequenceAccepted,
        Bug::ReadonlyIsFenced,
        Bug::AgeByRegistrationOrder,
        Bug::IdleDeathUnnoticed,
        Bug::WindowWithoutSum,
        Bug::AnswersWithoutBound,
        Bug::TrimTooFar,
        Bug::EmptiedTakenAsFirst,
        Bug::TimeRunsBack,
        Bug::ConfirmOnAnotherConnection,
        Bug::ClaimNeverEnds,
        Bug::AnswersOfLostTenureKept,
        Bug::DeafOwnerStays,
    ];
}
