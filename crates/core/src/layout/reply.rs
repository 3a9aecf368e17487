//! Replies: the owner's answers to questions.

use super::LayoutError;
use super::alert::AlertLayout;
use super::convert::{Bytes, Layout, decode, encode, layout_enum, layout_struct};
use super::history::HistoryViewLayout;
use super::letters::{
    BulkAnswerLayout, DiscardedLettersLayout, LetterCountsLayout, LetterPageLayout, ReplayedLayout,
    ReplayedLetterLayout,
};
use super::shared::{
    BucketIdLayout, BucketSpecLayout, DeniedLayout, JobCursorLayout, LeaseIdLayout, LevelLayout,
    ObserveCursorLayout, ReasonLayout, StatusLayout,
};
use super::view::{
    CodeViewLayout, DeadLetterViewLayout, DropReasonLayout, EndedLayout, EventKindLayout, FallbackLayout,
    GateViewLayout, JobPageLayout, JobViewLayout, LaneViewLayout, PlaceLayout, RegistrationViewLayout,
    TenantViewLayout, UpstreamViewLayout, WhyLayout,
};
use crate::alert::{AlertChanges, AlertsView};
use crate::dead_letter::{DeadLetterView, TrimReason};
use crate::engine::{RegistrationView, SeenBucket, SeenBuckets};
use crate::error::SpecError;
use crate::gate::{NotUntil, Quota, QuotaOf};
use crate::ids::Name;
use crate::job::JobView;
use crate::policy::HashKey;
use crate::time::Time;
use crate::verbs::{
    Admission, Admitted, Advanced, BulkAnswer, Cached, Cancelled, CancelledAll, CompleteAnswer, Completed,
    Corrected, Credited, DiscardedLetters, Dispatched, DuePoll, EnqueueAnswer, Enqueued, Fired, Grant,
    HistoryView, JobTransition, LetterCounts, LetterPage, Observed, ObservedState, Polls, Replayed,
    SettleAnswer, Settled, Swept,
};
use crate::views::{BucketPage, BucketView, CodeView, JobPage, LaneView, TenantPage, UpstreamView, Why};

/// The version of the layouts in this file and of the views.
const VERSION: u8 = 1;

/// The answer to a [`Question`](super::Question).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To `Enqueue`.
    Enqueued(EnqueueAnswer),
    /// To `Dispatch`.
    Dispatched(Dispatched),
    /// To `Advance`.
    Advanced(Advanced),
    /// To `Extend`.
    Extended(Vec<bool>),
    /// To `Settle`.
    Settled(SettleAnswer),
    /// To `Cancel`.
    Cancelled(Cancelled),
    /// To `Admit`.
    Admitted(Admitted),
    /// To `Record`, `Recover` and `Reset`.
    Upstream(Option<UpstreamView>),
    /// To `Replay`.
    Replayed(Replayed),
    /// To `Discard`, `Pause`, `CatchUp` and `Leave`.
    Done(bool),
    /// To `Sweep`.
    Swept(Swept),
    /// To `Why`.
    Why(Option<Why>),
    /// To `Job` and `Wait`.
    Job(Option<JobView>),
    /// To `Jobs`.
    Jobs(JobPage),
    /// To `Lanes`.
    Lanes(Vec<LaneView>),
    /// To `Upstreams`.
    Upstreams(Vec<UpstreamView>),
    /// To `Tenants`.
    Tenants(TenantPage),
    /// To `DeadLetter`.
    DeadLetter(Option<DeadLetterView>),
    /// To `DeadLetters`.
    DeadLetters(LetterPage),
    /// To `Fleet`.
    Fleet(Vec<RegistrationView>),
    /// To `Credit`.
    Credited(Vec<Credited>),
    /// To `Correct`.
    Corrected(Vec<Corrected>),
    /// To `HashKey`.
    HashKey(HashKey),
    /// To `Buckets`.
    Buckets(BucketPage),
    /// To `Complete`.
    Completed(CompleteAnswer),
    /// To `Poll`.
    Polls(Polls),
    /// To `CancelAll`.
    CancelledAll(CancelledAll),
    /// To `Fire`.
    Fired(Fired),
    /// To `Schedules`.
    Schedules(Vec<(Name, Time)>),
    /// To `Watch`.
    Watched(AlertChanges),
    /// To `Alerts`.
    Alerts(AlertsView),
    /// To `CountLetters`.
    LetterCounts(LetterCounts),
    /// To `DiscardAll`.
    Discarded(DiscardedLetters),
    /// To `Bulk`.
    Bulk(BulkAnswer),
    /// To `Codes`.
    Codes(Option<Vec<CodeView>>),
    /// To `Observe`.
    Observed(Box<Observed>),
    /// To `History`.
    History(HistoryView),
    /// To `NotFull`: the scoped buckets that are not full.
    NotFull(SeenBuckets),
    /// The store cannot read the question, perhaps because it is of a newer version; says why.
    Unread(String),
}

impl Reply {
    /// Appends its bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(VERSION, &ReplyLayout::from_domain(self), out);
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        decode::<ReplyLayout<'_>>(VERSION, bytes)?.into_domain()
    }
}

layout_enum!(ReplyLayout<'a> = Reply {
    Enqueued(answer: EnqueueAnswerLayout<'a>),
    Dispatched(answer: DispatchedLayout<'a>),
    Advanced(answer: AdvancedLayout<'a>),
    Extended(alive: Vec<bool>),
    Settled(answer: SettleAnswerLayout<'a>),
    Cancelled(answer: CancelledLayout<'a>),
    Admitted(answer: AdmittedLayout<'a>),
    Upstream(view: Option<UpstreamViewLayout<'a>>),
    Replayed(answer: ReplayedLayout<'a>),
    Done(done: bool),
    Swept(answer: SweptLayout<'a>),
    Why(why: Option<WhyLayout<'a>>),
    Job(view: Option<JobViewLayout<'a>>),
    Jobs(page: JobPageLayout<'a>),
    Lanes(views: Vec<LaneViewLayout<'a>>),
    Upstreams(views: Vec<UpstreamViewLayout<'a>>),
    Tenants(page: TenantPageLayout<'a>),
    DeadLetter(view: Option<DeadLetterViewLayout<'a>>),
    DeadLetters(page: LetterPageLayout<'a>),
    Fleet(registrations: Vec<RegistrationViewLayout<'a>>),
    Credited(answers: Vec<CreditedLayout<'a>>),
    Corrected(answers: Vec<CorrectedLayout>),
    HashKey(key: u128),
    Buckets(page: BucketPageLayout<'a>),
    Unread(cause: &'a str),
    Completed(answer: CompleteAnswerLayout<'a>),
    Polls(polls: PollsLayout<'a>),
    CancelledAll(answer: CancelledAllLayout<'a>),
    Fired(answer: FiredLayout<'a>),
    Schedules(last: Vec<(&'a str, u64)>),
    Watched(changes: AlertChangesLayout<'a>),
    Alerts(view: AlertsViewLayout<'a>),
    LetterCounts(counts: LetterCountsLayout<'a>),
    Discarded(answer: DiscardedLettersLayout<'a>),
    Bulk(answer: BulkAnswerLayout<'a>),
    Codes(codes: Option<Vec<CodeViewLayout<'a>>>),
    Observed(observed: ObservedLayout<'a>),
    History(history: HistoryViewLayout<'a>),
    NotFull(buckets: SeenBucketsLayout<'a>),
});

layout_enum!(SeenBucketsLayout<'a> = SeenBuckets {
    Never,
    TooMany,
    NotFull(buckets: Vec<SeenBucketLayout<'a>>),
});

layout_struct!(SeenBucketLayout<'a> = SeenBucket {
    key: &'a str,
    spec: BucketSpecLayout,
    available: i64,
    closed_until: u64,
});

layout_struct!(ObservedLayout<'a> = Observed {
    cursor: ObserveCursorLayout,
    now: u64,
    gap: bool,
    jobs: Vec<JobTransitionLayout<'a>>,
    state: Option<ObservedStateLayout<'a>>,
});

layout_struct!(ObservedStateLayout<'a> = ObservedState {
    lanes: Vec<LaneViewLayout<'a>>,
    upstreams: Vec<UpstreamViewLayout<'a>>,
    alerts: AlertsViewLayout<'a>,
});

layout_struct!(JobTransitionLayout<'a> = JobTransition {
    at: u64,
    job: u128,
    key: Option<&'a str>,
    lane: &'a str,
    tenant: &'a str,
    level: LevelLayout,
    kind: EventKindLayout<'a>,
    status: StatusLayout,
    dropped: Option<DropReasonLayout>,
});

/// The bytes of everything that observers are shown as a whole.
pub(crate) fn encode_state(state: &ObservedState) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(VERSION, &ObservedStateLayout::from_domain(state), &mut bytes);
    bytes
}

layout_struct!(AlertChangesLayout<'a> = AlertChanges {
    fired: Vec<AlertLayout<'a>>,
    resolved: Vec<AlertLayout<'a>>,
    ended: Vec<EndedLayout<'a>>,
});

layout_struct!(AlertsViewLayout<'a> = AlertsView {
    firing: Vec<AlertLayout<'a>>,
    recent: Vec<AlertLayout<'a>>,
});

layout_enum!(FiredLayout<'a> = Fired {
    Submitted(answer: EnqueueAnswerLayout<'a>),
    AlreadyDone(last: u64),
    TooSoon(span: u64),
});

layout_struct!(CompleteAnswerLayout<'a> = CompleteAnswer {
    completed: CompletedLayout,
    ended: Vec<EndedLayout<'a>>,
});

layout_enum!(
    CompletedLayout = Completed {
        Settled(settled: SettledLayout),
        Kept,
        NotAwaited(status: StatusLayout),
        Unknown,
    }
);

layout_struct!(PollsLayout<'a> = Polls { due: Vec<DuePollLayout<'a>>, now: u64, next: u64 });

layout_struct!(DuePollLayout<'a> = DuePoll {
    job: u128,
    at: Option<&'a str>,
    tenant: &'a str,
    key: Option<&'a str>,
    external: Option<&'a str>,
    payload: Bytes<'a>,
    attempt: u32,
});

layout_enum!(CreditedLayout<'a> = Credited {
    Buckets(given: Vec<(BucketIdLayout<'a>, i64)>),
    Repeated,
    Unknown,
});

layout_struct!(CorrectedLayout = Corrected { before: i64, after: i64, uncertainty: i64 });

layout_struct!(BucketPageLayout<'a> = BucketPage {
    buckets: Vec<BucketViewLayout<'a>>,
    next: Option<u64>,
});

layout_struct!(TenantPageLayout<'a> = TenantPage { tenants: Vec<TenantViewLayout<'a>>, next: Option<u32> });

layout_struct!(BucketViewLayout<'a> = BucketView {
    id: BucketIdLayout<'a>,
    available: i64,
    capacity: i64,
    refill: i64,
    period: u64,
    held: i64,
    closed_until: Option<u64>,
    spent_last_minute: i64,
    credited_last_minute: i64,
});

layout_enum!(QuotaOfLayout<'a> = QuotaOf {
    Lane(name: &'a str),
    Upstream(name: &'a str),
    Bucket(key: &'a str),
    Tenant(lane: &'a str),
});

layout_struct!(QuotaLayout<'a> = Quota {
    of: QuotaOfLayout<'a>,
    reason: ReasonLayout,
    limit: i64,
    remaining: i64,
    refill: i64,
    period: u64,
    enough_at: u64,
    full_at: u64,
});

layout_struct!(EnqueueAnswerLayout<'a> = EnqueueAnswer {
    jobs: Vec<EnqueuedLayout<'a>>,
    ended: Vec<EndedLayout<'a>>,
});

layout_enum!(EnqueuedLayout<'a> = Enqueued {
    Accepted(place: PlaceLayout),
    Existing(job: u128),
    Cached(cached: CachedLayout<'a>),
    Conflict(job: u128),
    QueueFull,
    UnknownLane,
    Invalid(error: SpecErrorLayout<'a>),
    NotInTime { eta: u64, late: u64 },
});

layout_struct!(CachedLayout<'a> = Cached {
    answer: Bytes<'a>,
    stale: Option<FallbackLayout>,
    fresh_for: u64,
    stale_for: u64,
});

layout_struct!(SpecErrorLayout<'a> = SpecError { field: &'a str, problem: &'a str });

layout_struct!(DispatchedLayout<'a> = Dispatched {
    grants: Vec<GrantLayout<'a>>,
    ended: Vec<EndedLayout<'a>>,
    recovered: Vec<u128>,
    denied: Option<DeniedLayout<'a>>,
    now: u64,
    next: u64,
    held: u64,
});

layout_struct!(GrantLayout<'a> = Grant {
    lease: LeaseIdLayout,
    lease_expires: u64,
    job: u128,
    tenant: &'a str,
    level: LevelLayout,
    payload: Bytes<'a>,
    upstream: &'a str,
    attempt: u32,
    expires_at: u64,
});

layout_enum!(AdvancedLayout<'a> = Advanced {
    To(upstream: &'a str),
    Waits(denial: NotUntilLayout),
    Exhausted,
    Stale,
});

layout_struct!(NotUntilLayout = NotUntil { reason: ReasonLayout, at: u64 });

layout_struct!(SettleAnswerLayout<'a> = SettleAnswer {
    leases: Vec<SettledLayout>,
    ended: Vec<EndedLayout<'a>>,
});

layout_enum!(SettledLayout = Settled {
    Ended(status: StatusLayout),
    RetryAt(at: u64),
    Requeued,
    Awaiting(lease: LeaseIdLayout),
    Released,
    Stale,
});

layout_struct!(CancelledAllLayout<'a> = CancelledAll {
    matched: u64,
    ended: Vec<EndedLayout<'a>>,
    next: Option<JobCursorLayout>,
});

layout_enum!(CancelledLayout<'a> = Cancelled {
    Yes(ended: EndedLayout<'a>),
    AlreadyEnded(status: StatusLayout),
    Unknown,
});

layout_struct!(AdmittedLayout<'a> = Admitted {
    admission: AdmissionLayout<'a>,
    ended: Vec<EndedLayout<'a>>,
    now: u64,
});

layout_enum!(AdmissionLayout<'a> = Admission {
    Granted {
        lease: LeaseIdLayout,
        upstream: &'a str,
        lease_expires: u64,
        quota: Option<QuotaLayout<'a>>
    },
    Denied {
        upstream: Option<&'a str>,
        denial: NotUntilLayout,
        quota: Option<QuotaLayout<'a>>,
        gate: Option<GateViewLayout>,
        sooner: bool
    },
    UnknownUpstream(name: &'a str),
    UnknownLane,
});

layout_struct!(SweptLayout<'a> = Swept {
    ended: Vec<EndedLayout<'a>>,
    recovered: Vec<u128>,
    dead_letters: Vec<(&'a str, u128, TrimReasonLayout)>,
    replayed: Vec<ReplayedLetterLayout<'a>>,
    debits_dropped: u64,
    now: u64,
    next: u64,
});

layout_enum!(TrimReasonLayout = TrimReason { Expired, OverCap });
