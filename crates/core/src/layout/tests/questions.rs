//! Every question, with all fields set.

use super::{alert, bucket_id, cursor, filter, hold, id, lease, letter_cursor, ms, name, terms, time};
use crate::alert::{AlertLimits, DeadLetterRate, Evaluation, Watch};
use crate::engine::{BucketOf, FallbackCall, FallbackLog, FallbackReport, ProcessId};
use crate::gate::{CallResult, Reason, Share};
use crate::ids::Name;
use crate::job::{CallFailure, FailureReason, Level, NewJob, Status};
use crate::layout::Question;
use crate::policy::{Correlation, HashKey};
use crate::time::Time;
use crate::tokens::Tokens;
use crate::verbs::{
    Admit, Advance, BulkAsk, CancelAll, Completion, Correction, CountLetters, Credit, Denied, Dispatch, Fire,
    HistoryOf, HistoryQuery, LetterBy, LetterFilter, LetterQuery, Outcome, Poll, Polling, Replay, Report,
    RetryAfter, Settlement, Usage, Wait,
};
use crate::views::{BucketQuery, JobQuery, TenantQuery};

/// Samples, each with the name of its golden file.
pub(super) fn all() -> Vec<(&'static str, Question)> {
    let (lane, upstream) = (name("email"), name("ses"));
    let mut all = vec![
        Question::Enqueue(vec![full_job(), NewJob::new(id(2), lane.clone(), "", Vec::new())]),
        Question::Dispatch(dispatch()),
        Question::Advance(Advance {
            lease: lease(1),
            upstream: upstream.clone(),
            report: report(CallResult::Throttled),
            failure: failure(),
            unsent: Some(b"left".as_slice().into()),
        }),
        Question::Extend { leases: vec![lease(1), lease(2)], lease: ms(10_000) },
        Question::Settle(settlements()),
        Question::Cancel(id(1)),
        Question::Admit(Admit {
            lane: Some(lane.clone()),
            tenant: Some("acme".into()),
            chain: vec![upstream.clone(), name("smtp")],
            holds: vec![hold(), hold().under(terms())],
            correlation: Some(Correlation(7)),
            lease: ms(10_000),
            nonce: u64::MAX,
            after: Some((lease(2), report(CallResult::Failed))),
            probe: true,
        }),
        Question::Record { upstream: upstream.clone(), result: CallResult::TimedOut },
        Question::Recover(upstream.clone()),
        Question::Reset(upstream),
        Question::Replay(Replay {
            lane: lane.clone(),
            letter: id(1),
            id: id(2),
            edit: Some(Box::new(full_job())),
        }),
        Question::Discard { lane: lane.clone(), letter: id(1) },
        Question::Pause { lane: lane.clone(), paused: true },
        Question::Sweep,
        Question::Why(id(1)),
        Question::Job(id(1)),
        Question::Jobs(JobQuery {
            lane: Some(lane.clone()),
            tenant: Some("acme".into()),
            status: Some(Status::Processing),
            external: Some("ext-1".into()),
            key: Some("outbox-7".into()),
            since: Some(Time::from_millis(1 << 40)),
            until: Some(Time::from_millis(2 << 40)),
            after: Some(cursor()),
            max: 100,
        }),
        Question::Lanes,
        Question::Upstreams,
        Question::Tenants(TenantQuery {
            lane: lane.clone(),
            names: Some(vec!["ac*".into()]),
            after: 7,
            max: 100,
            busiest: true,
        }),
        Question::DeadLetter(id(1)),
        Question::DeadLetters(letter_query(lane)),
        Question::Wait(Wait { job: id(1), timeout: ms(30_000), allow_unknown: true, seen: Some(7) }),
        Question::CatchUp(fallback_log()),
        Question::Fleet,
        Question::Leave(ProcessId(7)),
        Question::Credit(vec![Credit { event: "payment".into(), correlation: Correlation(7) }]),
        Question::Correct(vec![Correction {
            bucket: bucket_id(),
            spec: *hold().spec(),
            reported: Tokens::from_micro(-1_500_000),
            when_asked: Tokens::ONE,
            asked_ago: ms(30),
        }]),
        Question::HashKey(HashKey::new(u128::MAX)),
        Question::Buckets(BucketQuery {
            upstream: Some(name("dict")),
            policy: Some(name("ENTRIES_READ")),
            scope: bucket_id().scope,
            after: 7,
            max: 100,
            shared: true,
            lowest: true,
        }),
        Question::Complete(completion()),
        Question::CancelAll(CancelAll {
            query: JobQuery { lane: Some(name("email")), max: 100, ..JobQuery::default() },
            dry_run: true,
        }),
        Question::Fire(Fire {
            schedule: name("nightly"),
            moment: Time::from_millis(1 << 40),
            job: Some(Box::new(full_job())),
        }),
        Question::Schedules,
        Question::Poll(Poll { upstream: name("fal"), max: 100, claim: ms(5_000), asked: vec![id(1)] }),
    ];
    all.extend(of_operators());
    all.into_iter().map(|question| (file_name(&question), question)).collect()
}

fn of_operators() -> [Question; 9] {
    [
        Question::Watch(watch()),
        Question::Alerts,
        Question::CountLetters(CountLetters {
            filter: filter(),
            by: LetterBy::Tenant,
            after: Some(letter_cursor()),
            idle: true,
            trend_until: Some(time(6)),
        }),
        Question::DiscardAll(LetterQuery { max: 100, ..LetterQuery::default() }),
        Question::Bulk(BulkAsk::Begin { id: id(1), filter: filter() }),
        Question::Codes(name("ses")),
        Question::Observe(crate::Observe { seen: Some(observe_cursor()), wait: ms(2_000) }),
        Question::History(HistoryQuery {
            of: HistoryOf::Lanes(vec![name("email"), name("sms")]),
            minutes: 1_440,
        }),
        Question::NotFull,
    ]
}

pub(super) fn observe_cursor() -> crate::ObserveCursor {
    crate::ObserveCursor { epoch: 9, began: super::time(1), number: 7, state: u64::MAX }
}

fn watch() -> Watch {
    let limits = AlertLimits {
        dead_letters: Some(100),
        tenant_dead_letters: Some(50),
        dead_letter_rate: Some(DeadLetterRate { share_micros: 20_000, over: ms(3_600_000), min: 50 }),
        oldest_wait: Some(ms(300_000)),
        breaker_open: true,
        redis_rejected_connections: true,
        store_lost_data: false,
        hold: ms(10_000),
        clear: ms(30_000),
    };
    let evaluation = Evaluation {
        limits,
        seen: vec![alert(None).condition],
        rejected_connections: Some(7),
        operators: true,
        tenants: vec!["acme".into()],
    };
    Watch { lost_data: true, evaluation: Some(evaluation) }
}

/// Does not compile until a new question has a name here; it then needs a sample above.
fn file_name(question: &Question) -> &'static str {
    match question {
        Question::Enqueue(_) => "question-enqueue",
        Question::Dispatch(_) => "question-dispatch",
        Question::Advance(_) => "question-advance",
        Question::Extend { .. } => "question-extend",
        Question::Settle(_) => "question-settle",
        Question::Cancel(_) => "question-cancel",
        Question::Admit(_) => "question-admit",
        Question::Record { .. } => "question-record",
        Question::Recover(_) => "question-recover",
        Question::Reset(_) => "question-reset",
        Question::Replay(_) => "question-replay",
        Question::Discard { .. } => "question-discard",
        Question::Pause { .. } => "question-pause",
        Question::Sweep => "question-sweep",
        Question::Why(_) => "question-why",
        Question::Job(_) => "question-job",
        Question::Jobs(_) => "question-jobs",
        Question::Lanes => "question-lanes",
        Question::Upstreams => "question-upstreams",
        Question::Tenants(_) => "question-tenants",
        Question::DeadLetter(_) => "question-dead-letter",
        Question::DeadLetters(_) => "question-dead-letters",
        Question::Wait(_) => "question-wait",
        Question::CatchUp(_) => "question-catch-up",
        Question::Fleet => "question-fleet",
        Question::NotFull => "question-not-full",
        Question::Leave(_) => "question-leave",
        Question::Credit(_) => "question-credit",
        Question::Correct(_) => "question-correct",
        Question::HashKey(_) => "question-hash-key",
        Question::Buckets(_) => "question-buckets",
        Question::Complete(_) => "question-complete",
        Question::Poll(_) => "question-poll",
        Question::CancelAll(_) => "question-cancel-all",
        Question::CountLetters(_) => "question-count-letters",
        Question::DiscardAll(_) => "question-discard-all",
        Question::Bulk(_) => "question-bulk",
        Question::Fire(_) => "question-fire",
        Question::Schedules => "question-schedules",
        Question::Watch(_) => "question-watch",
        Question::Alerts => "question-alerts",
        Question::Codes(_) => "question-codes",
        Question::Observe(_) => "question-observe",
        Question::History(_) => "question-history",
    }
}

fn letter_query(lane: Name) -> LetterQuery {
    let filter = LetterFilter { lanes: Some(vec![lane]), ..LetterFilter::default() };
    LetterQuery { filter, after: Some(letter_cursor()), max: 100 }
}

pub(super) fn full_job() -> NewJob {
    NewJob {
        id: id(1),
        lane: name("email"),
        tenant: "acme".into(),
        level: Level::High,
        payload: b"GET /score\0\xff".as_slice().into(),
        key: Some("outbox-1".into()),
        fingerprint: Some(u64::MAX),
        cache_key: Some("cpf:1".into()),
        ttl: Some(ms(60_000)),
        delay: ms(500),
        chain: Some(vec![name("ses"), name("smtp")]),
        holds: vec![hold().under(terms())],
        correlation: Some(Correlation(u128::MAX)),
        callback: Some("https://app.example.com/done".into()),
        caller_waits: Some(ms(10_000)),
    }
}

fn dispatch() -> Dispatch {
    Dispatch {
        lane: name("email"),
        max: 100,
        lease: ms(10_000),
        nonce: 1 << 62,
        wait: ms(1_000),
        denied: Some(Denied { upstream: Some(name("ses")), reason: Reason::RateLimit }),
    }
}

fn report(result: CallResult) -> Report {
    let retry_after = Some(RetryAfter { wait: ms(30_000), bucket: Some("cpf:1".into()) });
    let usage = match result {
        CallResult::Success => Usage::BySource(vec![("body:/usage".into(), Tokens::from_micro(1_500_000))]),
        CallResult::Rejected => Usage::Amount(Tokens::whole(3)),
        _ => Usage::Unknown,
    };
    let (took, answered_ago) = (Some(ms(250)), Some(ms(40)));
    Report { result, status: Some(404), usage, retry_after, took, answered_ago }
}

fn failure() -> CallFailure {
    let reason = FailureReason::new("refused: ação").unwrap();
    CallFailure { reason, code: Some("503".into()), upstream: Some(name("ses")) }
}

/// Every outcome and every result.
fn settlements() -> Vec<Settlement> {
    let ends = [
        (CallResult::Success, Outcome::Done),
        (CallResult::Success, Outcome::DoneUncached),
        (CallResult::Failed, Outcome::Retry { after: ms(2_000), failure: failure() }),
        (CallResult::Rejected, Outcome::Dead(failure())),
        (CallResult::TimedOut, Outcome::Failed(failure())),
        (CallResult::NotSent, Outcome::Release),
        (CallResult::Unknown, awaiting()),
        (CallResult::Throttled, Outcome::Release),
        (CallResult::Unreachable, Outcome::Release),
    ];
    let settle = |(number, (result, outcome)): (u64, (CallResult, Outcome))| Settlement {
        lease: lease(number),
        report: if number == 1 { result.into() } else { report(result) },
        outcome,
        answer: (number != 1).then(|| b"answer".as_slice().into()),
        unsent: (number == 3).then(|| b"left".as_slice().into()),
    };
    (1..).zip(ends).map(settle).collect()
}

fn awaiting() -> Outcome {
    let poll = Some(Polling { after: ms(30_000), every: ms(10_000) });
    Outcome::Awaiting { timeout: ms(600_000), external: Some("ext-1".into()), next: true, poll }
}

pub(super) fn completion() -> Completion {
    Completion {
        job: id(1),
        upstream: name("fal"),
        external: Some("ext-1".into()),
        message: Some(u64::MAX),
        report: Report { answered_ago: None, ..report(CallResult::Failed) },
        outcome: Outcome::Retry { after: ms(2_000), failure: failure() },
        next: true,
        answer: Some(b"{}".as_slice().into()),
    }
}

fn fallback_log() -> FallbackLog {
    let call = FallbackCall {
        lane: Some(name("email")),
        tenant: Some("acme".into()),
        upstream: name("ses"),
        holds: vec![hold()],
        correlation: Some(Correlation(7)),
        began: ms(3_000),
        lease: Some((lease(1), ms(7_000))),
        ended: Some(ms(1_000)),
    };
    let retry_after = Some(RetryAfter { wait: ms(5_000), bucket: Some("ses/acme".into()) });
    let report = FallbackReport {
        upstream: name("ses"),
        result: CallResult::Throttled,
        retry_after,
        hold: Some(hold()),
        began: Some(ms(3_000)),
        ago: ms(1_000),
    };
    let left = vec![
        (BucketOf::Lane(name("email")), Tokens::whole(3)),
        (BucketOf::Upstream(name("ses")), Tokens::from_micro(-1)),
    ];
    let share = Share::new(1, 3).unwrap();
    FallbackLog { share, since: ms(9_000), left, calls: vec![call], reports: vec![report] }
}
