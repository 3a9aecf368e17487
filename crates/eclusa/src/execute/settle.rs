//! What the result of a call means, for all that make or report calls: workers, direct lanes, and workers elsewhere
//! that report their own calls.
//!
//! All of it is pure: from the end of a call and the rules, to the report for the gates, whether another upstream may
//! help, and the outcome for the job.

use eclusa_core::gate::CallResult;
use eclusa_core::retry::{ExtraCodes, FailedCall, RetryPolicy, Verdict};
use eclusa_core::{CallFailure, FailureReason, JobId, Name, Outcome, Report, RetryAfter, Span, Usage};
use tokio::time::Instant;

use super::judge::{CallEnd, Judgement};
use crate::request::{Mail, Response};

/// The result of a call, as its caller saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// How the call ended.
    pub end: CallEnd,
    /// How long the upstream asks for no further calls.
    pub close: Option<Span>,
    /// The whole answer, if it was read here.
    pub answer: Option<Response>,
    /// The usage that the answer reports, if it was read while streaming.
    pub usage: Usage,
    /// What is left to send of a message, in place of the original.
    pub left: Option<Box<Mail>>,
    /// When the answer began, if that was seen.
    pub answered_at: Option<Instant>,
}

impl From<CallEnd> for Called {
    fn from(end: CallEnd) -> Self {
        Self { end, close: None, answer: None, usage: Usage::Unknown, left: None, answered_at: None }
    }
}

/// A call judged by the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The upstream that was called.
    pub upstream: Name,
    /// The meaning of its result.
    pub judgement: Judgement,
    /// The report for the gates.
    pub report: Report,
}

/// The attempt of a job that a call belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// The job.
    pub job: JobId,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The seed of the jitter.
    pub seed: u64,
    /// Whether it was made with one of several keys. A Retry-After then closes only that key, and the job may continue
    /// with another.
    pub keyed: bool,
}

impl Judged {
    /// Judges a call to `upstream`, whose `codes` extend the usual lists.
    pub fn new(upstream: Name, called: &Called, codes: &ExtraCodes) -> Self {
        let judgement = called.end.judge(codes);
        let retry_after = called.close.map(|wait| RetryAfter { wait, bucket: None });
        let status = match called.end {
            CallEnd::Answered(status) | CallEnd::TooLarge { status, .. } | CallEnd::Ses { status, .. } => {
                Some(status)
            }
            _ => None,
        };
        let (result, usage) = (judgement.result, called.usage.clone());
        let report = Report { status, usage, retry_after, ..Report::from(result) };
        Self { upstream, judgement, report }
    }

    /// Whether another upstream may help. A call that may have had an effect is sent again only if `repeatable`.
    pub fn may_go_on(&self, repeatable: bool) -> bool {
        self.judgement.verdict == Some(Verdict::Retryable) && (repeatable || !self.judgement.ambiguous)
    }

    /// The outcome for the job if this was the last call of an attempt.
    pub fn outcome(&self, retry: &RetryPolicy, attempt: Attempt) -> Outcome {
        let Judgement { result, verdict, ambiguous, reusable, .. } = self.judgement;
        match (verdict, result) {
            (Some(verdict), _) => {
                let close = self.report.retry_after.as_ref().filter(|_| !attempt.keyed);
                let retry_after = close.map(|close| close.wait);
                let failed = FailedCall { verdict, ambiguous, retry_after };
                match retry.next_attempt(attempt.seed, &failed, attempt.job, attempt.number) {
                    Some(after) => Outcome::Retry { after, failure: self.failure() },
                    None => Outcome::Dead(self.failure()),
                }
            }
            (None, CallResult::NotSent) => Outcome::Release,
            // As if its worker had vanished: back to the front of its line, or dead if the lane forbids sending twice.
            (None, CallResult::Unknown) if !ambiguous || retry.retries_ambiguous() => Outcome::Release,
            (None, CallResult::Unknown) => Outcome::Dead(self.failure()),
            (None, _) if reusable => Outcome::Done,
            (None, _) => Outcome::DoneUncached,
        }
    }

    /// The failure, to be kept with the job.
    pub fn failure(&self) -> CallFailure {
        let reason = FailureReason::new(&self.judgement.reason);
        CallFailure {
            reason: reason.unwrap_or_else(|_| FailureReason::fixed("failed without a reason")),
            code: self.judgement.code.as_deref().map(Into::into),
            upstream: Some(self.upstream.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
