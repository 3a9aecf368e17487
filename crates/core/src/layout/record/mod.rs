//! The layout of the journal's records.

mod gates;
mod history;
mod timeline;

use std::sync::Arc;

use self::gates::{BucketLayout, GatesLayout, PassLayout};
use self::history::{KeptGateChangeLayout, LaneMinuteLayout, RunningMinuteLayout, UpstreamMinuteLayout};
use self::timeline::EventLayout;
use super::LayoutError;
use super::alert::{AlertKeyLayout, AlertLayout};
use super::convert::{Bytes, Layout, Many, append, known, layout_enum, layout_struct, take};
use super::letters::LetterFilterLayout;
use super::question::CompletionLayout;
use super::shared::{BucketSpecLayout, LeaseIdLayout, LevelLayout, ReasonLayout, StatusLayout, TermsLayout};
use super::versions::RECORD_VERSION;
use super::view::{
    DeadLetterLayout, DropReasonLayout, FailureLayout, LastFailureLayout, LetterAgesLayout, ServedByLayout,
    TotalsLayout,
};
use crate::dead_letter::ChainState;
use crate::engine::alerts::history::{EndsAt, History, LinedUp};
use crate::engine::alerts::{AlertMeters, AlertState};
use crate::engine::bulk::{Bulk, BulkLane};
use crate::engine::codes::CodeCount;
use crate::engine::debits::Debit;
use crate::engine::record::{
    JobRecord, JobState, LaneRecord, LeaseRecord, PhaseRecord, Record, SettledRecord, TenantRecord,
    TurnsRecord, UseRecord,
};
use crate::engine::submission::Submission;
use crate::lane::{Budget, HoldCause, Holds, KeyEntry, PastHold, Tempo};
use crate::time::SteadyTime;
use crate::timeline::Event;
use crate::tokens::Tokens;

/// Appends the bytes of `record` to `chunk`.
pub(crate) fn append_record(record: &Record, chunk: &mut Vec<u8>) -> postcard::Result<()> {
    append(&RecordLayout::from_domain(record), chunk)
}

/// Calls `each` with every record of `chunk`.
pub(crate) fn read_records(chunk: &[u8], mut each: impl FnMut(Record)) -> Result<(), LayoutError> {
    let mut rest = match chunk {
        [] => return Ok(()),
        // Version 1 has some of the records of version 2, and no others.
        [1, rest @ ..] => rest,
        _ => known(RECORD_VERSION, chunk)?,
    };
    while !rest.is_empty() {
        let (record, after): (RecordLayout<'_>, _) = take(rest)?;
        each(record.into_domain()?);
        rest = after;
    }
    Ok(())
}

layout_enum!(RecordLayout<'a> = Record {
    Meta { epoch: u64, next_lease: u64, time: TimeLayout },
    Lane(lane: LaneLayout<'a>),
    Upstream { number: u32, name: &'a str, gates: GatesLayout<'a> },
    Tenant(tenant: TenantLayout<'a>),
    TenantGone { lane: u32, arrival: u64 },
    Job(job: JobLayout<'a>),
    JobState { id: u128, state: JobStateLayout<'a> },
    JobGone(id: u128),
    Lease(id: LeaseIdLayout, lease: LeaseLayout<'a>),
    LeaseGone(id: LeaseIdLayout),
    Bucket { key: &'a str, spec: BucketSpecLayout, bucket: BucketLayout },
    BucketGone(key: &'a str),
    Dead { lane: u32, number: u64, job: u128, letter: DeadLetterLayout<'a> },
    DeadGone { lane: u32, number: u64 },
    Key { lane: u32, key: &'a str, entry: KeyLayout },
    KeyGone { lane: u32, key: &'a str },
    Cache { lane: u32, key: &'a str, answer: Bytes<'a>, stored_at: u64, number: u64 },
    CacheGone { lane: u32, key: &'a str },
    LaneRules { number: u32, rules: Bytes<'a> },
    UpstreamRules { number: u32, rules: Bytes<'a> },
    Registration { process: u64, stamp: u64, about: &'a str, spec: Bytes<'a> },
    RegistrationGone(process: u64),
    Terms { family: &'a str, terms: TermsLayout<'a> },
    JobCorrelation { id: u128, correlation: u128 },
    LeaseCorrelation { id: LeaseIdLayout, correlation: u128 },
    Debit { correlation: u128, debit: DebitLayout<'a> },
    DebitGone(correlation: u128),
    HashKey(key: u128),
    DeadCorrelation { lane: u32, number: u64, correlation: u128 },
    JobSubmission { id: u128, state: JobStateLayout<'a>, submission: SubmissionLayout<'a> },
    JobCallback { id: u128, url: &'a str },
    Schedule { name: &'a str, last: u64 },
    Alert { key: AlertKeyLayout<'a>, state: AlertStateLayout },
    AlertGone(key: AlertKeyLayout<'a>),
    AlertsResolved(alerts: Vec<AlertLayout<'a>>),
    AlertMeters(meters: AlertMetersLayout),
    AlertHistory { lane: u32, history: HistoryLayout },
    Bulk(bulk: BulkLayout<'a>),
    BulkGone(id: u128),
    RedriveState { lane: u32, chain: Vec<&'a str>, state: ChainStateLayout },
    RedriveStateGone { lane: u32, chain: Vec<&'a str> },
    Code { upstream: u32, code: &'a str, count: CodeLayout },
    CodeGone { upstream: u32, code: &'a str },
    LaneMinute { lane: Option<u32>, point: LaneMinuteLayout },
    UpstreamMinute { upstream: u32, point: UpstreamMinuteLayout },
    GateChange { upstream: u32, number: u64, change: KeptGateChangeLayout },
    RunningMinute(running: RunningMinuteLayout),
    LaneHolds { lane: u32, holds: HoldsLayout },
    UpstreamFailure { upstream: u32, failure: LastFailureLayout<'a> },
});

layout_struct!(DebitLayout<'a> = Debit {
    at: u64,
    until: u64,
    buckets: Vec<&'a str>,
    credited: Vec<&'a str>,
});

layout_struct!(
    AlertStateLayout = AlertState {
        value_micros: u64,
        threshold_micros: u64,
        since: u64,
        firing: bool,
        over_since: Option<u64>,
    }
);

layout_struct!(
    AlertMetersLayout = AlertMeters {
        rejected: Option<u64>,
        rejected_at: Option<u64>,
        newly_rejected: u64,
        lost_at: Option<u64>,
    }
);

layout_struct!(HistoryLayout = History { ends: Vec<EndsAtLayout>, marks: Vec<LinedUpLayout> });
layout_struct!(EndsAtLayout = EndsAt { at: u64, ended: u64, dead: u64 });
layout_struct!(LinedUpLayout = LinedUp { at: u64, next_seq: u64 });
layout_struct!(CodeLayout = CodeCount { seen: u64, cured: u64, failed_again: u64 });

layout_struct!(TimeLayout = SteadyTime { last: u64, ahead_ms: i64 });

layout_struct!(LaneLayout<'a> = LaneRecord {
    number: u32,
    name: &'a str,
    paused: bool,
    next_seq: u64,
    turns: [TurnsLayout; 3],
    gates: GatesLayout<'a>,
    totals: TotalsLayout,
    tempo: TempoLayout,
    budget: Option<BudgetLayout>,
    letter_ages: LetterAgesLayout,
});

layout_struct!(HoldsLayout = Holds { newest: Option<PastHoldLayout>, before: Option<PastHoldLayout> });

layout_struct!(HoldCauseLayout = HoldCause { reason: ReasonLayout, upstream: Option<u32> });

layout_struct!(PastHoldLayout = PastHold { cause: HoldCauseLayout, since: u64, until: Option<u64> });

layout_struct!(TurnsLayout = TurnsRecord { turn: i64, current: Option<u64>, in_a_row: u32 });

layout_struct!(BudgetLayout = Budget {
    min: Option<BucketLayout>,
    began: u64,
    firsts: (u64, u64),
    retries: (u64, u64),
});

layout_struct!(TempoLayout = Tempo { last_grant: u64, interval_us: u64 });

layout_struct!(TenantLayout<'a> = TenantRecord {
    lane: u32,
    arrival: u64,
    name: &'a str,
    levels: [(Option<i64>, Option<(i64, u64)>); 3],
    processed: u64,
    last_processed: Option<u64>,
});

layout_struct!(JobLayout<'a> = JobRecord {
    id: u128,
    lane: u32,
    tenant: u64,
    level: LevelLayout,
    created_at: u64,
    expires_at: u64,
    chain: Many<'a, u32, u32>,
    holds: Many<'a, (u32, Arc<str>, Tokens), (u32, &'a str, i64)>,
    key: Option<&'a str>,
    cache_key: Option<&'a str>,
    replay_of: Option<u128>,
    payload: Bytes<'a>,
    state: JobStateLayout<'a>,
    submission: StoredApart,
    callback: StoredApart,
    waited_until: Option<u64>,
});

layout_struct!(BulkLayout<'a> = Bulk {
    id: u128,
    filter: LetterFilterLayout<'a>,
    began: u64,
    ended: Option<u64>,
    stopped: bool,
    total: u64,
    replayed: u64,
    failed: u64,
    lanes: Vec<BulkLaneLayout>,
});

layout_struct!(BulkLaneLayout = BulkLane { lane: u32, counted: u64, at: u64, end: u64, running: u64 });

layout_struct!(ChainStateLayout = ChainState { held_until: u64, proven: bool });

layout_struct!(SubmissionLayout<'a> = Submission {
    external: Option<&'a str>,
    next: bool,
    poll: Option<(u64, u64)>,
    early: Option<CompletionLayout<'a>>,
    messages: Vec<u64>,
});

/// The place of a field that has a separate record; takes no bytes.
#[derive(serde::Serialize, serde::Deserialize)]
struct StoredApart;

impl<T> Layout<'_, Option<T>> for StoredApart {
    fn from_domain(_: &Option<T>) -> Self {
        Self
    }

    fn into_domain(self) -> Result<Option<T>, LayoutError> {
        Ok(None)
    }
}

layout_struct!(JobStateLayout<'a> = JobState {
    seq: u64,
    phase: PhaseLayout<'a>,
    tried: u32,
    attempts: u32,
    lost: u8,
    upstream: Option<u32>,
    failure: Option<FailureLayout<'a>>,
    result: Option<Bytes<'a>>,
    timeline: Many<'a, Event<u32>, EventLayout<'a>>,
    settled: Option<(LeaseIdLayout, SettledLayout)>,
});

layout_enum!(PhaseLayout<'a> = PhaseRecord {
    Pending { due: u64 },
    Queued,
    Coalesced,
    Processing(id: LeaseIdLayout, lease: LeaseLayout<'a>),
    Finished {
        at: u64,
        number: u64,
        status: StatusLayout,
        dropped: Option<DropReasonLayout>,
        served: Option<ServedByLayout>
    },
});

layout_enum!(
    SettledLayout = SettledRecord {
        Ended(status: StatusLayout),
        RetryAt(at: u64),
        Requeued,
        Awaiting(lease: LeaseIdLayout),
    }
);

layout_struct!(LeaseLayout<'a> = LeaseRecord {
    used_by: UseLayout,
    lane: Option<u32>,
    upstream: Option<u32>,
    pass: PassLayout,
    holds: Many<'a, (Arc<str>, Tokens), (&'a str, i64)>,
    expires: u64,
    tenant_rate: Option<&'a str>,
    tenant_slot: Option<&'a str>,
});

layout_enum!(UseLayout = UseRecord { Job, Awaiting, Call, LaterCall });

layout_struct!(KeyLayout = KeyEntry { job: u128, fingerprint: u64, expires: u64 });
