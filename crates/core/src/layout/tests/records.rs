//! One record of each kind, with all fields set.

use super::questions::completion;
use super::{alert, alert_key, bucket_id, filter, hold, id, lease, ms, name, note, terms, time, waited};
use crate::dead_letter::{ChainState, DeadLetter};
use crate::ended::{Fallback, ServedBy};
use crate::engine::alerts::history::{EndsAt, History, LinedUp};
use crate::engine::alerts::{AlertMeters, AlertState};
use crate::engine::bulk::{Bulk, BulkLane};
use crate::engine::debits::Debit;
use crate::engine::record::{
    JobRecord, JobState, LaneRecord, LeaseRecord, PhaseRecord, Record, SettledRecord, TenantRecord,
    TurnsRecord, UseRecord,
};
use crate::engine::submission::Submission;
use crate::gate::{Adaptive, Batch, Breaker, Bucket, BucketSpec, Cooldown, Gates, Pace, Pass, Reason, Tally};
use crate::job::{DropReason, Failure, FailureReason, Level, Status};
use crate::lane::{Budget, HoldCause, Holds, KeyEntry, PastHold, Tempo, Totals};
use crate::policy::{Correlation, HashKey};
use crate::time::{Span, SteadyTime};
use crate::timeline::{Event, EventKind};
use crate::tokens::Tokens;
use crate::views::LastFailure;

fn bucket() -> Bucket {
    let (balance, closed_until) = (Tokens::from_micro(-1_500_000), time(5));
    Bucket { balance, at: time(1), remainder: 77, closed_until, held: Tokens::ZERO }
}

fn gates() -> Gates {
    let tally = |step| Tally::from_steps([(Span::from_millis(step), 3), (ms(200), 1)]);
    Gates {
        breaker: Breaker {
            failures: 4,
            generation: 9,
            turned_at: time(2),
            open_until: Some(time(30_000)),
            probes: vec![(lease(1), time(10_000))],
            opened: 5,
            half_opened: 4,
            closed: 3,
        },
        cooldown: Cooldown { errors: 2, last_error: time(3), hot_until: time(4) },
        window: tally(1_700_000_000_000).into(),
        bucket: Some(bucket()),
        pace: Some(Pace { interval_us: 900_001, next_at: time(6), learned: Some(learned()) }),
        closed_until: time(7),
        starts: tally(1_700_000_060_000).into(),
        in_flight: 0,
    }
}

fn learned() -> Adaptive {
    Adaptive {
        rate: 1_111_110,
        knee: Some(1_307_188),
        slowed_at: time(8),
        strikes: 1,
        grown_at: time(9),
        used: true,
        owed_us: 999,
        floor_us: Some(48_500),
        batch: Batch { calls: 12, failed: 1, timed: 11, total_us: 600_000 },
    }
}

fn totals() -> Totals {
    Totals {
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
    }
}

fn failure() -> Failure {
    let reason = FailureReason::new("refused: ação").unwrap();
    Failure { reason, code: Some("503".into()), at: time(8), upstream: Some(name("ses")) }
}

fn holds() -> Holds {
    let hold =
        |reason, upstream, until| PastHold { cause: HoldCause { reason, upstream }, since: time(1), until };
    Holds {
        newest: Some(hold(Reason::Concurrency, None, None)),
        before: Some(hold(Reason::Window, Some(3), Some(time(8)))),
    }
}

/// A job that started after a wait.
fn waited_job() -> Record {
    let timeline = vec![Event { at: time(9), kind: EventKind::StartedAfter(2, Box::new(waited())) }];
    Record::JobState { id: id(1), state: Box::new(JobState { timeline, ..state(PhaseRecord::Queued, None) }) }
}

fn lease_record(used_by: UseRecord) -> LeaseRecord {
    LeaseRecord {
        used_by,
        lane: Some(1),
        upstream: Some(2),
        pass: Pass { generation: 9, answered: true },
        holds: vec![("cpf:1".into(), Tokens::whole(2))],
        expires: time(10_000),
        tenant_rate: Some(":rate/email/acme".into()),
        tenant_slot: Some(":slots/email/acme".into()),
    }
}

fn state(phase: PhaseRecord, settled: Option<SettledRecord>) -> JobState {
    let kinds = [
        EventKind::Accepted,
        EventKind::Started(2),
        EventKind::Failed(2, None),
        EventKind::Failed(2, Some(note())),
        EventKind::RetryAt(time(9)),
        EventKind::WaitsForRest,
        EventKind::TakenUp,
        EventKind::Released,
        EventKind::Awaiting(1),
        EventKind::Served(ServedBy::Stale(Fallback::Timeout)),
        EventKind::Ended(Status::Failed),
        EventKind::Omitted(31),
    ];
    JobState {
        seq: 300,
        phase,
        tried: 0b101,
        attempts: 2,
        lost: 1,
        upstream: Some(2),
        failure: Some(failure()),
        result: Some(b"answer"[..].into()),
        timeline: kinds.into_iter().map(|kind| Event { at: time(10), kind }).collect(),
        settled: settled.map(|how| (lease(3), how)),
    }
}

fn job(phase: PhaseRecord, settled: Option<SettledRecord>) -> Record {
    Record::Job(Box::new(JobRecord {
        id: id(1),
        lane: 1,
        tenant: 4,
        level: Level::High,
        created_at: time(0),
        expires_at: time(60_000),
        chain: vec![2, 0, 1],
        holds: vec![(2, "cpf:1".into(), Tokens::ONE)],
        key: Some("outbox-1".into()),
        cache_key: Some("cpf:1".into()),
        replay_of: Some(id(9)),
        payload: b"payload"[..].into(),
        state: state(phase, settled),
        submission: None,
        callback: None,
        waited_until: Some(time(10_000)),
    }))
}

fn job_state(phase: PhaseRecord, settled: SettledRecord) -> Record {
    Record::JobState { id: id(1), state: Box::new(state(phase, Some(settled))) }
}

fn job_submission(phase: PhaseRecord, settled: SettledRecord) -> Record {
    let submission = Submission {
        external: Some("ext-1".into()),
        next: true,
        poll: Some((time(10), ms(10_000))),
        early: Some(Box::new(completion())),
        messages: vec![u64::MAX, 7],
    };
    Record::JobSubmission {
        id: id(1),
        state: Box::new(state(phase, Some(settled))),
        submission: Box::new(submission),
    }
}

fn letter() -> DeadLetter {
    DeadLetter {
        key: Some("outbox-1".into()),
        tenant: "acme".into(),
        level: Level::Low,
        payload: b"payload"[..].into(),
        chain: vec![name("ses"), name("smtp")],
        holds: vec![hold()],
        failed_attempts: 5,
        last_failure: failure(),
        enqueued_at: time(0),
        moved_at: time(11),
        ttl: ms(604_800_000),
        replay: Some(id(2)),
        callback: Some("https://app.example.com/done".into()),
        redrives: 2,
    }
}

fn bulk() -> Bulk {
    Bulk {
        id: id(9),
        filter: filter(),
        began: time(1),
        ended: Some(time(2)),
        stopped: true,
        total: 2_000,
        replayed: 700,
        failed: 3,
        lanes: vec![BulkLane { lane: 1, counted: 400, at: 300, end: 400, running: 100 }],
    }
}

fn debit() -> Debit {
    let (buckets, credited) = (vec![bucket_id().key()], vec!["payment".into()]);
    Debit { at: time(19), until: time(20), buckets, credited }
}

fn lane() -> Record {
    let turns = |current| TurnsRecord { turn: -3, current, in_a_row: 2 };
    Record::Lane(Box::new(LaneRecord {
        number: 1,
        name: name("email"),
        paused: true,
        next_seq: 301,
        turns: [turns(Some(4)), turns(None), turns(Some(0))],
        gates: gates(),
        totals: totals(),
        tempo: Tempo { last_grant: time(12), interval_us: 12_345 },
        budget: Some(Box::new(Budget {
            min: Some(Bucket::holding(Tokens::whole(7), time(3))),
            began: time(2),
            firsts: (300, 4),
            retries: (5, 6),
        })),
        letter_ages: super::replies::letter_ages(),
    }))
}

fn tenant() -> Record {
    Record::Tenant(TenantRecord {
        lane: 1,
        arrival: 4,
        name: "acme".into(),
        levels: [(Some(-2), Some((-1, 300))), (None, None), (Some(7), None)],
        processed: 99,
        last_processed: Some(time(13)),
    })
}

fn jobs() -> Vec<(&'static str, Record)> {
    let finished = |dropped, served| PhaseRecord::Finished {
        at: time(14),
        number: 301,
        status: Status::Completed,
        dropped,
        served,
    };
    let running = |used_by| PhaseRecord::Processing(lease(2), lease_record(used_by));
    vec![
        ("record-job", job(running(UseRecord::Job), None)),
        (
            "record-job-pending",
            job_state(PhaseRecord::Pending { due: time(15) }, SettledRecord::RetryAt(time(15))),
        ),
        ("record-job-queued", job_state(PhaseRecord::Queued, SettledRecord::Requeued)),
        ("record-job-coalesced", job_state(PhaseRecord::Coalesced, SettledRecord::Requeued)),
        ("record-job-awaiting", job_state(running(UseRecord::Awaiting), SettledRecord::Awaiting(lease(2)))),
        (
            "record-job-finished",
            job_state(finished(None, Some(ServedBy::Cache)), SettledRecord::Ended(Status::Completed)),
        ),
        (
            "record-job-dropped",
            job_state(finished(Some(DropReason::Preempted), None), SettledRecord::Ended(Status::Dropped)),
        ),
        ("record-job-away", job_submission(running(UseRecord::Awaiting), SettledRecord::Awaiting(lease(2)))),
        ("record-job-gone", Record::JobGone(id(1))),
    ]
}

/// Samples, each with the name of its golden file.
pub(super) fn all() -> Vec<(&'static str, Record)> {
    let mut steady = SteadyTime::default();
    steady.start_at(time(500), time(16));
    let key = || "cpf:1".into();
    let spec = BucketSpec::new(10, 40, Span::from_secs(86_400)).unwrap();
    let entry = KeyEntry { job: id(1), fingerprint: u64::MAX, expires: time(17) };
    let bytes = || b"rules"[..].into();
    let mut all = vec![
        ("record-meta", Record::Meta { epoch: 1_700_000_000_000, next_lease: 42, time: steady }),
        ("record-lane", lane()),
        ("record-upstream", Record::Upstream { number: 2, name: name("ses"), gates: gates() }),
        ("record-upstream-new", Record::Upstream { number: 0, name: name("smtp"), gates: Gates::default() }),
        ("record-tenant", tenant()),
        ("record-tenant-gone", Record::TenantGone { lane: 1, arrival: 4 }),
        ("record-lease", Record::Lease(lease(4), lease_record(UseRecord::Call))),
        ("record-lease-later", Record::Lease(lease(5), lease_record(UseRecord::LaterCall))),
        ("record-lease-gone", Record::LeaseGone(lease(4))),
        ("record-bucket", Record::Bucket { key: key(), spec, bucket: bucket() }),
        ("record-bucket-gone", Record::BucketGone(key())),
        ("record-dead", Record::Dead { lane: 1, number: 302, job: id(1), letter: Box::new(letter()) }),
        ("record-dead-gone", Record::DeadGone { lane: 1, number: 302 }),
        ("record-key", Record::Key { lane: 1, key: key(), entry }),
        ("record-key-gone", Record::KeyGone { lane: 1, key: key() }),
        (
            "record-cache",
            Record::Cache {
                lane: 1,
                key: key(),
                answer: b"700"[..].into(),
                stored_at: time(18),
                number: 303,
            },
        ),
        ("record-cache-gone", Record::CacheGone { lane: 1, key: key() }),
        ("record-lane-rules", Record::LaneRules { number: 1, rules: bytes() }),
        ("record-upstream-rules", Record::UpstreamRules { number: 2, rules: bytes() }),
        (
            "record-registration",
            Record::Registration {
                process: 7,
                stamp: 1_700_000_000_000,
                about: "host 1".into(),
                spec: bytes(),
            },
        ),
        ("record-registration-gone", Record::RegistrationGone(7)),
        ("record-terms", Record::Terms { family: "dict/ENTRIES_READ/PF/".into(), terms: terms() }),
        ("record-correlation", Record::JobCorrelation { id: id(1), correlation: Correlation(7) }),
        ("record-correlation-lease", Record::LeaseCorrelation { id: lease(4), correlation: Correlation(7) }),
        ("record-debit", Record::Debit { correlation: Correlation(7), debit: debit() }),
        ("record-debit-gone", Record::DebitGone(Correlation(7))),
        ("record-hash-key", Record::HashKey(HashKey::new(u128::MAX))),
        (
            "record-dead-correlation",
            Record::DeadCorrelation { lane: 3, number: 300, correlation: Correlation(7) },
        ),
        (
            "record-job-callback",
            Record::JobCallback { id: id(1), url: "https://app.example.com/done".into() },
        ),
        (
            "record-code",
            Record::Code {
                upstream: 3,
                code: "409".into(),
                count: crate::engine::codes::CodeCount { seen: 9, cured: 4, failed_again: 3 },
            },
        ),
        ("record-code-gone", Record::CodeGone { upstream: 3, code: "409".into() }),
        ("record-job-waited", waited_job()),
        ("record-lane-holds", Record::LaneHolds { lane: 1, holds: holds() }),
        (
            "record-upstream-failure",
            Record::UpstreamFailure { upstream: 3, failure: LastFailure { code: "503".into(), at: time(8) } },
        ),
        ("record-schedule", Record::Schedule { name: name("nightly"), last: time(7) }),
        ("record-bulk", Record::Bulk(Box::new(bulk()))),
        ("record-bulk-gone", Record::BulkGone(id(9))),
        (
            "record-redrive-way",
            Record::RedriveState {
                lane: 1,
                chain: vec![name("ses"), name("smtp")],
                state: ChainState { held_until: time(600_000), proven: true },
            },
        ),
        ("record-redrive-way-gone", Record::RedriveStateGone { lane: 1, chain: vec![name("ses")] }),
    ];
    all.extend(jobs());
    all.extend(alerts());
    all.extend(super::history::records());
    all
}

fn alerts() -> Vec<(&'static str, Record)> {
    vec![
        ("record-alert", Record::Alert { key: Box::new(alert_key()), state: alert_state() }),
        ("record-alert-gone", Record::AlertGone(Box::new(alert_key()))),
        ("record-alerts-resolved", Record::AlertsResolved(vec![alert(Some(time(9)))])),
        (
            "record-alert-meters",
            Record::AlertMeters(AlertMeters {
                rejected: Some(7),
                rejected_at: Some(time(7)),
                newly_rejected: 2,
                lost_at: Some(time(9)),
            }),
        ),
        (
            "record-alert-history",
            Record::AlertHistory {
                lane: 3,
                history: History {
                    ends: vec![EndsAt { at: time(7), ended: 300, dead: 7 }],
                    marks: vec![LinedUp { at: time(9), next_seq: 300 }],
                },
            },
        ),
    ]
}

fn alert_state() -> AlertState {
    AlertState {
        value_micros: 51_000_000,
        threshold_micros: 50_000_000,
        since: time(7),
        firing: true,
        over_since: Some(time(9)),
    }
}
