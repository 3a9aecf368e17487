//! What functions are asked, in their words.

use eclusa_core::gate::CallResult;
use eclusa_core::{Failure, Hold, LaneSpec, NewJob, Outcome, Report, Settlement, Span};

use super::pack::{Value, pack};
use super::wire::{job_bytes, lease_bytes, level_number, ms};

pub(super) fn span(span: Span) -> Value<'static> {
    Value::Int(i64::try_from(span.as_millis().min(1 << 53)).unwrap_or(i64::MAX))
}

pub(super) fn new_job<'a>(
    job: &'a NewJob,
    lane: &LaneSpec,
    replay_of: Option<eclusa_core::JobId>,
) -> Value<'a> {
    let quota = lane.fairness.as_ref().map_or(1, |fairness| fairness.quota(&job.tenant));
    let chain = job.chain.as_ref().map(|names| {
        let names: Vec<_> = names.iter().map(eclusa_core::Name::as_str).collect();
        names.join(",").into_bytes()
    });
    Value::Map(vec![
        ("id", Value::Owned(job_bytes(job.id).into())),
        ("lane", Value::text(job.lane.as_str())),
        ("tenant", Value::text(&job.tenant)),
        ("quota", Value::Int(quota.into())),
        ("level", Value::Int(level_number(job.level))),
        ("payload", Value::Bytes(&job.payload)),
        ("key", Value::or_nil(job.key.as_deref(), Value::text)),
        (
            "fingerprint",
            Value::or_nil(job.key.as_ref(), |_| Value::Owned(job.identity().to_be_bytes().into())),
        ),
        ("cache_key", Value::or_nil(job.cache_key.as_deref(), Value::text)),
        ("ttl", Value::or_nil(job.ttl.or(lane.ttl), span)),
        ("delay", span(job.delay)),
        ("chain", Value::or_nil(chain, Value::Owned)),
        ("holds", holds(&job.holds)),
        ("replay_of", Value::or_nil(replay_of, |id| Value::Owned(job_bytes(id).into()))),
    ])
}

pub(super) fn holds(holds: &[Hold]) -> Value<'_> {
    let one = |hold: &Hold| {
        let (refill_micro, refill_ms) = hold.spec().refill();
        Value::List(vec![
            Value::Owned(hold.upstream().as_str().into()),
            Value::Owned(hold.bucket().into()),
            Value::Int(hold.tokens().as_micro()),
            Value::Int(hold.spec().capacity().as_micro()),
            Value::Int(refill_micro.cast_signed()),
            Value::Int(refill_ms.cast_signed()),
        ])
    };
    Value::List(holds.iter().map(one).collect())
}

pub(super) const fn result(result: CallResult) -> &'static str {
    match result {
        CallResult::Success => "Success",
        CallResult::Rejected => "Rejected",
        CallResult::Throttled => "Throttled",
        CallResult::Failed => "Failed",
        CallResult::TimedOut => "TimedOut",
        CallResult::NotSent => "NotSent",
        CallResult::Unknown => "Unknown",
    }
}

/// What a call told, as fields of the question about it.
pub(super) fn report(report: &Report) -> Vec<(&'static str, Value<'_>)> {
    let mut costs = Vec::new();
    for (bucket, tokens) in &report.costs {
        costs.push(Value::text(bucket));
        costs.push(Value::Int(tokens.as_micro()));
    }
    let bucket = report.close.as_ref().and_then(|close| close.bucket.as_deref());
    vec![
        ("result", Value::text(result(report.result))),
        ("costs", Value::List(costs)),
        ("close_until", Value::or_nil(report.close.as_ref(), |close| Value::Int(ms(close.until)))),
        ("close_bucket", Value::or_nil(bucket, Value::text)),
    ]
}

/// A failure as it is kept: reason, code, when, where.
pub(super) fn failure(failure: &Failure) -> Value<'static> {
    Value::Owned(pack(&[
        Value::text(failure.reason.as_str()),
        Value::or_nil(failure.code.as_deref(), Value::text),
        Value::Int(ms(failure.at)),
        Value::or_nil(failure.upstream.as_ref(), |name| Value::text(name.as_str())),
    ]))
}

pub(super) fn settlement(settlement: &Settlement) -> Value<'_> {
    let (outcome, at, why) = match &settlement.outcome {
        Outcome::Done => ("done", None, None),
        Outcome::DoneUncached => ("done_uncached", None, None),
        Outcome::Retry { at, failure } => ("retry", Some(*at), Some(failure)),
        Outcome::Dead(failure) => ("dead", None, Some(failure)),
        Outcome::Failed(failure) => ("failed", None, Some(failure)),
        Outcome::Release => ("release", None, None),
        Outcome::Awaiting(until) => ("awaiting", Some(*until), None),
    };
    let mut fields = report(&settlement.report);
    fields.extend([
        ("lease", Value::Owned(lease_bytes(settlement.lease))),
        ("outcome", Value::text(outcome)),
        ("at", Value::or_nil(at, |at| Value::Int(ms(at)))),
        ("failure", Value::or_nil(why, failure)),
        ("answer", Value::or_nil(settlement.answer.as_deref(), Value::Bytes)),
    ]);
    Value::Map(fields)
}
