//! What a call's end means, for everybody who makes or hears of calls: workers, direct lanes, and workers elsewhere that
//! tell of their own.
//!
//! All of it is pure: from how a call ended and the rules, to what the gates are told, whether another upstream may help,
//! and what becomes of the job.

use eclusa_core::gate::CallResult;
use eclusa_core::retry::{ExtraCodes, FailedCall, RetryPolicy, Verdict};
use eclusa_core::{CallFailure, FailureReason, JobId, Name, Outcome, Report, RetryAfter, Span, Usage};

use super::judge::{CallEnd, Judgement};
use crate::request::{Mail, Response};

/// A call that ended, as whoever made it saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// How.
    pub end: CallEnd,
    /// For how long the upstream says to stay away.
    pub close: Option<Span>,
    /// The whole answer, where it was read here.
    pub answer: Option<Response>,
    /// What the answer says was used, where that was read on its way.
    pub usage: Usage,
    /// What is left to send of a message, in place of what was to be sent.
    pub left: Option<Box<Mail>>,
}

impl From<CallEnd> for Called {
    fn from(end: CallEnd) -> Self {
        Self { end, close: None, answer: None, usage: Usage::Unknown, left: None }
    }
}

/// A call that was judged by the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Where it was made.
    pub upstream: Name,
    /// What its end means.
    pub judgement: Judgement,
    /// What the gates are told.
    pub report: Report,
}

/// Which attempt of which job a call was.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// The job.
    pub job: JobId,
    /// From 1.
    pub number: u32,
    /// Of the jitter.
    pub seed: u64,
    /// It was made with one of several keys. What the upstream says of staying away is said to that key, and the job may go on
    /// with another.
    pub keyed: bool,
}

impl Judged {
    /// Judges a call to `upstream`, which means some codes differently.
    pub fn new(upstream: Name, called: &Called, codes: &ExtraCodes) -> Self {
        let judgement = called.end.judge(codes);
        let retry_after = called.close.map(|wait| RetryAfter { wait, bucket: None });
        let status = match called.end {
            CallEnd::Answered(status) | CallEnd::TooLarge { status, .. } | CallEnd::Ses { status, .. } => {
                Some(status)
            }
            _ => None,
        };
        let report =
            Report { result: judgement.result, status, usage: called.usage.clone(), retry_after, took: None };
        Self { upstream, judgement, report }
    }

    /// Whether another upstream may cure what went wrong. What may have had its effect is sent again only if `repeatable`.
    pub fn may_go_on(&self, repeatable: bool) -> bool {
        self.judgement.verdict == Some(Verdict::Retryable) && (repeatable || !self.judgement.ambiguous)
    }

    /// What becomes of the job when this was the last call of an attempt.
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
            // As if its worker had vanished: back to the front of its line, or dead where the lane forbids to send twice.
            (None, CallResult::Unknown) if !ambiguous || retry.retries_ambiguous() => Outcome::Release,
            (None, CallResult::Unknown) => Outcome::Dead(self.failure()),
            (None, _) if reusable => Outcome::Done,
            (None, _) => Outcome::DoneUncached,
        }
    }

    /// How it failed, to be kept with the job.
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
