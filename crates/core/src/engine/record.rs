//! What the journal holds: the complete state of each thing under its identity. The newest record of a thing is all
//! there is to know about it, regardless of the rules in force when it was written. `layout/record` defines the bytes.

use std::sync::Arc;

use super::alerts::history::History;
use super::alerts::{AlertMeters, AlertState};
use super::bulk::Bulk;
use super::codes::CodeCount;
use super::debits::Debit;
use super::history::{KeptGateChange, LaneMinute, RunningMinute, UpstreamMinute};
use super::submission::Submission;
use crate::alert::{Alert, AlertKey};
use crate::charge::Terms;
use crate::dead_letter::{ChainState, DeadLetter, LetterAges};
use crate::ended::ServedBy;
use crate::gate::{Bucket, BucketSpec, Gates, Pass};
use crate::ids::{JobId, LeaseId, Name};
use crate::job::{DropReason, Failure, Level, Payload, Status};
use crate::lane::{Budget, Holds, KeyEntry, Tempo, Totals, TurnPlace};
use crate::policy::{Correlation, HashKey};
use crate::time::{SteadyTime, Time};
use crate::timeline::Event;
use crate::tokens::Tokens;
use crate::views::LastFailure;

/// Refers to lanes and upstreams by number; numbers never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Meta {
        epoch: u64,
        next_lease: u64,
        time: SteadyTime,
    },
    Lane(Box<LaneRecord>),
    Upstream {
        number: u32,
        name: Name,
        gates: Gates,
    },
    Tenant(TenantRecord),
    TenantGone {
        lane: u32,
        arrival: u64,
    },
    Job(Box<JobRecord>),
    JobState {
        id: JobId,
        state: Box<JobState>,
    },
    JobGone(JobId),
    Lease(LeaseId, LeaseRecord),
    LeaseGone(LeaseId),
    Bucket {
        key: Arc<str>,
        spec: BucketSpec,
        bucket: Bucket,
    },
    BucketGone(Arc<str>),
    Dead {
        lane: u32,
        number: u64,
        job: JobId,
        letter: Box<DeadLetter>,
    },
    DeadGone {
        lane: u32,
        number: u64,
    },
    Key {
        lane: u32,
        key: Arc<str>,
        entry: KeyEntry,
    },
    KeyGone {
        lane: u32,
        key: Arc<str>,
    },
    Cache {
        lane: u32,
        key: Arc<str>,
        answer: Payload,
        stored_at: Time,
        number: u64,
    },
    CacheGone {
        lane: u32,
        key: Arc<str>,
    },
    /// The last rules of a lane.
    LaneRules {
        number: u32,
        rules: Payload,
    },
    /// The last rules of an upstream.
    UpstreamRules {
        number: u32,
        rules: Payload,
    },
    Registration {
        process: u64,
        stamp: u64,
        about: Arc<str>,
        spec: Payload,
    },
    RegistrationGone(u64),
    /// The terms of all buckets whose key starts with `family`.
    Terms {
        family: Arc<str>,
        terms: Arc<Terms>,
    },
    /// Written with the job but as a separate record, so that the layout of a job's record is still that of version 1.
    JobCorrelation {
        id: JobId,
        correlation: Correlation,
    },
    /// The same for a lease without a job.
    LeaseCorrelation {
        id: LeaseId,
        correlation: Correlation,
    },
    Debit {
        correlation: Correlation,
        debit: Debit,
    },
    DebitGone(Correlation),
    HashKey(HashKey),
    /// Written with the dead letter, as a separate record.
    DeadCorrelation {
        lane: u32,
        number: u64,
        correlation: Correlation,
    },
    /// The state of a job that an async upstream has accepted.
    JobSubmission {
        id: JobId,
        state: Box<JobState>,
        submission: Box<Submission>,
    },
    /// Written after the job.
    JobCallback {
        id: JobId,
        url: Arc<str>,
    },
    /// The last scheduled time that was fired.
    Schedule {
        name: Name,
        last: Time,
    },
    /// A condition that holds, whether or not its alert fires yet.
    Alert {
        key: Box<AlertKey>,
        state: AlertState,
    },
    AlertGone(Box<AlertKey>),
    /// The most recently resolved alerts.
    AlertsResolved(Vec<Alert>),
    AlertMeters(AlertMeters),
    AlertHistory {
        lane: u32,
        history: History,
    },
    /// A replay of many dead letters.
    Bulk(Box<Bulk>),
    BulkGone(JobId),
    /// The redrive state of a chain of a lane.
    RedriveState {
        lane: u32,
        chain: Vec<Name>,
        state: ChainState,
    },
    RedriveStateGone {
        lane: u32,
        chain: Vec<Name>,
    },
    /// How retries of calls that failed with a code ended, per upstream.
    Code {
        upstream: u32,
        code: Arc<str>,
        count: CodeCount,
    },
    CodeGone {
        upstream: u32,
        code: Arc<str>,
    },
    /// A finished minute of a lane, or of all lanes (`None`). It takes the place of the one a day before.
    LaneMinute {
        lane: Option<u32>,
        point: LaneMinute,
    },
    /// A finished minute of an upstream. It takes the place of the one a day before.
    UpstreamMinute {
        upstream: u32,
        point: UpstreamMinute,
    },
    /// A transition of a gate. It takes the place of the one `MAX_TRANSITIONS` before.
    GateChange {
        upstream: u32,
        number: u64,
        change: KeptGateChange,
    },
    RunningMinute(RunningMinute),
    /// What holds a lane and what last held it.
    LaneHolds {
        lane: u32,
        holds: Holds,
    },
    /// The last call to an upstream that failed.
    UpstreamFailure {
        upstream: u32,
        failure: LastFailure,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneRecord {
    pub(crate) number: u32,
    pub(crate) name: Name,
    pub(crate) paused: bool,
    pub(crate) next_seq: u64,
    pub(crate) turns: [TurnsRecord; 3],
    pub(crate) gates: Gates,
    pub(crate) totals: Totals,
    pub(crate) tempo: Tempo,
    pub(crate) budget: Option<Box<Budget>>,
    pub(crate) letter_ages: LetterAges,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnsRecord {
    pub(crate) turn: i64,
    /// The tenant's arrival number.
    pub(crate) current: Option<u64>,
    pub(crate) in_a_row: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TenantRecord {
    pub(crate) lane: u32,
    pub(crate) arrival: u64,
    pub(crate) name: Arc<str>,
    pub(crate) levels: [(Option<i64>, Option<TurnPlace>); 3],
    pub(crate) processed: u64,
    pub(crate) last_processed: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobRecord {
    pub(crate) id: JobId,
    pub(crate) lane: u32,
    /// The tenant's arrival number.
    pub(crate) tenant: u64,
    pub(crate) level: Level,
    pub(crate) created_at: Time,
    pub(crate) expires_at: Time,
    pub(crate) chain: Vec<u32>,
    pub(crate) holds: Vec<(u32, Arc<str>, Tokens)>,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) cache_key: Option<Arc<str>>,
    pub(crate) replay_of: Option<JobId>,
    pub(crate) payload: Payload,
    pub(crate) state: JobState,
    /// A separate record: [`Record::JobSubmission`].
    pub(crate) submission: Option<Box<Submission>>,
    /// A separate record: [`Record::JobCallback`].
    pub(crate) callback: Option<Arc<str>>,
    pub(crate) waited_until: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobState {
    pub(crate) seq: u64,
    pub(crate) phase: PhaseRecord,
    pub(crate) tried: u32,
    pub(crate) attempts: u32,
    pub(crate) lost: u8,
    pub(crate) upstream: Option<u32>,
    pub(crate) failure: Option<Failure>,
    pub(crate) result: Option<Payload>,
    pub(crate) timeline: Vec<Event<u32>>,
    pub(crate) settled: Option<(LeaseId, SettledRecord)>,
}

/// The result of a job's last settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettledRecord {
    Ended(Status),
    RetryAt(Time),
    Requeued,
    Awaiting(LeaseId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PhaseRecord {
    Pending { due: Time },
    Queued,
    Coalesced,
    Processing(LeaseId, LeaseRecord),
    Finished { at: Time, number: u64, status: Status, dropped: Option<DropReason>, served: Option<ServedBy> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    pub(crate) used_by: UseRecord,
    /// The lane whose slot it holds.
    pub(crate) lane: Option<u32>,
    pub(crate) upstream: Option<u32>,
    pub(crate) pass: Pass,
    pub(crate) holds: Vec<(Arc<str>, Tokens)>,
    pub(crate) expires: Time,
    /// Buckets of its tenant's limits: rate and slots.
    pub(crate) tenant_rate: Option<Arc<str>>,
    pub(crate) tenant_slot: Option<Arc<str>>,
}

/// The job is the one whose record contains the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UseRecord {
    Job,
    Awaiting,
    Call,
    LaterCall,
}
