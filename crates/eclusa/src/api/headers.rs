//! Headers that mean something to Eclusa itself.

use std::time::Duration;

use eclusa_core::{Cached, JobView, Level, ServedBy, Span, Status};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::job_request::level;
use super::problem::{Kind, Problem};
use crate::config::parse_duration;
use crate::execute::http::headers as passed;
use crate::execute::is_reusable;
use crate::intake::Fault;

/// The value of a header that must be text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Problem> {
    headers.get(name).map(|value| plain(name, value)).transpose()
}

/// The text of the header `name`.
pub(super) fn plain<'a>(name: &str, value: &'a HeaderValue) -> Result<&'a str, Problem> {
    let wrong = |_| Problem::new(Kind::BadRequest, format!("The header {name} must be plain text"));
    value.to_str().map(str::trim).map_err(wrong)
}

/// `Idempotency-Key`: a structured-field string, or as it stands where it is not quoted.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(text) = text(headers, "idempotency-key")? else { return Ok(None) };
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let key = quoted.map_or_else(|| text.to_owned(), |text| text.replace("\\\"", "\"").replace("\\\\", "\\"));
    if key.is_empty() {
        return Err(Problem::new(Kind::BadRequest, "The header Idempotency-Key is empty"));
    }
    Ok(Some(key))
}

/// `Eclusa-Priority`.
pub(super) fn priority(headers: &HeaderMap) -> Result<Option<Level>, Problem> {
    let priority = text(headers, "eclusa-priority")?.map(level).transpose();
    priority.map_err(|fault| Problem::invalid(&[Fault::new("Eclusa-Priority", fault.problem)]))
}

/// `Eclusa-Ttl`: `10s`, or milliseconds.
pub(super) fn ttl(headers: &HeaderMap) -> Result<Option<Span>, Problem> {
    let Some(text) = text(headers, "eclusa-ttl")? else { return Ok(None) };
    let millis = text.parse::<u64>().map(Span::from_millis);
    let span = millis.or_else(|_| parse_duration(text));
    span.map(Some).map_err(|problem| Problem::invalid(&[Fault::new("Eclusa-Ttl", problem)]))
}

/// `Prefer: wait=N` in seconds (RFC 7240); other preferences are for others.
pub(super) fn prefer_wait(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    let values = headers.get_all("prefer").into_iter().filter_map(|value| value.to_str().ok());
    let wait = values.flat_map(|value| value.split([',', ';'])).find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"'))
    });
    let Some(wait) = wait else { return Ok(None) };
    let wrong = || Fault::new("Prefer", "wait must be a whole number of seconds, as in `wait=10`");
    let seconds = wait.parse().map_err(|_| Problem::invalid(&[wrong()]))?;
    Ok(Some(Duration::from_secs(seconds)))
}

/// The headers of a caller that go on to the upstream.
pub(super) fn passed_on(headers: &HeaderMap) -> Result<Vec<(String, Vec<u8>)>, Problem> {
    let all = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    passed::from_caller(all).map_err(|bad| bad_headers(&bad))
}

/// Takes out of a caller's headers what does not go on to the upstream.
pub(super) fn sendable(headers: &mut HeaderMap) -> Result<(), Problem> {
    passed::keep_sendable(headers).map_err(|bad| bad_headers(&bad))
}

fn bad_headers(bad: &passed::BadHeaders) -> Problem {
    Problem::new(Kind::BadRequest, format!("The request {bad}"))
}

/// `Cache-Status` (RFC 9211) for an answer that needed no job.
pub(super) fn cache_hit(cached: &Cached) -> String {
    match cached.stale {
        None => format!("eclusa; hit; ttl={}", cached.left.as_millis() / 1_000),
        Some(why) => {
            format!("eclusa; hit; ttl=-{}; detail={}", cached.overdue.as_millis() / 1_000, why.as_str())
        }
    }
}

/// `Cache-Status` for the answer of a job with this status; none for a job that was neither sent nor answered.
pub(super) fn cache_status(job: &JobView, status: StatusCode) -> Option<String> {
    match job.served {
        None if job.attempts == 0 => None,
        None if job.cache_key.is_none() => Some("eclusa; fwd=bypass".into()),
        None if job.status == Status::Completed && is_reusable(status.as_u16()) => {
            Some("eclusa; fwd=miss; stored".into())
        }
        None => Some("eclusa; fwd=miss".into()),
        Some(ServedBy::Cache) => Some("eclusa; hit".into()),
        Some(ServedBy::Coalesced) => Some("eclusa; fwd=miss; collapsed".into()),
        Some(ServedBy::Stale(why)) => Some(format!("eclusa; fwd=stale; detail={}", why.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), http::HeaderValue::from_static(value))])
    }

    #[test]
    fn a_wait_is_found_among_other_preferences() {
        let wait = |value| prefer_wait(&with("prefer", value)).unwrap();
        assert_eq!(wait("wait=10"), Some(Duration::from_secs(10)));
        assert_eq!(wait("respond-async, Wait = 5"), Some(Duration::from_secs(5)));
        assert_eq!(wait("respond-async"), None);
        assert!(prefer_wait(&with("prefer", "wait=soon")).is_err());
    }

    #[test]
    fn idempotency_keys_may_be_quoted() {
        let key = |value| idempotency_key(&with("idempotency-key", value)).unwrap();
        assert_eq!(key("\"a \\\"b\\\"\"").unwrap(), "a \"b\"");
        assert_eq!(key("8e03978e").unwrap(), "8e03978e");
        assert!(idempotency_key(&with("idempotency-key", "\"\"")).is_err());
    }

    #[test]
    fn a_ttl_is_a_duration_or_milliseconds() {
        assert_eq!(ttl(&with("eclusa-ttl", "10s")).unwrap(), Some(Span::from_secs(10)));
        assert_eq!(ttl(&with("eclusa-ttl", "250")).unwrap(), Some(Span::from_millis(250)));
        assert!(ttl(&with("eclusa-ttl", "soon")).is_err());
    }
}
