//! Who classified each code of an upstream, and proposals for the other codes, based on how often a retry succeeded.
//! Nothing here changes how a call is classified.

use crate::retry::{CONNECTION_BROKEN, Ending, ExtraCodes, Verdict, classify};
use crate::views::CodeView;

/// Retries needed before anything is proposed.
pub const ENOUGH_RETRIES: u64 = 20;
/// A code is proposed as retryable if at least this share of retries succeeded.
pub const CURED_PERCENT: u64 = 50;
/// A code is proposed as permanent if at most this share of retries succeeded.
pub const HOPELESS_PERCENT: u64 = 5;

/// The protocol of an upstream; it determines what a code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP statuses.
    Http,
    /// SMTP replies and enhanced codes.
    Smtp,
    /// Error names of SES.
    Ses,
}

/// Who decided what a code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassifiedBy {
    /// `retryable` or `permanent` of the upstream.
    Config,
    /// Eclusa's built-in lists.
    BuiltIn,
    /// No list names it. A general rule applies, such as "other 4xx are permanent".
    Default,
}

impl ClassifiedBy {
    /// Its name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            ClassifiedBy::Config => "config",
            ClassifiedBy::BuiltIn => "built_in",
            ClassifiedBy::Default => "default",
        }
    }
}

/// The class of `code` at an upstream with the codes `extra`, and who decided it.
pub fn classified(protocol: Protocol, code: &str, extra: &ExtraCodes) -> (Verdict, ClassifiedBy) {
    if let Some(verdict) = extra.verdict(code) {
        return (verdict, ClassifiedBy::Config);
    }
    let (verdict, named) = match protocol {
        Protocol::Http => http(code),
        Protocol::Smtp => smtp(code),
        Protocol::Ses => ses(code),
    };
    (verdict, if named { ClassifiedBy::BuiltIn } else { ClassifiedBy::Default })
}

/// Codes that are not numbers mean calls without an answer, or answers rejected by Eclusa; all of them are listed.
fn http(code: &str) -> (Verdict, bool) {
    let Ok(status) = code.parse() else { return (word(code), true) };
    (verdict(Ending::Http(status)), matches!(status, 408 | 425 | 429 | 500..=504))
}

fn smtp(code: &str) -> (Verdict, bool) {
    // An enhanced code has the class of a reply code: `4.7.1` is a 4xx.
    let number = match code.split('.').next().map(str::parse) {
        Some(Ok(class @ ..10)) => class * 100,
        Some(Ok(number)) => number,
        _ => return (word(code), true),
    };
    let named = matches!(number, 421 | 450 | 451 | 452 | 454 | 500 | 550 | 554);
    (verdict(Ending::Smtp { code: number, enhanced: None }), named)
}

/// Unlisted names are classified by their HTTP status, which is 400 for nearly all of them.
fn ses(code: &str) -> (Verdict, bool) {
    if word(code) == Verdict::Retryable {
        return (Verdict::Retryable, true);
    }
    let verdict = verdict(Ending::Ses { status: 400, name: code });
    let named = verdict == Verdict::Retryable
        || code == "MessageRejected"
        || code.starts_with("MailFromDomainNotVerified");
    (verdict, named)
}

fn verdict(ending: Ending<'_>) -> Verdict {
    classify(ending, &ExtraCodes::default()).1.unwrap_or(Verdict::Permanent)
}

fn word(code: &str) -> Verdict {
    match code {
        "timeout" | "connect_failed" | CONNECTION_BROKEN => Verdict::Retryable,
        _ => Verdict::Permanent,
    }
}

impl CodeView {
    /// How often it was retried.
    pub const fn retried(&self) -> u64 {
        self.cured + self.failed_again
    }

    /// The class that the retries suggest, if there were enough.
    pub const fn proposal(&self) -> Option<Verdict> {
        let retried = self.retried();
        if retried < ENOUGH_RETRIES {
            return None;
        }
        if self.cured * 100 >= retried * CURED_PERCENT {
            return Some(Verdict::Retryable);
        }
        if self.cured * 100 <= retried * HOPELESS_PERCENT { Some(Verdict::Permanent) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_codes_are_distinguished_from_unlisted_ones() {
        use ClassifiedBy::{BuiltIn, Config, Default};
        use Protocol::{Http, Ses, Smtp};
        use Verdict::{Permanent, Retryable};
        let extra = ExtraCodes { retryable: vec!["409".into()], permanent: vec!["503".into()] };
        let rows = [
            (Http, "409", Retryable, Config),
            (Http, "503", Permanent, Config),
            (Http, "429", Retryable, BuiltIn),
            (Http, "501", Permanent, BuiltIn),
            (Http, "520", Retryable, Default),
            (Http, "423", Permanent, Default),
            (Http, "timeout", Retryable, BuiltIn),
            (Http, "response_too_large", Permanent, BuiltIn),
            (Smtp, "451", Retryable, BuiltIn),
            (Smtp, "432", Retryable, Default),
            (Smtp, "4.7.1", Retryable, Default),
            (Smtp, "550", Permanent, BuiltIn),
            (Smtp, "552", Permanent, Default),
            (Smtp, "connect_failed", Retryable, BuiltIn),
            (Ses, "ThrottlingException", Retryable, BuiltIn),
            (Ses, "MessageRejected", Permanent, BuiltIn),
            (Ses, "LimitExceededException", Retryable, BuiltIn),
            (Ses, "MailFromDomainNotVerifiedException", Permanent, BuiltIn),
            (Ses, "AccountSuspendedException", Permanent, Default),
            (Ses, "timeout", Retryable, BuiltIn),
        ];
        for (protocol, code, verdict, by) in rows {
            assert_eq!(classified(protocol, code, &extra), (verdict, by), "{protocol:?} {code}");
        }
    }

    #[test]
    fn nothing_is_proposed_before_enough_retries() {
        let code = |cured, failed_again| CodeView { code: "423".into(), seen: 100, cured, failed_again };
        assert_eq!(code(19, 0).proposal(), None);
        assert_eq!(code(20, 0).proposal(), Some(Verdict::Retryable));
        assert_eq!(code(10, 10).proposal(), Some(Verdict::Retryable));
        assert_eq!(code(9, 11).proposal(), None);
        assert_eq!(code(1, 19).proposal(), Some(Verdict::Permanent));
        assert_eq!(code(2, 18).proposal(), None);
    }
}
