//! Answers of SES.

use eclusa_core::Span;
use serde::Deserialize;

use crate::request::Response;

/// How long to wait when the daily quota is used up. It covers the last 24 hours, so it recovers continuously; AWS
/// advises to retry within ten minutes.
pub(super) const DAILY_QUOTA_WAIT: Span = Span::from_secs(10 * 60);
/// The message of a throttled request that exceeded the daily quota, not the rate.
const DAILY_QUOTA: &str = "Daily message quota exceeded";
/// The longest text that is taken for a name.
const MAX_NAME: usize = 100;

#[derive(Default, Deserialize)]
struct ErrorBody {
    #[serde(rename = "__type")]
    kind: Option<String>,
    code: Option<String>,
    #[serde(alias = "Message")]
    message: Option<String>,
}

/// An error of SES.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SesError {
    /// Such as `MessageRejected`; `None` if the answer is not in the format of AWS.
    pub(super) name: Option<String>,
    /// Whether the daily quota is used up.
    pub(super) daily_quota: bool,
}

impl SesError {
    /// Reads the answer to a failed request.
    pub(super) fn read(answer: &Response) -> Self {
        let header = answer.headers.iter().find(|(name, _)| name == "x-amzn-errortype");
        let header = header.and_then(|(_, value)| std::str::from_utf8(value).ok());
        let body: ErrorBody = serde_json::from_slice(&answer.body).unwrap_or_default();
        let name = [header, body.kind.as_deref(), body.code.as_deref()].into_iter().flatten().find_map(name);
        let daily_quota = body.message.is_some_and(|message| message.contains(DAILY_QUOTA));
        Self { name, daily_quota }
    }

    /// Whether the signature was refused: the credentials or the time, not the message.
    pub(super) fn is_about_signature(&self) -> bool {
        let name = self.name.as_deref().unwrap_or_default();
        matches!(
            name.strip_suffix("Exception").unwrap_or(name),
            "InvalidSignature"
                | "SignatureDoesNotMatch"
                | "UnrecognizedClient"
                | "InvalidClientTokenId"
                | "ExpiredToken"
                | "RequestExpired"
        )
    }
}

/// Extracts `MessageRejected` from `com.amazonaws.ses#MessageRejected` or
/// `MessageRejected:http://internal.amazon.com/…`.
fn name(text: &str) -> Option<String> {
    let name = text.split_once(':').map_or(text, |(name, _)| name);
    let name = name.rsplit_once('#').map_or(name, |(_, name)| name).trim();
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_'));
    (plain && (1..=MAX_NAME).contains(&name.len())).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: Option<&str>, body: &str) -> (Option<String>, bool) {
        let headers = header.map(|value| ("x-amzn-errortype".to_owned(), value.into()));
        let answer = Response { status: 400, headers: headers.into_iter().collect(), body: body.into() };
        let SesError { name, daily_quota } = SesError::read(&answer);
        (name, daily_quota)
    }

    #[test]
    fn the_name_is_in_the_header_or_the_body_with_or_without_its_origin() {
        let rejected = (Some("MessageRejected".to_owned()), false);
        for header in [
            "MessageRejected",
            "MessageRejected:http://internal.amazon.com/coral/com.amazonaws.services.simpleemailv2/",
            "com.amazonaws.services.simpleemailv2#MessageRejected",
        ] {
            assert_eq!(read(Some(header), "{}"), rejected, "{header}");
        }
        for body in [
            r#"{"__type":"com.amazonaws.ses#MessageRejected","message":"no"}"#,
            r#"{"code":"MessageRejected","Message":"no"}"#,
        ] {
            assert_eq!(read(None, body), rejected, "{body}");
        }
        assert_eq!(read(Some("MessageRejected"), r#"{"__type":"Other"}"#), rejected);
    }

    #[test]
    fn an_answer_that_is_not_from_ses_has_no_name() {
        for body in ["", "<html>", "[]", r#"{"code":7}"#, r#"{"code":"a b"}"#, r#"{"message":"no"}"#] {
            assert_eq!(read(None, body), (None, false), "{body}");
        }
    }

    #[test]
    fn the_daily_quota_is_distinguished_from_the_rate() {
        let throttled = |message: &str| read(Some("ThrottlingException"), message).1;
        assert!(throttled(r#"{"message":"Daily message quota exceeded."}"#));
        assert!(!throttled(r#"{"message":"Maximum sending rate exceeded."}"#));
    }
}
