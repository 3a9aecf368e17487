//! How failed calls are classified and when they are retried.

use crate::error::{SpecError, positive};
use crate::gate::{BucketSpec, CallResult};
use crate::ids::{JobId, mix};
use crate::time::Span;

/// How often and how soon a lane retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    attempts: u32,
    base: Span,
    cap: Span,
    jitter_percent: u8,
    on_ambiguous: OnAmbiguous,
    budget: Option<RetryBudget>,
}

/// Bounds the retries of a lane: `min` is always allowed, beyond that a share of the first attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBudget {
    share_percent: u8,
    min: BucketSpec,
}

impl RetryBudget {
    /// Retries may always take from a bucket with the rule `min`; beyond that they may be `share_percent` of first
    /// attempts.
    pub fn new(share_percent: u8, min: BucketSpec) -> Result<Self, SpecError> {
        if share_percent > 100 {
            return Err(SpecError::new("retry.budget.share", "must be between 0 and 1"));
        }
        Ok(Self { share_percent, min })
    }

    /// The share of first attempts.
    pub const fn share_percent(&self) -> u8 {
        self.share_percent
    }

    /// The rate of retries that is always allowed.
    pub const fn min(&self) -> BucketSpec {
        self.min
    }
}

/// What to do with a request that was sent but not answered: the upstream may have processed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnAmbiguous {
    /// Send it again.
    #[default]
    Retry,
    /// End the job: a second payment is worse than none.
    Stop,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            base: Span::from_secs(1),
            cap: Span::from_secs(60),
            jitter_percent: 25,
            on_ambiguous: OnAmbiguous::Retry,
            budget: None,
        }
    }
}

impl RetryPolicy {
    /// Allows `attempts` in total. The wait starts at `base`, doubles up to `cap`, and varies by `jitter_percent` up or
    /// down.
    pub fn new(attempts: u32, base: Span, cap: Span, jitter_percent: u8) -> Result<Self, SpecError> {
        positive("retry.attempts", attempts)?;
        positive("retry.base", base)?;
        if cap < base {
            return Err(SpecError::new("retry.cap", format!("{cap} must not be below base {base}")));
        }
        if jitter_percent > 100 {
            return Err(SpecError::new("retry.jitter", "must be between 0 and 1"));
        }
        Ok(Self { attempts, base, cap, jitter_percent, ..Self::default() })
    }

    /// Sets the rule for ambiguous sends.
    #[must_use]
    pub fn on_ambiguous(mut self, rule: OnAmbiguous) -> Self {
        self.on_ambiguous = rule;
        self
    }

    /// Sets the budget.
    #[must_use]
    pub fn with_budget(mut self, budget: Option<RetryBudget>) -> Self {
        self.budget = budget;
        self
    }

    /// The bound on the retries of all jobs together, if any.
    pub const fn budget(&self) -> Option<RetryBudget> {
        self.budget
    }

    /// How many attempts a job has in total.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The wait after the first failed attempt.
    pub const fn base(&self) -> Span {
        self.base
    }

    /// The longest wait.
    pub const fn cap(&self) -> Span {
        self.cap
    }

    /// How far waits vary, up and down.
    pub const fn jitter_percent(&self) -> u8 {
        self.jitter_percent
    }

    /// Whether a job whose worker vanished may run again.
    pub fn retries_ambiguous(&self) -> bool {
        self.on_ambiguous == OnAmbiguous::Retry
    }

    /// The wait after failed attempt number `attempt` (from 1): `min(cap, base * 2^(attempt-1))` with jitter. The
    /// jitter is a hash of seed, job and attempt: it differs between jobs and is the same in every run.
    pub fn backoff(&self, seed: u64, job: JobId, attempt: u32) -> Span {
        let doublings = attempt.saturating_sub(1).min(63);
        let delay = self.base.as_millis().saturating_mul(1 << doublings).min(self.cap.as_millis());
        let range = u128::from(delay) * u128::from(self.jitter_percent) * 2 / 100;
        let range = u64::try_from(range).unwrap_or(u64::MAX);
        let [high, low] = job.halves();
        let jitter = mix(&[seed, high, low, u64::from(attempt)]) % range.saturating_add(1);
        Span::from_millis((delay - range / 2).saturating_add(jitter))
    }

    /// How long to wait after failed attempt number `attempt`; `None` if there is no further attempt.
    pub fn next_attempt(&self, seed: u64, failed: &FailedCall, job: JobId, attempt: u32) -> Option<Span> {
        let stop = failed.verdict == Verdict::Permanent
            || attempt >= self.attempts
            || (failed.ambiguous && self.on_ambiguous == OnAmbiguous::Stop);
        if stop {
            return None;
        }
        Some(self.backoff(seed, job, attempt).max(failed.retry_after.unwrap_or_default()))
    }
}

/// What a failed call means for retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedCall {
    /// Whether a retry may succeed.
    pub verdict: Verdict,
    /// Sent but not answered.
    pub ambiguous: bool,
    /// How long the upstream asked to wait.
    pub retry_after: Option<Span>,
}

/// Whether a retry may succeed after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A retry may succeed.
    Retryable,
    /// A retry would fail again.
    Permanent,
}

/// How a call ended, in terms of the upstream's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending<'a> {
    /// An HTTP status.
    Http(u16),
    /// An SMTP reply.
    Smtp {
        /// Its code.
        code: u16,
        /// Its enhanced code (RFC 3463), such as `4.7.0`, if it has one.
        enhanced: Option<&'a str>,
    },
    /// An SMTP reply before any message: to the greeting, EHLO, STARTTLS or AUTH. It concerns the server or the
    /// account.
    SmtpSession {
        /// Its code.
        code: u16,
        /// Its enhanced code, if it has one.
        enhanced: Option<&'a str>,
    },
    /// An error of SES.
    Ses {
        /// Its HTTP status.
        status: u16,
        /// Its name, such as `MessageRejected`.
        name: &'a str,
    },
    /// No answer in time.
    Timeout,
    /// The connection could not be made: nothing was sent.
    Unreachable,
    /// The connection broke.
    Connection,
}

/// The failure code for a broken connection.
pub const CONNECTION_BROKEN: &str = "connection_broken";

/// Classifies an ending, for the upstream's gates and for the job.
pub fn classify(ending: Ending<'_>, extra: &ExtraCodes) -> (CallResult, Option<Verdict>) {
    use CallResult::{Failed, Rejected, Success, Throttled, TimedOut, Unreachable};
    let by_list = match ending {
        Ending::Http(code) => extra.verdict(&code.to_string()),
        // The enhanced code is more specific, so it is checked first.
        Ending::Smtp { code, enhanced } | Ending::SmtpSession { code, enhanced } => {
            enhanced.and_then(|code| extra.verdict(code)).or_else(|| extra.verdict(&code.to_string()))
        }
        Ending::Ses { name, .. } => extra.verdict_of_ses(name),
        Ending::Timeout | Ending::Unreachable | Ending::Connection => None,
    };
    let (result, verdict) = match ending {
        Ending::Http(200..=399)
        | Ending::Smtp { code: 200..=399, .. }
        | Ending::SmtpSession { code: 200..=399, .. } => (Success, None),
        Ending::Http(408) | Ending::Timeout => (TimedOut, Some(Verdict::Retryable)),
        Ending::Unreachable => (Unreachable, Some(Verdict::Retryable)),
        Ending::Http(429)
        | Ending::Smtp { code: 421 | 454, .. }
        | Ending::SmtpSession { code: 421 | 454, .. } => (Throttled, Some(Verdict::Retryable)),
        Ending::Ses { status, name } => classify_ses(status, ses_name(name)),
        Ending::Http(425 | 500 | 502..)
        | Ending::Smtp { code: 400..=499, .. }
        | Ending::SmtpSession { .. }
        | Ending::Connection => (Failed, Some(Verdict::Retryable)),
        Ending::Http(_) | Ending::Smtp { .. } => (Rejected, Some(Verdict::Permanent)),
    };
    match by_list {
        Some(Verdict::Retryable) if matches!(result, Success | Rejected) => {
            (Failed, Some(Verdict::Retryable))
        }
        Some(Verdict::Permanent) => (Rejected, Some(Verdict::Permanent)),
        _ => (result, verdict),
    }
}

/// The name of an SES error in both API versions: version 2 says `ThrottlingException` for `Throttling`.
fn ses_name(name: &str) -> &str {
    name.strip_suffix("Exception").unwrap_or(name)
}

/// Most errors are classified by their status. But SES answers 400 to some that succeed later, or in another region.
fn classify_ses(status: u16, name: &str) -> (CallResult, Option<Verdict>) {
    let result = match name {
        "Throttling" | "TooManyRequests" | "LimitExceeded" => CallResult::Throttled,
        // Credential errors are included: the next attempt is signed again, and the credentials may have been renewed
        // by then.
        "ServiceUnavailable"
        | "InternalFailure"
        | "SendingPaused"
        | "ExpiredToken"
        | "RequestExpired"
        | "InvalidSignature"
        | "SignatureDoesNotMatch"
        | "IncompleteSignature"
        | "UnrecognizedClient"
        | "InvalidClientTokenId"
        | "MissingAuthenticationToken" => CallResult::Failed,
        "RequestTimeout" => CallResult::TimedOut,
        _ => return classify(Ending::Http(status), &ExtraCodes::default()),
    };
    (result, Some(Verdict::Retryable))
}

/// Codes that one upstream uses with a different meaning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtraCodes {
    /// Codes to retry.
    pub retryable: Vec<String>,
    /// Codes not to retry.
    pub permanent: Vec<String>,
}

impl ExtraCodes {
    pub(crate) fn verdict(&self, code: &str) -> Option<Verdict> {
        if self.permanent.iter().any(|listed| listed == code) {
            return Some(Verdict::Permanent);
        }
        self.retryable.iter().any(|listed| listed == code).then_some(Verdict::Retryable)
    }

    fn verdict_of_ses(&self, name: &str) -> Option<Verdict> {
        let is = |listed: &String| ses_name(listed) == ses_name(name);
        if self.permanent.iter().any(is) {
            return Some(Verdict::Permanent);
        }
        self.retryable.iter().any(is).then_some(Verdict::Retryable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_stays_within_its_table_and_uses_the_whole_range() {
        let policy = RetryPolicy::default();
        let ranges = [
            (1, 750..=1_250),
            (2, 1_500..=2_500),
            (3, 3_000..=5_000),
            (4, 6_000..=10_000),
            (5, 12_000..=20_000),
            (6, 24_000..=40_000),
            (7, 45_000..=75_000),
            (60, 45_000..=75_000),
        ];
        for (attempt, range) in ranges {
            let delays: Vec<u64> =
                (0..2_000).map(|job| policy.backoff(7, JobId(job), attempt).as_millis()).collect();
            assert!(delays.iter().all(|ms| range.contains(ms)), "attempt {attempt}");
            let width = range.end() - range.start();
            let [least, most] = [delays.iter().min(), delays.iter().max()].map(|ms| *ms.unwrap());
            assert!(most - least > width * 9 / 10, "attempt {attempt} spreads over its whole range");
        }
    }

    #[test]
    fn without_jitter_the_wait_follows_the_formula() {
        let policy = RetryPolicy::new(9, Span::from_secs(1), Span::from_secs(60), 0).unwrap();
        let delays: Vec<u64> = (1..=8).map(|n| policy.backoff(0, JobId(1), n).as_millis() / 1_000).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn the_last_attempt_a_permanent_error_and_an_ambiguous_stop_end_the_job() {
        let policy = RetryPolicy::default();
        let failed = FailedCall { verdict: Verdict::Retryable, ambiguous: true, retry_after: None };
        let next = |policy: &RetryPolicy, failed: &FailedCall, attempt| {
            policy.next_attempt(7, failed, JobId(1), attempt)
        };
        assert!(next(&policy, &failed, 4).is_some());
        assert_eq!(next(&policy, &failed, 5), None);
        assert_eq!(next(&policy, &FailedCall { verdict: Verdict::Permanent, ..failed }, 1), None);
        assert_eq!(next(&policy.on_ambiguous(OnAmbiguous::Stop), &failed, 1), None);
    }

    #[test]
    fn a_longer_retry_after_wins() {
        let policy = RetryPolicy::default();
        let asked = Span::from_secs(300);
        let failed = FailedCall { verdict: Verdict::Retryable, ambiguous: false, retry_after: Some(asked) };
        assert_eq!(policy.next_attempt(7, &failed, JobId(1), 1), Some(asked));
        let failed = FailedCall { retry_after: Some(Span::ZERO), ..failed };
        assert!(policy.next_attempt(7, &failed, JobId(1), 1).is_some_and(|wait| !wait.is_zero()));
    }

    #[test]
    fn endings_are_classified_by_code() {
        use Verdict::{Permanent, Retryable};
        let none = ExtraCodes::default();
        let verdict = |ending| classify(ending, &none).1;
        for code in [408, 425, 429, 500, 502, 503, 504] {
            assert_eq!(verdict(Ending::Http(code)), Some(Retryable), "{code}");
        }
        for code in [400, 401, 403, 404, 422, 501] {
            assert_eq!(verdict(Ending::Http(code)), Some(Permanent), "{code}");
        }
        let smtp = |code| Ending::Smtp { code, enhanced: None };
        for code in [421, 450, 451, 452, 454] {
            assert_eq!(verdict(smtp(code)), Some(Retryable), "{code}");
        }
        for code in [500, 550, 554] {
            assert_eq!(verdict(smtp(code)), Some(Permanent), "{code}");
        }
        for (code, result) in
            [(421, CallResult::Throttled), (454, CallResult::Throttled), (450, CallResult::Failed)]
        {
            assert_eq!(classify(smtp(code), &none).0, result, "{code}");
        }
        assert_eq!(verdict(Ending::Http(204)), None);
        assert_eq!(classify(Ending::Http(404), &none).0, CallResult::Rejected);
        assert_eq!(classify(Ending::Http(429), &none).0, CallResult::Throttled);
        assert_eq!(classify(Ending::Timeout, &none), (CallResult::TimedOut, Some(Retryable)));
        assert_eq!(classify(Ending::Unreachable, &none), (CallResult::Unreachable, Some(Retryable)));
        assert_eq!(classify(Ending::Connection, &none), (CallResult::Failed, Some(Retryable)));
    }

    fn ses(status: u16, name: &str) -> (CallResult, Option<Verdict>) {
        classify(Ending::Ses { status, name }, &ExtraCodes::default())
    }

    #[test]
    fn errors_of_ses_are_classified_by_name_in_both_spellings() {
        use CallResult::{Failed, Rejected, Throttled, TimedOut};
        for name in
            ["Throttling", "ThrottlingException", "TooManyRequestsException", "LimitExceededException"]
        {
            assert_eq!(ses(400, name), (Throttled, Some(Verdict::Retryable)), "{name}");
        }
        for name in
            ["ServiceUnavailable", "ServiceUnavailableException", "SendingPausedException", "ExpiredToken"]
        {
            assert_eq!(ses(400, name), (Failed, Some(Verdict::Retryable)), "{name}");
        }
        assert_eq!(ses(400, "RequestTimeout"), (TimedOut, Some(Verdict::Retryable)));
        for name in [
            "MessageRejected",
            "MailFromDomainNotVerified",
            "MailFromDomainNotVerifiedException",
            "AccountSuspendedException",
            "BadRequestException",
        ] {
            assert_eq!(ses(400, name), (Rejected, Some(Verdict::Permanent)), "{name}");
        }
    }

    #[test]
    fn an_error_of_ses_that_nobody_knows_is_what_its_status_says() {
        assert_eq!(ses(500, "InternalFailure"), (CallResult::Failed, Some(Verdict::Retryable)));
        assert_eq!(ses(429, "Odd"), (CallResult::Throttled, Some(Verdict::Retryable)));
        assert_eq!(ses(403, "AccessDeniedException"), (CallResult::Rejected, Some(Verdict::Permanent)));
    }

    #[test]
    fn lists_name_errors_of_ses_in_either_spelling() {
        let extra = ExtraCodes {
            retryable: vec!["AccountSuspended".into()],
            permanent: vec!["SendingPausedException".into()],
        };
        let verdict = |name| classify(Ending::Ses { status: 400, name }, &extra).1;
        assert_eq!(verdict("AccountSuspendedException"), Some(Verdict::Retryable));
        assert_eq!(verdict("SendingPaused"), Some(Verdict::Permanent));
    }

    #[test]
    fn an_upstream_may_mean_a_code_differently() {
        let extra = ExtraCodes { retryable: vec!["409".into()], permanent: vec!["503".into()] };
        assert_eq!(classify(Ending::Http(409), &extra), (CallResult::Failed, Some(Verdict::Retryable)));
        assert_eq!(classify(Ending::Http(503), &extra), (CallResult::Rejected, Some(Verdict::Permanent)));
        let extra = ExtraCodes { retryable: vec!["550".into()], permanent: vec!["5.1.1".into()] };
        let verdict = |enhanced| classify(Ending::Smtp { code: 550, enhanced }, &extra).1;
        assert_eq!(verdict(None), Some(Verdict::Retryable));
        assert_eq!(verdict(Some("5.7.1")), Some(Verdict::Retryable));
        assert_eq!(verdict(Some("5.1.1")), Some(Verdict::Permanent));
    }

    #[test]
    fn policies_that_cannot_be_are_refused_by_name() {
        let secs = Span::from_secs;
        assert_eq!(RetryPolicy::new(0, secs(1), secs(60), 25).unwrap_err().field, "retry.attempts");
        assert_eq!(RetryPolicy::new(5, secs(0), secs(60), 25).unwrap_err().field, "retry.base");
        assert_eq!(RetryPolicy::new(5, secs(9), secs(1), 25).unwrap_err().field, "retry.cap");
        assert_eq!(RetryPolicy::new(5, secs(1), secs(60), 101).unwrap_err().field, "retry.jitter");
    }
}
