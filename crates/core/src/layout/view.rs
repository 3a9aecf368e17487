//! Layouts of views: jobs and their ends, lanes, upstreams, tenants, dead letters.

use std::sync::Arc;

use super::LayoutError;
use super::convert::{Bytes, Layout, layout_enum, layout_struct};
use super::shared::{
    BucketIdLayout, JobCursorLayout, KeptHoldLayout, LeaseIdLayout, LevelLayout, ReasonLayout, StatusLayout,
};
use crate::dead_letter::{DeadLetter, DeadLetterView, LetterAges};
use crate::durations::Quantiles;
use crate::ended::{End, Ended, Fallback, ServedBy};
use crate::engine::RegistrationView;
use crate::gate::{BreakerState, BreakerView, GateView, PaceView};
use crate::ids::Name;
use crate::job::{DropReason, Failure, JobView};
use crate::lane::Totals;
use crate::timeline::{Event, EventKind, FailureNote, Waited};
use crate::views::{
    CodeView, GateOwner, JobPage, LaneHold, LaneView, LastFailure, Place, TenantView, UpstreamView, Why,
};

layout_struct!(EndedLayout<'a> = Ended {
    job: u128,
    lane: &'a str,
    tenant: &'a str,
    level: LevelLayout,
    attempts: u32,
    created_at: u64,
    end: EndLayout<'a>,
    forgotten: Option<JobViewLayout<'a>>,
    avoided: Option<&'a str>,
});

layout_enum!(EndLayout<'a> = End {
    Completed,
    Served(by: ServedByLayout),
    Failed { failure: FailureLayout<'a>, dead_letter: bool },
    Dropped(reason: DropReasonLayout),
    Cancelled,
});

layout_enum!(ServedByLayout = ServedBy { Cache, Coalesced, Stale(fallback: FallbackLayout) });

layout_enum!(FallbackLayout = Fallback { CircuitOpen, Timeout, Error, Connection });

layout_enum!(DropReasonLayout = DropReason { TtlExpired, Preempted, QueueFull, NotInTime });

layout_struct!(FailureLayout<'a> = Failure {
    reason: &'a str,
    code: Option<&'a str>,
    at: u64,
    upstream: Option<&'a str>,
});

layout_struct!(JobViewLayout<'a> = JobView {
    id: u128,
    lane: &'a str,
    tenant: &'a str,
    level: LevelLayout,
    key: Option<&'a str>,
    cache_key: Option<&'a str>,
    status: StatusLayout,
    served: Option<ServedByLayout>,
    dropped: Option<DropReasonLayout>,
    created_at: u64,
    expires_at: u64,
    due_at: Option<u64>,
    attempts: u32,
    upstream: Option<&'a str>,
    external: Option<&'a str>,
    lease: Option<LeaseIdLayout>,
    last_failure: Option<FailureLayout<'a>>,
    payload: Bytes<'a>,
    result: Option<Bytes<'a>>,
    timeline: Vec<EventLayout<'a>>,
    at: Option<&'a str>,
    dead_letter: bool,
});

layout_struct!(EventLayout<'a> = Event<Name> { at: u64, kind: EventKindLayout<'a> });

layout_enum!(EventKindLayout<'a> = EventKind<Name> {
    Accepted,
    Started(upstream: &'a str),
    Failed(upstream: &'a str, note: Option<FailureNoteLayout<'a>>),
    RetryAt(at: u64),
    WaitsForRest,
    TakenUp,
    Released,
    Awaiting(upstream: &'a str),
    Served(by: ServedByLayout),
    Ended(status: StatusLayout),
    Omitted(lines: u32),
    StartedAfter(upstream: &'a str, waited: WaitedLayout),
});

layout_struct!(WaitedLayout = Waited { reason: ReasonLayout, since: u64, until: u64 });

layout_struct!(FailureNoteLayout<'a> = FailureNote { code: Option<&'a str>, reason: &'a str });

impl<'a> Layout<'a, Arc<FailureNote>> for FailureNoteLayout<'a> {
    fn from_domain(note: &'a Arc<FailureNote>) -> Self {
        Layout::<FailureNote>::from_domain(note)
    }

    fn into_domain(self) -> Result<Arc<FailureNote>, LayoutError> {
        Layout::<FailureNote>::into_domain(self).map(Arc::new)
    }
}

layout_struct!(JobPageLayout<'a> = JobPage { jobs: Vec<JobViewLayout<'a>>, next: Option<JobCursorLayout> });

layout_struct!(PlaceLayout = Place { status: StatusLayout, position: u64, eta: Option<u64>, expires_at: u64 });

layout_struct!(WhyLayout<'a> = Why {
    status: StatusLayout,
    reason: Option<ReasonLayout>,
    upstream: Option<&'a str>,
    of_tenant: Option<&'a str>,
    of_bucket: Option<BucketIdLayout<'a>>,
    until: Option<u64>,
    position: u64,
    eta: Option<u64>,
    will_expire: bool,
    gates: Vec<(GateOwnerLayout<'a>, GateViewLayout)>,
});

layout_enum!(GateOwnerLayout<'a> = GateOwner {
    Lane,
    Tenant(tenant: &'a str),
    Upstream(upstream: &'a str),
    Bucket(bucket: BucketIdLayout<'a>),
});

layout_struct!(GateViewLayout = GateView {
    reason: ReasonLayout,
    denies_until: Option<u64>,
    level: i64,
    limit: Option<i64>,
});

layout_struct!(LaneViewLayout<'a> = LaneView {
    name: &'a str,
    paused: bool,
    paused_since: Option<u64>,
    queued: [u64; 3],
    pending: u64,
    processing: u64,
    waiting_bytes: u64,
    finished: u64,
    dead_letters: u64,
    oldest_dead_letter: Option<u64>,
    dead_letters_until: Option<u64>,
    top_code: Option<(&'a str, u64)>,
    top_tenant: Option<(&'a str, u64)>,
    letter_ages: LetterAgesLayout,
    oldest_waiting: Option<u64>,
    capacity: Option<u64>,
    totals: TotalsLayout,
    gates: Vec<GateViewLayout>,
    chain: Vec<&'a str>,
    ttl: Option<u64>,
    held: Option<LaneHoldLayout<'a>>,
    last_start: Option<u64>,
    will_expire: u64,
});

layout_struct!(LaneHoldLayout<'a> = LaneHold {
    reason: ReasonLayout,
    upstream: Option<&'a str>,
    until: Option<u64>,
});

layout_struct!(LetterAgesLayout = LetterAges { counts: [u64; 9], total: u64 });

layout_struct!(
    TotalsLayout = Totals {
        accepted: u64,
        started: u64,
        completed: u64,
        cache_hits: u64,
        coalesced: u64,
        fallbacks: u64,
        answered_at_intake: u64,
        failed: u64,
        cancelled: u64,
        expired: u64,
        preempted: u64,
        refused: u64,
        dead: u64,
        dead_trimmed: u64,
    }
);

layout_struct!(UpstreamViewLayout<'a> = UpstreamView {
    name: &'a str,
    in_flight: u32,
    failures: u32,
    degraded_until: Option<u64>,
    breaker: Option<BreakerViewLayout>,
    tokens: Option<i64>,
    starts_last_minute: u64,
    gates: Vec<GateViewLayout>,
    pace: Option<PaceViewLayout>,
    errors_last_minute: u64,
    latency: Option<QuantilesLayout>,
    last_failure: Option<LastFailureLayout<'a>>,
});

layout_struct!(QuantilesLayout = Quantiles { p50: u64, p95: u64 });

layout_struct!(LastFailureLayout<'a> = LastFailure { code: &'a str, at: u64 });

layout_struct!(
    PaceViewLayout = PaceView { rate_micro: u64, adaptive: bool, floor_latency: Option<u64> }
);

layout_struct!(
    BreakerViewLayout = BreakerView { state: BreakerStateLayout, opened: u64, half_opened: u64, closed: u64 }
);

layout_enum!(BreakerStateLayout = BreakerState { Closed, Open, HalfOpen });

layout_struct!(CodeViewLayout<'a> = CodeView { code: &'a str, seen: u64, cured: u64, failed_again: u64 });

layout_struct!(TenantViewLayout<'a> = TenantView {
    tenant: &'a str,
    last_processed: Option<u64>,
    rounds_without_processing: i64,
    current_priority: i64,
    total_processed: u64,
    consecutive_batch: u32,
    waiting: u64,
    processing: u64,
    weight: u32,
    next: bool,
});

layout_struct!(DeadLetterViewLayout<'a> = DeadLetterView {
    job: u128,
    lane: &'a str,
    letter: DeadLetterLayout<'a>,
    next_redrive: Option<u64>,
});

layout_struct!(DeadLetterLayout<'a> = DeadLetter {
    key: Option<&'a str>,
    tenant: &'a str,
    level: LevelLayout,
    payload: Bytes<'a>,
    chain: Vec<&'a str>,
    holds: Vec<KeptHoldLayout<'a>>,
    failed_attempts: u32,
    last_failure: FailureLayout<'a>,
    enqueued_at: u64,
    moved_at: u64,
    ttl: u64,
    replay: Option<u128>,
    callback: Option<&'a str>,
    redrives: u32,
});

layout_struct!(RegistrationViewLayout<'a> = RegistrationView {
    process: u64,
    stamp: u64,
    about: &'a str,
    last_heard: Option<u64>,
    differs: u64,
    differing: Vec<&'a str>,
});
