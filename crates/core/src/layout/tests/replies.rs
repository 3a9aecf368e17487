//! Every reply, with all fields set and in all its forms.

use super::{alert, bucket_id, cursor, filter, hold, id, lease, letter_cursor, ms, name, note, time, waited};
use crate::alert::{AlertChanges, AlertsView};
use crate::dead_letter::{DeadLetter, DeadLetterView, TrimReason};
use crate::ended::{End, Ended, Fallback, ServedBy};
use crate::engine::{Callback, ProcessId, RegistrationView, SeenBucket, SeenBuckets};
use crate::error::SpecError;
use crate::gate::{BreakerState, BreakerView, GateView, NotUntil, Quota, QuotaOf, Reason};
use crate::ids::Name;
use crate::job::{DropReason, Failure, FailureReason, JobView, Level, Status};
use crate::lane::Totals;
use crate::layout::Reply;
use crate::policy::HashKey;
use crate::time::Time;
use crate::timeline::{Event, EventKind};
use crate::tokens::Tokens;
use crate::verbs::{
    Admission, Admitted, Advanced, BulkAnswer, BulkStatus, BulkView, Cached, Cancelled, CancelledAll,
    CompleteAnswer, Completed, Corrected, Credited, Denied, DiscardedLetters, Dispatched, DuePoll,
    EnqueueAnswer, Enqueued, Fired, Grant, LetterCounts, LetterPage, Polls, Replayed, ReplayedLetter,
    SettleAnswer, Settled, Swept,
};
use crate::views::{
    BucketPage, BucketView, GateOwner, JobPage, LaneView, Place, TenantPage, TenantView, UpstreamView, Why,
};

/// Samples, each with the name of its golden file.
pub(super) fn all() -> Vec<(&'static str, Reply)> {
    let mut all = of_jobs();
    all.extend(of_letters());
    all.extend(super::history::replies());
    all
}

fn of_letters() -> Vec<(&'static str, Reply)> {
    vec![
        ("reply-dead-letter", Reply::DeadLetter(Some(letter()))),
        (
            "reply-dead-letters",
            Reply::DeadLetters(LetterPage { letters: vec![letter()], next: Some(letter_cursor()) }),
        ),
        (
            "reply-letter-counts",
            Reply::LetterCounts(LetterCounts {
                counts: vec![("550".into(), 3)],
                trends: vec![("550".into(), vec![0, 2])],
                next: Some(letter_cursor()),
            }),
        ),
        (
            "reply-discarded",
            Reply::Discarded(DiscardedLetters {
                gone: vec![(name("email"), id(1))],
                next: Some(letter_cursor()),
            }),
        ),
        ("reply-bulk", Reply::Bulk(BulkAnswer::Replays(bulks()))),
        ("reply-bulk-too-many", Reply::Bulk(BulkAnswer::TooMany)),
        (
            "reply-watched",
            Reply::Watched(AlertChanges {
                fired: vec![alert(None)],
                resolved: vec![alert(Some(time(9)))],
                ended: vec![ended(End::Cancelled)],
            }),
        ),
        (
            "reply-alerts",
            Reply::Alerts(AlertsView { firing: vec![alert(None)], recent: vec![alert(Some(time(9)))] }),
        ),
        (
            "reply-codes",
            Reply::Codes(Some(vec![crate::CodeView {
                code: "409".into(),
                seen: 9,
                cured: 4,
                failed_again: 3,
            }])),
        ),
        ("reply-observed", Reply::Observed(Box::new(observed()))),
    ]
}

fn of_jobs() -> Vec<(&'static str, Reply)> {
    let upstream = || name("ses");
    let denial = NotUntil::new(Reason::Window, time(30_000));
    let admitted = |admission| Reply::Admitted(Admitted { admission, ended: ends(), now: time(1) });
    let granted = Admission::Granted {
        lease: lease(1),
        upstream: upstream(),
        lease_expires: time(9),
        quota: Some(quota()),
    };
    let (quota, gate) = (Some(Quota { of: QuotaOf::Tenant(name("email")), ..quota() }), gates().pop());
    let denied = Admission::Denied { upstream: Some(upstream()), denial, quota, gate, sooner: true };
    vec![
        ("reply-enqueued", Reply::Enqueued(enqueued())),
        ("reply-dispatched", Reply::Dispatched(dispatched())),
        ("reply-advanced-to", Reply::Advanced(Advanced::To(upstream()))),
        ("reply-advanced-waits", Reply::Advanced(Advanced::Waits(denial))),
        ("reply-advanced-exhausted", Reply::Advanced(Advanced::Exhausted)),
        ("reply-advanced-stale", Reply::Advanced(Advanced::Stale)),
        ("reply-extended", Reply::Extended(vec![true, false])),
        ("reply-settled", Reply::Settled(settled())),
        ("reply-cancelled-yes", Reply::Cancelled(Cancelled::Yes(Box::new(ended(End::Cancelled))))),
        ("reply-cancelled-ended", Reply::Cancelled(Cancelled::AlreadyEnded(Status::Dropped))),
        ("reply-cancelled-unknown", Reply::Cancelled(Cancelled::Unknown)),
        (
            "reply-cancelled-all",
            Reply::CancelledAll(CancelledAll {
                matched: 2,
                ended: vec![ended(End::Cancelled)],
                next: Some(cursor()),
            }),
        ),
        ("reply-fired", Reply::Fired(Fired::Submitted(enqueued()))),
        ("reply-fired-before", Reply::Fired(Fired::AlreadyDone(time(7)))),
        ("reply-fired-too-soon", Reply::Fired(Fired::TooSoon(ms(7)))),
        ("reply-schedules", Reply::Schedules(vec![(name("nightly"), time(7))])),
        ("reply-admitted-granted", admitted(granted)),
        ("reply-admitted-denied", admitted(denied)),
        ("reply-admitted-upstream", admitted(Admission::UnknownUpstream(upstream()))),
        ("reply-admitted-lane", admitted(Admission::UnknownLane)),
        (
            "reply-credited",
            Reply::Credited(vec![
                Credited::Buckets(vec![(bucket_id(), Tokens::whole(2))]),
                Credited::Repeated,
                Credited::Unknown,
            ]),
        ),
        (
            "reply-corrected",
            Reply::Corrected(vec![Corrected {
                before: Tokens::ONE,
                after: Tokens::from_micro(-1_500_000),
                uncertainty: Tokens::whole(2),
            }]),
        ),
        ("reply-hash-key", Reply::HashKey(HashKey::new(u128::MAX))),
        ("reply-buckets", Reply::Buckets(BucketPage { buckets: vec![bucket_view()], next: Some(7) })),
        ("reply-unread", Reply::Unread("version 3".into())),
        ("reply-upstream", Reply::Upstream(Some(upstream_view(BreakerState::HalfOpen)))),
        ("reply-replayed-as", Reply::Replayed(Replayed::As(id(2), ends()))),
        ("reply-replayed-unknown", Reply::Replayed(Replayed::Unknown)),
        ("reply-replayed-full", Reply::Replayed(Replayed::QueueFull)),
        ("reply-replayed-taken", Reply::Replayed(Replayed::IdTaken)),
        ("reply-replayed-invalid", Reply::Replayed(Replayed::Invalid(SpecError::new("chain", "is empty")))),
        ("reply-done", Reply::Done(true)),
        ("reply-swept", Reply::Swept(swept())),
        ("reply-why", Reply::Why(Some(why()))),
        ("reply-job", Reply::Job(Some(job_view()))),
        ("reply-job-none", Reply::Job(None)),
        ("reply-jobs", Reply::Jobs(JobPage { jobs: vec![job_view()], next: Some(cursor()) })),
        ("reply-lanes", Reply::Lanes(vec![lane_view()])),
        (
            "reply-upstreams",
            Reply::Upstreams([BreakerState::Closed, BreakerState::Open].map(upstream_view).into()),
        ),
        ("reply-tenants", Reply::Tenants(TenantPage { tenants: vec![tenant_view()], next: Some(7) })),
        ("reply-fleet", Reply::Fleet(vec![registration()])),
        ("reply-not-full", Reply::NotFull(SeenBuckets::NotFull(vec![seen_bucket()]))),
        ("reply-not-full-too-many", Reply::NotFull(SeenBuckets::TooMany)),
        ("reply-completed-settled", completed(Completed::Settled(Settled::Requeued))),
        ("reply-completed-kept", completed(Completed::Kept)),
        ("reply-completed-not-awaited", completed(Completed::NotAwaited(Status::Failed))),
        ("reply-completed-unknown", completed(Completed::Unknown)),
        ("reply-polls", Reply::Polls(polls())),
    ]
}

fn enqueued() -> EnqueueAnswer {
    let place = Place { status: Status::Queued, position: 3, eta: Some(time(5)), expires_at: Time::NEVER };
    let answer = b"score".as_slice().into();
    let cached = Cached { answer, stale: Some(Fallback::Timeout), fresh_for: ms(0), stale_for: ms(9) };
    let jobs = vec![
        Enqueued::Accepted(place),
        Enqueued::Existing(id(1)),
        Enqueued::Cached(cached),
        Enqueued::Conflict(id(2)),
        Enqueued::QueueFull,
        Enqueued::UnknownLane,
        Enqueued::Invalid(SpecError::new("ttl", "must be greater than zero")),
        Enqueued::NotInTime { eta: time(9_000), late: ms(4_000) },
    ];
    EnqueueAnswer { jobs, ended: ends() }
}

fn dispatched() -> Dispatched {
    let grant = Grant {
        lease: lease(1),
        lease_expires: time(10_000),
        job: id(1),
        tenant: "acme".into(),
        level: Level::Normal,
        payload: b"GET /score\0\xff".as_slice().into(),
        upstream: name("ses"),
        attempt: 2,
        expires_at: time(60_000),
    };
    Dispatched {
        grants: vec![grant],
        ended: ends(),
        recovered: vec![id(3)],
        denied: Some(Denied { upstream: None, reason: Reason::Concurrency }),
        now: time(1),
        next: Time::NEVER,
        held: ms(250),
    }
}

fn settled() -> SettleAnswer {
    let leases = vec![
        Settled::Ended(Status::Failed),
        Settled::RetryAt(time(2_000)),
        Settled::Requeued,
        Settled::Awaiting(lease(2)),
        Settled::Released,
        Settled::Stale,
    ];
    SettleAnswer { leases, ended: ends() }
}

fn completed(completed: Completed) -> Reply {
    Reply::Completed(CompleteAnswer { completed, ended: ends() })
}

fn polls() -> Polls {
    let due = DuePoll {
        job: id(1),
        at: Some(name("fal")),
        tenant: "acme".into(),
        key: Some("outbox-1".into()),
        external: Some("ext-1".into()),
        payload: b"GET /score\0\xff".as_slice().into(),
        attempt: 2,
    };
    Polls { due: vec![due], now: time(1), next: time(10_000) }
}

fn swept() -> Swept {
    let letters = [(id(1), TrimReason::Expired), (id(2), TrimReason::OverCap)];
    Swept {
        ended: ends(),
        recovered: vec![id(3)],
        dead_letters: letters.map(|(job, surplus)| (name("email"), job, surplus)).into(),
        replayed: [None, Some(id(9))]
            .map(|bulk| ReplayedLetter { lane: name("email"), letter: id(1), job: id(2), bulk })
            .into(),
        debits_dropped: 3,
        now: time(1),
        next: time(2),
    }
}

/// One job for each kind of end.
fn ends() -> Vec<Ended> {
    [
        End::Completed,
        End::Served(ServedBy::Cache),
        End::Served(ServedBy::Coalesced),
        End::Served(ServedBy::Stale(Fallback::CircuitOpen)),
        End::Failed { failure: failure(), dead_letter: true },
        End::Dropped(DropReason::TtlExpired),
        End::Dropped(DropReason::Preempted),
        End::Dropped(DropReason::QueueFull),
        End::Dropped(DropReason::NotInTime),
        End::Cancelled,
    ]
    .map(ended)
    .into()
}

fn ended(end: End) -> Ended {
    let forgotten = matches!(end, End::Completed).then(|| Box::new(job_view()));
    let avoided = matches!(end, End::Dropped(_)).then(|| name("ses"));
    Ended {
        job: id(1),
        lane: name("email"),
        tenant: "acme".into(),
        level: Level::Low,
        attempts: 2,
        created_at: time(0),
        end,
        avoided,
        forgotten,
    }
}

fn failure() -> Failure {
    let reason = FailureReason::new("refused: ação").unwrap();
    Failure { reason, code: Some("503".into()), at: time(3), upstream: Some(name("ses")) }
}

fn job_view() -> JobView {
    JobView {
        id: id(1),
        lane: name("email"),
        tenant: "acme".into(),
        level: Level::High,
        key: Some("outbox-1".into()),
        cache_key: Some("cpf:1".into()),
        status: Status::Completed,
        served: Some(ServedBy::Stale(Fallback::Error)),
        dropped: Some(DropReason::Preempted),
        created_at: time(0),
        expires_at: time(60_000),
        due_at: Some(time(500)),
        attempts: 2,
        upstream: Some(name("ses")),
        external: Some("ext-1".into()),
        lease: Some(lease(1)),
        at: Some(name("ses").with_key(&name("a"))),
        last_failure: Some(failure()),
        payload: b"GET /score\0\xff".as_slice().into(),
        result: Some(b"score".as_slice().into()),
        timeline: timeline(),
        dead_letter: true,
    }
}

pub(super) fn callback() -> Callback {
    Callback { url: "https://app.example.com/done".into(), job: job_view() }
}

fn timeline() -> Vec<Event<Name>> {
    let statuses = [
        Status::Pending,
        Status::Queued,
        Status::Processing,
        Status::Completed,
        Status::Failed,
        Status::Dropped,
        Status::Cancelled,
    ];
    let kinds = [
        EventKind::Accepted,
        EventKind::Started(name("ses")),
        EventKind::Failed(name("ses"), None),
        EventKind::Failed(name("ses"), Some(note())),
        EventKind::RetryAt(time(2_000)),
        EventKind::WaitsForRest,
        EventKind::TakenUp,
        EventKind::Released,
        EventKind::Awaiting(name("smtp")),
        EventKind::Served(ServedBy::Coalesced),
        EventKind::Omitted(31),
        EventKind::StartedAfter(name("ses"), Box::new(waited())),
    ];
    let kinds = kinds.into_iter().chain(statuses.map(EventKind::Ended));
    (0..).zip(kinds).map(|(at, kind)| Event { at: time(at), kind }).collect()
}

fn why() -> Why {
    Why {
        status: Status::Pending,
        reason: Some(Reason::AwaitingWebhook),
        upstream: Some(name("ses")),
        of_tenant: Some("acme".into()),
        of_bucket: Some(bucket_id()),
        until: Some(time(8)),
        position: 4,
        eta: Some(time(9)),
        will_expire: true,
        gates: owners().into_iter().cycle().zip(gates()).collect(),
    }
}

fn owners() -> Vec<GateOwner> {
    let [lane, tenant] = [GateOwner::Lane, GateOwner::Tenant("acme".into())];
    vec![lane, tenant, GateOwner::Upstream(name("ses")), GateOwner::Bucket(bucket_id())]
}

/// One gate for each reason.
fn gates() -> Vec<GateView> {
    let gate = |(level, reason): (i64, Reason)| GateView {
        reason,
        denies_until: (level > 0).then_some(time(7)),
        level: -level,
        limit: (level > 0).then_some(i64::MAX),
    };
    (0..).zip(Reason::ALL).map(gate).collect()
}

fn upstream_view(state: BreakerState) -> UpstreamView {
    UpstreamView {
        name: name("ses"),
        in_flight: 6,
        failures: 4,
        degraded_until: Some(time(30_000)),
        breaker: Some(BreakerView { state, opened: 3, half_opened: 2, closed: 1 }),
        tokens: Some(Tokens::from_micro(-1)),
        starts_last_minute: 59,
        gates: gates(),
        pace: Some(crate::gate::PaceView {
            rate_micro: 12_500_000,
            adaptive: true,
            floor_latency: Some(crate::Span::from_millis(48)),
        }),
        errors_last_minute: 17,
        latency: Some(crate::Quantiles { p50: ms(120), p95: ms(900) }),
        last_failure: Some(crate::LastFailure { code: "503".into(), at: time(12) }),
    }
}

pub(super) fn letter_ages() -> crate::LetterAges {
    crate::LetterAges { counts: [1, 2, 3, 4, 5, 6, 7, 8, 9], total: crate::Span::from_secs(70_000) }
}

fn lane_view() -> LaneView {
    let totals = Totals {
        accepted: 1,
        started: 2,
        completed: 3,
        cache_hits: 4,
        coalesced: 5,
        fallbacks: 6,
        answered_at_intake: 7,
        failed: 8,
        cancelled: 9,
        expired: 10,
        preempted: 11,
        refused: 12,
        dead: 13,
        dead_trimmed: 14,
    };
    LaneView {
        name: name("email"),
        paused: true,
        paused_since: Some(time(5)),
        queued: [1, 2, 3],
        pending: 4,
        processing: 5,
        waiting_bytes: 6,
        finished: 7,
        dead_letters: 8,
        oldest_dead_letter: Some(time(0)),
        dead_letters_until: Some(time(7)),
        top_code: Some(("550".into(), 2)),
        top_tenant: Some(("acme".into(), 3)),
        letter_ages: letter_ages(),
        oldest_waiting: Some(time(1)),
        capacity: Some(10_000),
        totals,
        gates: gates(),
        chain: vec![name("ses"), name("smtp")],
        ttl: Some(ms(86_400_000)),
        held: Some(crate::LaneHold {
            reason: Reason::Window,
            upstream: Some(name("ses")),
            until: Some(time(8)),
        }),
        last_start: Some(time(9)),
        will_expire: 3,
    }
}

fn tenant_view() -> TenantView {
    TenantView {
        tenant: "acme".into(),
        last_processed: Some(time(1)),
        rounds_without_processing: -2,
        current_priority: 3,
        total_processed: 4,
        consecutive_batch: 5,
        waiting: 6,
        processing: 7,
        weight: 8,
        next: true,
    }
}

fn letter() -> DeadLetterView {
    let letter = DeadLetter {
        key: Some("outbox-1".into()),
        tenant: "acme".into(),
        level: Level::Normal,
        payload: b"GET /score\0\xff".as_slice().into(),
        chain: vec![name("ses"), name("smtp")],
        holds: vec![hold()],
        failed_attempts: 5,
        last_failure: failure(),
        enqueued_at: time(0),
        moved_at: time(9),
        ttl: ms(604_800_000),
        replay: Some(id(2)),
        callback: Some("https://app.example.com/done".into()),
        redrives: 2,
    };
    DeadLetterView { job: id(1), lane: name("email"), letter, next_redrive: Some(time(10)) }
}

fn bulks() -> Vec<BulkView> {
    use BulkStatus::{Counting, Done, Running, Stopped};
    let view = |status| BulkView {
        id: id(9),
        filter: filter(),
        status,
        total: 2_000,
        replayed: 700,
        failed: 3,
        running: 100,
        remaining: 1_197,
        began: time(1),
        ended: Some(time(2)),
    };
    [Counting, Running, Done, Stopped].map(view).into()
}

fn observed() -> crate::Observed {
    let transition = |kind: EventKind<Name>, dropped| crate::JobTransition {
        at: time(3),
        job: id(1),
        key: Some("outbox-1".into()),
        lane: name("email"),
        tenant: "acme".into(),
        level: Level::High,
        kind,
        status: Status::Dropped,
        dropped,
    };
    let state = crate::ObservedState {
        lanes: vec![lane_view()],
        upstreams: vec![upstream_view(BreakerState::HalfOpen)],
        alerts: crate::AlertsView::default(),
    };
    crate::Observed {
        cursor: super::questions::observe_cursor(),
        now: time(4),
        gap: true,
        jobs: vec![
            transition(EventKind::Started(name("ses")), None),
            transition(EventKind::Ended(Status::Dropped), Some(DropReason::TtlExpired)),
        ],
        state: Some(state),
    }
}

fn registration() -> RegistrationView {
    RegistrationView {
        process: ProcessId(7),
        stamp: 1_768_000_000_000,
        about: "all 7f".into(),
        last_heard: Some(time(5)),
        differs: 2,
        differing: vec![name("email"), name("ses")],
    }
}

fn quota() -> Quota {
    Quota {
        of: QuotaOf::Bucket(bucket_id().key()),
        reason: Reason::RateLimit,
        limit: Tokens::whole(100),
        remaining: Tokens::from_micro(-1),
        refill: Tokens::whole(2),
        period: ms(60_000),
        enough_at: time(30_000),
        full_at: time(90_000),
    }
}

fn seen_bucket() -> SeenBucket {
    let (spec, available) = (*hold().spec(), Tokens::from_micro(-1_500_000));
    SeenBucket { key: "up/P//".into(), spec, available, closed_until: time(5) }
}

fn bucket_view() -> BucketView {
    BucketView {
        id: bucket_id(),
        available: Tokens::from_micro(-1_500_000),
        capacity: Tokens::whole(100),
        refill: Tokens::whole(2),
        period: ms(60_000),
        held: Tokens::ONE,
        closed_until: Some(time(5)),
        spent_last_minute: Tokens::from_micro(1_500_000),
        credited_last_minute: Tokens::from_micro(500_000),
    }
}
