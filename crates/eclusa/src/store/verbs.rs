//! Maps questions to the engine's verbs.

use eclusa_core::gate::CallResult;
use eclusa_core::layout::{Question, Reply};
use eclusa_core::{Admission, Cancelled, Ended, Engine, Fired, Outcome, Replayed, Report, Settlement, Time};

/// Answers a question from the engine. It never waits: a question that may wait is answered from the current state.
pub(super) fn apply(engine: &mut Engine, question: Question, now: Time) -> Reply {
    match question {
        Question::Enqueue(jobs) => Reply::Enqueued(engine.enqueue(jobs, now)),
        Question::Dispatch(ask) => Reply::Dispatched(engine.dispatch(&ask, now)),
        Question::Advance(ask) => Reply::Advanced(engine.advance(ask, now)),
        Question::Extend { leases, lease } => Reply::Extended(engine.extend(&leases, lease, now)),
        Question::Settle(settlements) => Reply::Settled(engine.settle(settlements, now)),
        Question::Cancel(job) => Reply::Cancelled(engine.cancel(job, now)),
        Question::CancelAll(ask) => Reply::CancelledAll(engine.cancel_all(&ask, now)),
        Question::Fire(ask) => Reply::Fired(engine.fire(ask, now)),
        Question::Watch(ask) => Reply::Watched(engine.watch(ask, now)),
        Question::Alerts => Reply::Alerts(engine.alerts()),
        Question::Observe(ask) => Reply::Observed(Box::new(engine.observe(&ask, now))),
        Question::History(query) => Reply::History(engine.history(&query, now)),
        Question::Schedules => Reply::Schedules(engine.schedules()),
        Question::Codes(upstream) => Reply::Codes(engine.codes(&upstream)),
        Question::Admit(ask) => Reply::Admitted(engine.admit(&ask, now)),
        Question::Record { upstream, result } => Reply::Upstream(engine.record(&upstream, result, now)),
        Question::Recover(upstream) => Reply::Upstream(engine.recover(&upstream, now)),
        Question::Reset(upstream) => Reply::Upstream(engine.reset(&upstream, now)),
        Question::Replay(ask) => Reply::Replayed(engine.replay(ask, now)),
        Question::Bulk(ask) => Reply::Bulk(engine.bulk(ask, now)),
        Question::DiscardAll(query) => Reply::Discarded(engine.discard_all(&query)),
        Question::CountLetters(ask) => Reply::LetterCounts(engine.count_letters(&ask)),
        Question::Discard { lane, letter } => Reply::Done(engine.discard(&lane, letter)),
        Question::Pause { lane, paused } => Reply::Done(engine.pause(&lane, paused, now)),
        Question::Sweep => Reply::Swept(engine.sweep(now)),
        Question::Why(job) => Reply::Why(engine.why(job, now)),
        Question::Job(job) => Reply::Job(engine.job(job)),
        Question::Wait(ask) => Reply::Job(engine.job(ask.job)),
        Question::Jobs(query) => Reply::Jobs(engine.jobs(&query)),
        Question::Lanes => Reply::Lanes(engine.lanes(now)),
        Question::Upstreams => Reply::Upstreams(engine.upstreams(now)),
        Question::Tenants(query) => Reply::Tenants(engine.tenants(&query, now)),
        Question::DeadLetter(letter) => Reply::DeadLetter(engine.dead_letter(letter)),
        Question::DeadLetters(query) => Reply::DeadLetters(engine.dead_letters(&query)),
        Question::CatchUp(fallback_log) => {
            engine.catch_up(fallback_log, now);
            Reply::Done(true)
        }
        Question::NotFull => Reply::NotFull(engine.not_full_buckets(now)),
        Question::Fleet => Reply::Fleet(engine.registrations().collect()),
        Question::Credit(credits) => Reply::Credited(engine.credit(&credits, now)),
        Question::Correct(corrections) => Reply::Corrected(engine.correct(&corrections, now)),
        Question::HashKey(offer) => Reply::HashKey(engine.hash_key(offer)),
        Question::Complete(answer) => Reply::Completed(engine.complete(answer, now)),
        Question::Poll(ask) => Reply::Polls(engine.poll(&ask, now)),
        Question::Buckets(query) => Reply::Buckets(engine.buckets(&query, now)),
        Question::Leave(process) => {
            engine.unregister(process, now);
            Reply::Done(true)
        }
    }
}

/// The jobs that ended by a verb.
pub(super) fn ends(reply: &Reply) -> &[Ended] {
    match reply {
        Reply::Enqueued(answer) | Reply::Fired(Fired::Submitted(answer)) => &answer.ended,
        Reply::Watched(changes) => &changes.ended,
        Reply::Dispatched(answer) => &answer.ended,
        Reply::Settled(answer) => &answer.ended,
        Reply::Completed(answer) => &answer.ended,
        Reply::Swept(answer) => &answer.ended,
        Reply::Admitted(answer) => &answer.ended,
        Reply::Cancelled(Cancelled::Yes(ended)) => std::slice::from_ref(ended),
        Reply::CancelledAll(answer) => &answer.ended,
        Reply::Replayed(Replayed::As(_, ended)) => ended,
        _ => &[],
    }
}

/// Whether a question may be repeated when its answer was lost and it may have taken effect. Reports that would count
/// twice may not.
pub(super) fn is_repeatable(question: &Question) -> bool {
    !matches!(question, Question::Record { .. } | Question::CatchUp(_))
}

/// Whether a question changes nothing, so that its answer matters only to its caller.
pub(super) fn is_read(question: &Question) -> bool {
    matches!(
        question,
        Question::Alerts
            | Question::Buckets(_)
            | Question::Codes(_)
            | Question::CountLetters(_)
            | Question::DeadLetter(_)
            | Question::DeadLetters(_)
            | Question::Fleet
            | Question::History(_)
            | Question::Job(_)
            | Question::Jobs(_)
            | Question::Lanes
            | Question::NotFull
            | Question::Observe(_)
            | Question::Schedules
            | Question::Tenants(_)
            | Question::Upstreams
            | Question::Wait(_)
            | Question::Why(_)
    )
}

/// Whether a question may be held until something happens.
pub(super) fn may_wait(question: &Question) -> bool {
    match question {
        Question::Dispatch(ask) => !ask.wait.is_zero(),
        Question::Observe(ask) => !ask.wait.is_zero(),
        Question::Wait(_) => true,
        _ => false,
    }
}

/// The question that undoes a reply which no caller will act on.
pub(super) fn undo_question(reply: &Reply) -> Option<Question> {
    let release = |lease| Settlement {
        lease,
        report: Report::from(CallResult::NotSent),
        outcome: Outcome::Release,
        answer: None,
        unsent: None,
    };
    match reply {
        Reply::Dispatched(answer) if !answer.grants.is_empty() => {
            Some(Question::Settle(answer.grants.iter().map(|grant| release(grant.lease)).collect()))
        }
        Reply::Admitted(answer) => match answer.admission {
            Admission::Granted { lease, .. } if lease.number > 0 => {
                Some(Question::Settle(vec![release(lease)]))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Payload bytes that a question adds to the journal, beyond what every question adds.
pub(super) fn payload_bytes(question: &Question) -> usize {
    match question {
        Question::Enqueue(jobs) => jobs.iter().map(|job| job.payload.len()).sum(),
        Question::Fire(ask) => ask.job.as_ref().map_or(0, |job| job.payload.len()),
        Question::Replay(ask) => ask.edit.as_ref().map_or(0, |job| job.payload.len()),
        Question::Settle(settlements) => {
            settlements.iter().filter_map(|one| one.answer.as_ref()).map(|answer| answer.len()).sum()
        }
        Question::Complete(answer) => answer.answer.as_ref().map_or(0, |answer| answer.len()),
        _ => 0,
    }
}
