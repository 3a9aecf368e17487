//! Questions: what a process asks the owner of the store.

use super::LayoutError;
use super::alert::ConditionLayout;
use super::convert::{Bytes, Layout, decode, encode, layout_enum, layout_struct};
use super::letters::{BulkAskLayout, CountLettersLayout, LetterQueryLayout, ReplayLayout};
use super::shared::{
    BucketIdLayout, BucketSpecLayout, DeniedLayout, HoldLayout, JobCursorLayout, LeaseIdLayout, LevelLayout,
    ObserveCursorLayout, StatusLayout,
};
use crate::alert::{AlertLimits, DeadLetterRate, Evaluation, Watch};
use crate::engine::{BucketOf, FallbackCall, FallbackLog, FallbackReport, ProcessId};
use crate::gate::CallResult;
use crate::ids::{JobId, LeaseId, Name};
use crate::job::{CallFailure, NewJob};
use crate::policy::HashKey;
use crate::time::Span;
use crate::verbs::{
    Admit, Advance, BulkAsk, CancelAll, Completion, Correction, CountLetters, Credit, Dispatch, Fire,
    HistoryOf, HistoryQuery, LetterQuery, Observe, Outcome, Poll, Polling, Replay, Report, RetryAfter,
    Settlement, Usage, Wait,
};
use crate::views::{BucketQuery, JobQuery, TenantQuery};

/// The version of the layouts in this file.
const VERSION: u8 = 1;

/// A verb of the [`Store`](crate::Store) with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named and documented as in the trait")]
pub enum Question {
    Enqueue(Vec<NewJob>),
    Dispatch(Dispatch),
    Advance(Advance),
    Extend { leases: Vec<LeaseId>, lease: Span },
    Settle(Vec<Settlement>),
    Cancel(JobId),
    Admit(Admit),
    Record { upstream: Name, result: CallResult },
    Recover(Name),
    Reset(Name),
    Replay(Replay),
    Discard { lane: Name, letter: JobId },
    Pause { lane: Name, paused: bool },
    Sweep,
    Why(JobId),
    Job(JobId),
    Jobs(JobQuery),
    Lanes,
    Upstreams,
    Tenants(TenantQuery),
    DeadLetter(JobId),
    DeadLetters(LetterQuery),
    Wait(Wait),
    CatchUp(FallbackLog),
    Fleet,
    Leave(ProcessId),
    Credit(Vec<Credit>),
    Correct(Vec<Correction>),
    HashKey(HashKey),
    Buckets(BucketQuery),
    Complete(Completion),
    Poll(Poll),
    CancelAll(CancelAll),
    Fire(Fire),
    Schedules,
    Watch(Watch),
    Alerts,
    CountLetters(CountLetters),
    DiscardAll(LetterQuery),
    Bulk(BulkAsk),
    Codes(Name),
    Observe(Observe),
    History(HistoryQuery),
    NotFull,
}

impl Question {
    /// Appends its bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(VERSION, &QuestionLayout::from_domain(self), out);
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        decode::<QuestionLayout<'_>>(VERSION, bytes)?.into_domain()
    }
}

layout_enum!(QuestionLayout<'a> = Question {
    Enqueue(jobs: Vec<NewJobLayout<'a>>),
    Dispatch(ask: DispatchLayout<'a>),
    Advance(ask: AdvanceLayout<'a>),
    Extend { leases: Vec<LeaseIdLayout>, lease: u64 },
    Settle(settlements: Vec<SettlementLayout<'a>>),
    Cancel(job: u128),
    Admit(ask: AdmitLayout<'a>),
    Record { upstream: &'a str, result: CallResultLayout },
    Recover(upstream: &'a str),
    Reset(upstream: &'a str),
    Replay(ask: ReplayLayout<'a>),
    Discard { lane: &'a str, letter: u128 },
    Pause { lane: &'a str, paused: bool },
    Sweep,
    Why(job: u128),
    Job(job: u128),
    Jobs(query: JobQueryLayout<'a>),
    Lanes,
    Upstreams,
    Tenants(query: TenantQueryLayout<'a>),
    DeadLetter(letter: u128),
    DeadLetters(query: LetterQueryLayout<'a>),
    Wait(ask: WaitLayout),
    CatchUp(fallback_log: FallbackLogLayout<'a>),
    Fleet,
    Leave(process: u64),
    Credit(credits: Vec<CreditLayout<'a>>),
    Correct(corrections: Vec<CorrectionLayout<'a>>),
    HashKey(offer: u128),
    Buckets(query: BucketQueryLayout<'a>),
    Complete(completion: CompletionLayout<'a>),
    Poll(ask: PollLayout<'a>),
    CancelAll(ask: CancelAllLayout<'a>),
    Fire(ask: FireLayout<'a>),
    Schedules,
    Watch(ask: WatchLayout<'a>),
    Alerts,
    CountLetters(ask: CountLettersLayout<'a>),
    DiscardAll(query: LetterQueryLayout<'a>),
    Bulk(ask: BulkAskLayout<'a>),
    Codes(upstream: &'a str),
    Observe(ask: ObserveLayout),
    History(query: HistoryQueryLayout<'a>),
    NotFull,
});

layout_struct!(HistoryQueryLayout<'a> = HistoryQuery { of: HistoryOfLayout<'a>, minutes: u32 });

layout_enum!(HistoryOfLayout<'a> = HistoryOf {
    AllLanes,
    Lanes(names: Vec<&'a str>),
    Upstream(name: &'a str),
});

layout_struct!(ObserveLayout = Observe { seen: Option<ObserveCursorLayout>, wait: u64 });

layout_struct!(WatchLayout<'a> = Watch { lost_data: bool, evaluation: Option<EvaluationLayout<'a>> });

layout_struct!(EvaluationLayout<'a> = Evaluation {
    limits: AlertLimitsLayout,
    seen: Vec<ConditionLayout<'a>>,
    rejected_connections: Option<u64>,
    operators: bool,
    tenants: Vec<&'a str>,
});

layout_struct!(
    AlertLimitsLayout = AlertLimits {
        dead_letters: Option<u64>,
        tenant_dead_letters: Option<u64>,
        dead_letter_rate: Option<DeadLetterRateLayout>,
        oldest_wait: Option<u64>,
        breaker_open: bool,
        redis_rejected_connections: bool,
        store_lost_data: bool,
        hold: u64,
        clear: u64,
    }
);

layout_struct!(DeadLetterRateLayout = DeadLetterRate { share_micros: u64, over: u64, min: u64 });

layout_struct!(FireLayout<'a> = Fire { schedule: &'a str, moment: u64, job: Option<NewJobLayout<'a>> });
layout_struct!(PollLayout<'a> = Poll { upstream: &'a str, max: u64, claim: u64, asked: Vec<u128> });

layout_struct!(CreditLayout<'a> = Credit { event: &'a str, correlation: u128 });

layout_struct!(CorrectionLayout<'a> = Correction {
    bucket: BucketIdLayout<'a>,
    spec: BucketSpecLayout,
    reported: i64,
    when_asked: i64,
    asked_ago: u64,
});

layout_struct!(BucketQueryLayout<'a> = BucketQuery {
    upstream: Option<&'a str>,
    policy: Option<&'a str>,
    scope: Option<u128>,
    after: u64,
    max: u64,
    shared: bool,
    lowest: bool,
});

layout_struct!(TenantQueryLayout<'a> = TenantQuery {
    lane: &'a str,
    names: Option<Vec<&'a str>>,
    after: u32,
    max: u64,
    busiest: bool,
});

layout_struct!(FallbackLogLayout<'a> = FallbackLog {
    share: ShareLayout,
    since: u64,
    left: Vec<(BucketOfLayout<'a>, i64)>,
    calls: Vec<FallbackCallLayout<'a>>,
    reports: Vec<FallbackReportLayout<'a>>,
});

layout_enum!(BucketOfLayout<'a> = BucketOf { Lane(lane: &'a str), Upstream(upstream: &'a str) });

/// The index of a share and the number of shares.
type ShareLayout = (u32, u32);

layout_struct!(FallbackCallLayout<'a> = FallbackCall {
    lane: Option<&'a str>,
    tenant: Option<&'a str>,
    upstream: &'a str,
    holds: Vec<HoldLayout<'a>>,
    correlation: Option<u128>,
    began: u64,
    lease: Option<(LeaseIdLayout, u64)>,
    ended: Option<u64>,
});

layout_struct!(FallbackReportLayout<'a> = FallbackReport {
    upstream: &'a str,
    result: CallResultLayout,
    retry_after: Option<RetryAfterLayout<'a>>,
    hold: Option<HoldLayout<'a>>,
    began: Option<u64>,
    ago: u64,
});

layout_struct!(NewJobLayout<'a> = NewJob {
    id: u128,
    lane: &'a str,
    tenant: &'a str,
    level: LevelLayout,
    payload: Bytes<'a>,
    key: Option<&'a str>,
    fingerprint: Option<u64>,
    cache_key: Option<&'a str>,
    ttl: Option<u64>,
    delay: u64,
    chain: Option<Vec<&'a str>>,
    holds: Vec<HoldLayout<'a>>,
    correlation: Option<u128>,
    callback: Option<&'a str>,
    caller_waits: Option<u64>,
});

layout_struct!(DispatchLayout<'a> = Dispatch {
    lane: &'a str,
    max: u64,
    lease: u64,
    nonce: u64,
    wait: u64,
    denied: Option<DeniedLayout<'a>>,
});

layout_struct!(AdvanceLayout<'a> = Advance {
    lease: LeaseIdLayout,
    upstream: &'a str,
    report: ReportLayout<'a>,
    failure: CallFailureLayout<'a>,
    unsent: Option<Bytes<'a>>,
});

layout_struct!(ReportLayout<'a> = Report {
    result: CallResultLayout,
    status: Option<u16>,
    usage: UsageLayout<'a>,
    retry_after: Option<RetryAfterLayout<'a>>,
    took: Option<u64>,
    answered_ago: Option<u64>,
});

/// The report of a job's end by its upstream, which is also stored. It counts from when the store receives it.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct LateReportLayout<'a> {
    result: CallResultLayout,
    status: Option<u16>,
    usage: UsageLayout<'a>,
    retry_after: Option<RetryAfterLayout<'a>>,
    took: Option<u64>,
}

impl<'a> Layout<'a, Report> for LateReportLayout<'a> {
    fn from_domain(report: &'a Report) -> Self {
        let ReportLayout { result, status, usage, retry_after, took, answered_ago: _ } =
            Layout::from_domain(report);
        Self { result, status, usage, retry_after, took }
    }

    fn into_domain(self) -> Result<Report, LayoutError> {
        let Self { result, status, usage, retry_after, took } = self;
        ReportLayout { result, status, usage, retry_after, took, answered_ago: None }.into_domain()
    }
}

layout_enum!(UsageLayout<'a> = Usage {
    Unknown,
    Amount(amount: i64),
    BySource(amounts: Vec<(&'a str, i64)>),
});

layout_enum!(
    CallResultLayout =
        CallResult { Success, Rejected, Throttled, Failed, TimedOut, NotSent, Unknown, Unreachable }
);

layout_struct!(RetryAfterLayout<'a> = RetryAfter { wait: u64, bucket: Option<&'a str> });

layout_struct!(CallFailureLayout<'a> = CallFailure {
    reason: &'a str,
    code: Option<&'a str>,
    upstream: Option<&'a str>,
});

layout_struct!(SettlementLayout<'a> = Settlement {
    lease: LeaseIdLayout,
    report: ReportLayout<'a>,
    outcome: OutcomeLayout<'a>,
    answer: Option<Bytes<'a>>,
    unsent: Option<Bytes<'a>>,
});

layout_enum!(OutcomeLayout<'a> = Outcome {
    Done,
    DoneUncached,
    Retry { after: u64, failure: CallFailureLayout<'a> },
    Dead(failure: CallFailureLayout<'a>),
    Failed(failure: CallFailureLayout<'a>),
    Release,
    Awaiting { timeout: u64, external: Option<&'a str>, next: bool, poll: Option<PollingLayout> },
});

layout_struct!(PollingLayout = Polling { after: u64, every: u64 });

layout_struct!(CompletionLayout<'a> = Completion {
    job: u128,
    upstream: &'a str,
    external: Option<&'a str>,
    message: Option<u64>,
    report: LateReportLayout<'a>,
    outcome: OutcomeLayout<'a>,
    next: bool,
    answer: Option<Bytes<'a>>,
});

layout_struct!(AdmitLayout<'a> = Admit {
    lane: Option<&'a str>,
    tenant: Option<&'a str>,
    chain: Vec<&'a str>,
    holds: Vec<HoldLayout<'a>>,
    correlation: Option<u128>,
    lease: u64,
    nonce: u64,
    after: Option<(LeaseIdLayout, ReportLayout<'a>)>,
    probe: bool,
});

layout_struct!(JobQueryLayout<'a> = JobQuery {
    lane: Option<&'a str>,
    tenant: Option<&'a str>,
    status: Option<StatusLayout>,
    external: Option<&'a str>,
    key: Option<&'a str>,
    since: Option<u64>,
    until: Option<u64>,
    after: Option<JobCursorLayout>,
    max: u64,
});

layout_struct!(CancelAllLayout<'a> = CancelAll { query: JobQueryLayout<'a>, dry_run: bool });

layout_struct!(WaitLayout = Wait { job: u128, timeout: u64, allow_unknown: bool, seen: Option<u64> });
