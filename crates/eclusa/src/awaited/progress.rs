//! What an upstream says about a job: its own id for it, and later the result.

use eclusa_core::gate::CallResult;
use eclusa_core::retry::{FailedCall, RetryPolicy, Verdict};
use eclusa_core::{CallFailure, Completion, FailureReason, JobId, Name, Outcome, Report};
use serde_json::Value;

use crate::config::{Async, OnFailure, States};
use crate::execute::{Called, Judged};
use crate::request::Response;

/// The longest external id, in bytes. Longer values are not ids.
const MAX_ID: usize = 512;

/// What an upstream reported about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobProgress {
    Success,
    /// It failed; the status word is one of the config's.
    Failure(String),
    Running,
}

/// Reads a body by these rules; without rules every body means success.
pub(crate) fn progress(states: Option<&States>, body: &[u8]) -> JobProgress {
    let Some(States { status, success, failure }) = states else { return JobProgress::Success };
    let Some(word) = word_at(body, status) else { return JobProgress::Running };
    if success.contains(&word) {
        JobProgress::Success
    } else if failure.contains(&word) {
        JobProgress::Failure(word)
    } else {
        JobProgress::Running
    }
}

/// The upstream's own id for the job, if the body has it.
pub(crate) fn external_id(rules: &Async, body: &[u8]) -> Option<String> {
    word_at(body, &rules.id).filter(|id| !id.is_empty() && id.len() <= MAX_ID)
}

/// A string, number or boolean in a JSON body, as text.
fn word_at(body: &[u8], pointer: &str) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    match body.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Marks a submit as failed if its answer does not name the job, since its result could never be found. The failure is
/// ambiguous: the upstream may have accepted the job.
pub(crate) fn submit_failed(rules: &Async, called: &Called, judged: &mut Judged) {
    let unnamed = called.answer.as_ref().is_none_or(|answer| external_id(rules, &answer.body).is_none());
    if judged.judgement.verdict.is_none() && judged.report.result == CallResult::Success && unnamed {
        judged.judgement.result = CallResult::Failed;
        judged.judgement.verdict = Some(Verdict::Retryable);
        judged.judgement.ambiguous = true;
        judged.judgement.reason =
            format!("{}, but has no id of the job at `body:{}`", judged.judgement.reason, rules.id);
        judged.judgement.code = Some("no_external_id".to_owned());
        judged.report.result = CallResult::Failed;
    }
}

/// The completion for a job that `upstream` has ended; `None` while it is running.
pub(crate) fn completion(
    upstream: &Name,
    rules: &Async,
    (progress, answer): (JobProgress, Response),
    (job, attempt): (JobId, u32),
    retry: &RetryPolicy,
    seed: u64,
) -> Option<Completion> {
    let (result, outcome) = match progress {
        JobProgress::Running => return None,
        JobProgress::Success => (CallResult::Success, Outcome::Done),
        JobProgress::Failure(word) => {
            let reason = FailureReason::new(&format!("the upstream reported `{word}`"));
            let reason = reason.unwrap_or_else(|_| FailureReason::fixed("the upstream reported a failure"));
            let failure = CallFailure { reason, code: Some(word.into()), upstream: Some(upstream.clone()) };
            let failed = FailedCall { verdict: Verdict::Retryable, ambiguous: false, retry_after: None };
            let outcome = match retry.next_attempt(seed, &failed, job, attempt) {
                Some(after) => Outcome::Retry { after, failure },
                None => Outcome::Dead(failure),
            };
            (CallResult::Failed, outcome)
        }
    };
    Some(Completion {
        job,
        upstream: upstream.clone(),
        external: external_id(rules, &answer.body).map(Into::into),
        message: None,
        report: Report::from(result),
        outcome,
        next: rules.on_failure == OnFailure::Next,
        answer: Some(answer.to_payload()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_decide_and_everything_else_goes_on() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let states =
            States { status: "/a/s".into(), success: words(&["ok", "true", "3"]), failure: words(&["bad"]) };
        let says = |body: &str| progress(Some(&states), body.as_bytes());
        for success in [r#"{"a":{"s":"ok"}}"#, r#"{"a":{"s":true}}"#, r#"{"a":{"s":3}}"#] {
            assert_eq!(says(success), JobProgress::Success, "{success}");
        }
        assert_eq!(says(r#"{"a":{"s":"bad"}}"#), JobProgress::Failure("bad".into()));
        for other in [r#"{"a":{"s":"starting"}}"#, r#"{"a":{"s":null}}"#, r#"{"s":"ok"}"#, "ok", ""] {
            assert_eq!(says(other), JobProgress::Running, "{other}");
        }
        assert_eq!(progress(None, b"anything"), JobProgress::Success);
    }
}
