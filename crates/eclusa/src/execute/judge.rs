//! How calls end, and what that means for the upstream's gates and for the job.

use eclusa_core::gate::CallResult;
use eclusa_core::retry::{CONNECTION_BROKEN, Ending, ExtraCodes, Verdict, classify};
use http::StatusCode;

/// How a call ended. The texts contain nothing from the request or the answer, so no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// With an answer of this HTTP status, success or not.
    Answered(u16),
    /// The answer exceeds the limit; it was not read to the end.
    TooLarge {
        /// The status of the answer.
        status: u16,
        /// The limit in bytes.
        max: usize,
    },
    /// The call was not attempted.
    NotMade,
    /// There was no connection, so the call had no effect.
    NotSent(String),
    /// The request itself is invalid and can never be sent.
    Invalid(String),
    /// Sent, or perhaps sent, but the answer was not complete in time.
    TimedOut(String),
    /// Sent, or perhaps sent, but the answer broke off or was invalid.
    Broken(String),
    /// The caller stopped waiting for the answer.
    Abandoned {
        /// Whether it was sent, or may have been.
        sent: bool,
    },
    /// With an SMTP reply, success or not.
    Replied {
        /// Its code.
        code: u16,
        /// Its enhanced code, such as `4.7.0`.
        enhanced: Option<String>,
        /// What it says, in words that hold no address.
        text: String,
    },
    /// With an SMTP reply that refused the session, before any message.
    SessionRefused {
        /// Its code.
        code: u16,
        /// Its enhanced code, such as `5.7.8`.
        enhanced: Option<String>,
        /// What it says, in words that hold no address.
        text: String,
    },
    /// With an error of SES.
    Ses {
        /// The HTTP status of the error.
        status: u16,
        /// Its name, such as `MessageRejected`.
        name: String,
        /// Whether the daily quota is used up.
        daily_quota: bool,
    },
    /// The upstream works, but it refused one or more recipients.
    RecipientRefused {
        /// The upstream's code.
        code: String,
        /// The upstream's text, without addresses.
        reason: String,
        /// Whether trying again may help.
        verdict: Verdict,
    },
    /// The other side was silent or disconnected before the call could have an effect.
    CutShort {
        /// Whether it was silent.
        timed_out: bool,
        /// What happened, and at which step.
        why: String,
    },
}

impl CallEnd {
    /// The end of a call that ended this way after the status line of its answer. An error status counts even without
    /// its body; a success does not.
    #[must_use]
    pub fn after_head(self, status: u16) -> Self {
        if status >= 400 { Self::Answered(status) } else { self }
    }
}

/// The meaning of a call's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The result for the gates.
    pub result: CallResult,
    /// Whether a retry may help; `None` if the call did not fail.
    pub verdict: Option<Verdict>,
    /// Whether it is unknown if the upstream acted on the call.
    pub ambiguous: bool,
    /// A text for people; never empty, and without anything from the request or the answer.
    pub reason: String,
    /// The status, or a word if there is none.
    pub code: Option<String>,
    /// Whether the answer may be reused for equal requests.
    pub reusable: bool,
}

/// Whether an answer with this status may be reused: successes, and those redirects that HTTP lets caches store by
/// default.
pub(crate) const fn is_reusable(status: u16) -> bool {
    matches!(status, 200..=299 | 300 | 301 | 308)
}

impl Judgement {
    fn of_status(status: u16, codes: &ExtraCodes) -> Self {
        let (result, verdict) = classify(Ending::Http(status), codes);
        let name = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let reason = name.map_or(format!("answered {status}"), |name| format!("answered {status} {name}"));
        let (code, reusable) = (Some(status.to_string()), is_reusable(status));
        Self { result, verdict, ambiguous: false, reason, code, reusable }
    }

    fn not_failed(result: CallResult, reason: &str) -> Self {
        let (verdict, ambiguous, code, reusable) = (None, false, None, false);
        Self { result, verdict, ambiguous, reason: reason.to_owned(), code, reusable }
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
    /// Its meaning at an upstream with these extra codes.
    pub fn judge(&self, codes: &ExtraCodes) -> Judgement {
        match self {
            CallEnd::Answered(status) => Judgement::of_status(*status, codes),
            CallEnd::TooLarge { status, max } => too_large(*status, *max, codes),
            CallEnd::NotSent(why) => {
                Judgement::without_answer(Ending::Unreachable, codes, false, why, "connect_failed")
            }
            CallEnd::Invalid(why) => Judgement {
                verdict: Some(Verdict::Permanent),
                reason: why.clone(),
                code: Some("invalid_request".into()),
                ..Judgement::not_failed(CallResult::NotSent, "the call was not made")
            },
            CallEnd::NotMade => Judgement::not_failed(CallResult::NotSent, "the call was not made"),
            CallEnd::Abandoned { sent: false } => {
                Judgement::not_failed(CallResult::Unknown, "its worker was stopped before it was sent")
            }
            CallEnd::Abandoned { sent: true } => Judgement {
                ambiguous: true,
                ..Judgement::not_failed(
                    CallResult::Unknown,
                    "its worker was stopped while it ran; it may have been sent",
                )
            },
            CallEnd::TimedOut(why) => Judgement::without_answer(Ending::Timeout, codes, true, why, "timeout"),
            CallEnd::Broken(why) => {
                Judgement::without_answer(Ending::Connection, codes, true, why, CONNECTION_BROKEN)
            }
            CallEnd::Replied { code, enhanced, text } => {
                let ending = Ending::Smtp { code: *code, enhanced: enhanced.as_deref() };
                let judged = Judgement::without_answer(ending, codes, false, text, &code.to_string());
                Judgement { reusable: judged.verdict.is_none(), ..judged }
            }
            CallEnd::SessionRefused { code, enhanced, text } => {
                let ending = Ending::SmtpSession { code: *code, enhanced: enhanced.as_deref() };
                Judgement::without_answer(ending, codes, false, text, &code.to_string())
            }
            CallEnd::RecipientRefused { code, reason, verdict } => Judgement {
                verdict: Some(*verdict),
                code: Some(code.clone()),
                ..Judgement::not_failed(CallResult::Rejected, reason)
            },
            CallEnd::Ses { status, name, daily_quota } => {
                let used_up = if *daily_quota { ": the daily quota is used up" } else { "" };
                let reason = format!("answered {status} {name}{used_up}");
                Judgement::without_answer(Ending::Ses { status: *status, name }, codes, false, &reason, name)
            }
            CallEnd::CutShort { timed_out: true, why } => {
                Judgement::without_answer(Ending::Timeout, codes, false, why, "timeout")
            }
            CallEnd::CutShort { timed_out: false, why } => {
                Judgement::without_answer(Ending::Connection, codes, false, why, CONNECTION_BROKEN)
            }
        }
    }
}

/// An error is judged without its body. A success whose answer cannot be kept is a permanent failure: it would be too
/// large again.
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
