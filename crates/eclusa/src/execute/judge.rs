//! How calls end, and what an end means: for the upstream's gates, and for the job.

use eclusa_core::gate::CallResult;
use eclusa_core::retry::{CONNECTION_BROKEN, Ending, ExtraCodes, Verdict, classify};
use http::StatusCode;

/// How a call ended. The texts hold nothing of the request or the answer, and so no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// With an answer of this HTTP status, whatever it is.
    Answered(u16),
    /// The answer is larger than is accepted; reading it was stopped.
    TooLarge {
        /// Its status.
        status: u16,
        /// What would have been accepted, in bytes.
        max: usize,
    },
    /// Nobody tried.
    NotMade,
    /// There was no connection: nothing can have happened.
    NotSent(String),
    /// The request itself cannot be sent, to nobody and never.
    Invalid(String),
    /// Sent, or perhaps sent, but no whole answer in time.
    TimedOut(String),
    /// Sent, or perhaps sent, but the answer broke off or made no sense.
    Broken(String),
    /// Nobody was there to hear the answer.
    Abandoned {
        /// It was sent, or perhaps sent.
        sent: bool,
    },
    /// With an SMTP reply, whatever it is.
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
        /// The HTTP status that it came with.
        status: u16,
        /// Its name, such as `MessageRejected`.
        name: String,
        /// What is used up is the quota of the day.
        daily_quota: bool,
    },
    /// The upstream is well, but it refused a recipient, and perhaps others.
    RecipientRefused {
        /// The upstream's code.
        code: String,
        /// The upstream's words, without addresses.
        reason: String,
        /// Whether trying again may help.
        verdict: Verdict,
    },
    /// The other side was silent or went away before anything could have come of it.
    CutShort {
        /// It was silent.
        timed_out: bool,
        /// While what.
        why: String,
    },
}

impl CallEnd {
    /// The end of a call whose answer had begun with this status when it ended so. An error is one without its body too; a
    /// success is none without it.
    #[must_use]
    pub fn after_head(self, status: u16) -> Self {
        if status >= 400 { Self::Answered(status) } else { self }
    }
}

/// The meaning of a call's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// For the gates.
    pub result: CallResult,
    /// Whether trying again may help; nothing if the call did not fail.
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
    /// What it means at an upstream with these codes.
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
