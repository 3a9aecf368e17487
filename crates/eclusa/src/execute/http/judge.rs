//! What the end of a call means: for the upstream's gates, and for the job.

use eclusa_core::Span;
use eclusa_core::gate::CallResult;
use eclusa_core::retry::{Ending, ExtraCodes, Verdict, classify};
use http::StatusCode;

use super::{CallEnd, Called};

/// The meaning of a call's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// For the gates.
    pub result: CallResult,
    /// Whether trying again may help; nothing if the call succeeded.
    pub verdict: Option<Verdict>,
    /// The upstream may have acted on the call, and nobody knows.
    pub ambiguous: bool,
    /// For people; never empty, and without anything of the request or the answer.
    pub reason: String,
    /// The status, or a word for an end without one.
    pub code: Option<String>,
    /// Whether the answer may be given to equal requests.
    pub reusable: bool,
}

/// Whether an answer with this status may be given again: a success, but of redirections only those that HTTP lets
/// caches keep without being told.
pub(crate) const fn is_reusable(status: u16) -> bool {
    matches!(status, 200..=299 | 300 | 301 | 308)
}

impl Judgement {
    /// Of an answer that came whole.
    pub fn of_status(status: u16, codes: &ExtraCodes) -> Self {
        let (result, verdict) = classify(Ending::Http(status), codes);
        let name = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let reason = name.map_or(format!("answered {status}"), |name| format!("answered {status} {name}"));
        let (code, reusable) = (Some(status.to_string()), is_reusable(status));
        Self { result, verdict, ambiguous: false, reason, code, reusable }
    }

    fn without_answer(
        ending: Ending<'_>,
        codes: &ExtraCodes,
        ambiguous: bool,
        reason: &str,
        code: &str,
    ) -> Self {
        let (result, verdict) = classify(ending, codes);
        let (reason, code) = (reason.to_owned(), Some(code.to_owned()));
        Self { result, verdict, ambiguous, reason, code, reusable: false }
    }
}

impl CallEnd {
    /// What it means at an upstream with these codes.
    pub fn judge(&self, codes: &ExtraCodes) -> Judgement {
        match self {
            CallEnd::Answered(answer) => Judgement::of_status(answer.status, codes),
            CallEnd::TooLarge { status, max } => too_large(*status, *max, codes),
            // Nothing was sent, but the upstream is not well: its breaker must hear of it.
            CallEnd::NotSent(why) => {
                Judgement::without_answer(Ending::Connection, codes, false, why, "connect_failed")
            }
            CallEnd::Invalid(why) => Judgement {
                result: CallResult::NotSent,
                verdict: Some(Verdict::Permanent),
                ambiguous: false,
                reason: why.clone(),
                code: Some("invalid_request".into()),
                reusable: false,
            },
            CallEnd::TimedOut(why) => Judgement::without_answer(Ending::Timeout, codes, true, why, "timeout"),
            CallEnd::Broken(why) => {
                Judgement::without_answer(Ending::Connection, codes, true, why, "connection_broken")
            }
        }
    }
}

/// An error is judged without its body. A success whose answer cannot be kept is none, and would be none again.
fn too_large(status: u16, max: usize, codes: &ExtraCodes) -> Judgement {
    let judged = Judgement::of_status(status, codes);
    if judged.verdict.is_some() {
        return judged;
    }
    let reason = format!("{}, with more than {max} bytes", judged.reason);
    Judgement {
        result: CallResult::Rejected,
        verdict: Some(Verdict::Permanent),
        reason,
        code: Some("response_too_large".into()),
        reusable: false,
        ..judged
    }
}

impl Called {
    pub(super) fn without_hints(end: CallEnd) -> Self {
        Self { end, hints: super::Hints::default() }
    }

    /// What it means at an upstream with these codes.
    pub fn judge(&self, codes: &ExtraCodes) -> Judgement {
        self.end.judge(codes)
    }

    /// For how long the upstream says to stay away.
    pub fn close_for(&self) -> Option<Span> {
        match &self.end {
            CallEnd::Answered(answer) => self.hints.close_for(answer.status),
            CallEnd::TooLarge { status, .. } => self.hints.close_for(*status),
            _ => self.hints.exhausted_for.filter(|span| !span.is_zero()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Response;

    fn judged(end: &CallEnd) -> (CallResult, Option<Verdict>, bool, Option<String>) {
        let judged = end.judge(&ExtraCodes::default());
        assert!(!judged.reason.is_empty());
        (judged.result, judged.verdict, judged.ambiguous, judged.code)
    }

    fn answered(status: u16) -> CallEnd {
        CallEnd::Answered(Response { status, headers: Vec::new(), body: Vec::new() })
    }

    #[test]
    fn answers_are_judged_by_their_status() {
        use CallResult::*;
        use Verdict::*;
        let code = |status: u16| Some(status.to_string());
        for (status, result, verdict) in [
            (200, Success, None),
            (302, Success, None),
            (404, Rejected, Some(Permanent)),
            (429, Throttled, Some(Retryable)),
            (503, Failed, Some(Retryable)),
            (799, Failed, Some(Retryable)),
        ] {
            assert_eq!(judged(&answered(status)), (result, verdict, false, code(status)));
        }
    }

    #[test]
    fn the_codes_of_the_upstream_count() {
        let codes = ExtraCodes { retryable: vec!["404".into()], permanent: Vec::new() };
        assert_eq!(answered(404).judge(&codes).verdict, Some(Verdict::Retryable));
    }

    #[test]
    fn only_what_may_have_been_sent_is_ambiguous() {
        use CallResult::*;
        use Verdict::*;
        let why = || "why".to_owned();
        for (end, result, verdict, ambiguous, code) in [
            (CallEnd::NotSent(why()), Failed, Retryable, false, "connect_failed"),
            (CallEnd::Invalid(why()), NotSent, Permanent, false, "invalid_request"),
            (CallEnd::TimedOut(why()), TimedOut, Retryable, true, "timeout"),
            (CallEnd::Broken(why()), Failed, Retryable, true, "connection_broken"),
        ] {
            assert_eq!(judged(&end), (result, Some(verdict), ambiguous, Some(code.into())));
        }
    }

    #[test]
    fn an_answer_that_is_too_large_is_permanent_unless_its_status_says_otherwise() {
        let end = |status| CallEnd::TooLarge { status, max: 10 };
        let permanent = Some(Verdict::Permanent);
        let expected = (CallResult::Rejected, permanent, false, Some("response_too_large".into()));
        assert_eq!(judged(&end(200)), expected);
        let expected = (CallResult::Failed, Some(Verdict::Retryable), false, Some("503".into()));
        assert_eq!(judged(&end(503)), expected);
    }
}
