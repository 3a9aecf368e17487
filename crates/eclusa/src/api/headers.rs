//! Headers that Eclusa itself reads and writes.

use std::time::Duration;

use eclusa_core::{Cached, JobView, Level, ServedBy, Span, Status};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

use super::model::JobRequest;
use super::model::job_request::{level, span};
use super::problem::{Kind, Problem};
use crate::config::{parse_duration, suggest};
use crate::execute::http::headers as passed;
use crate::execute::is_reusable;
use crate::intake::Fault;

const PREFIX: &str = "eclusa-";
/// Eclusa's own request headers.
const OWN: [&str; 4] = ["eclusa-tenant", "eclusa-priority", "eclusa-type", "eclusa-ttl"];
/// Its response headers.
const OF_RESPONSES: [&str; 3] = ["eclusa-job-id", "eclusa-upstream", "eclusa-attempts"];
/// Those that only matter to a waiting job.
const WAITING: [&str; 3] = ["eclusa-priority", "eclusa-type", "eclusa-ttl"];

/// A header whose value is printable.
pub(super) fn header(name: &'static str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
}

/// `Ok` if the call at `path` reads every `Eclusa-*` header of the request: any other would silently have no effect.
pub(super) fn check_own(headers: &HeaderMap, path: &str) -> Result<(), Problem> {
    let mut own = headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).peekable();
    if own.peek().is_none() {
        return Ok(());
    }
    let refused = not_read(path);
    let problem = |name: &HeaderName| match (OWN.contains(&name.as_str()), refused) {
        (false, _) => Some(unknown(name.as_str())),
        (true, refused) => refused.map(ToOwned::to_owned),
    };
    let fault = |name| Some(Fault::new(format!("Header {name}"), problem(name)?));
    let faults: Vec<Fault> = own.filter_map(fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(Problem::invalid(&faults)) }
}

/// What is wrong with a known header that the call at `path` does not read; `None` for calls that take one job.
fn not_read(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[..] {
        ["proxy", ..] | ["v1", "lanes", _, "jobs"] => None,
        ["v1", "lanes", _, "jobs", "batch"] => Some("is not allowed with a batch: set it in each job"),
        ["v1", "limits", _, "acquire"] => Some(
            "is not allowed here: a permit belongs to no job. Policies by tenant take the tenant as `scope` of the body",
        ),
        _ => Some("is not allowed here: it describes a job, for `POST /v1/lanes/{lane}/jobs` and `/proxy`"),
    }
}

/// What is wrong with an unknown header.
fn unknown(name: &str) -> String {
    if OF_RESPONSES.contains(&name) {
        return "is a header of responses: do not send it".into();
    }
    // The common prefix would make every name similar.
    let close = suggest(name.trim_start_matches(PREFIX), OWN.map(|own| own.trim_start_matches(PREFIX)));
    match close {
        Some(close) => format!("is unknown; {}", close.replacen('`', &format!("`{PREFIX}"), 1)),
        None => format!("is unknown; known are {}", OWN.join(", ")),
    }
}

/// `Ok` if there is no header that names a single job: a batch has many.
pub(super) fn refuse_key(headers: &HeaderMap) -> Result<(), Problem> {
    refuse(headers, [("idempotency-key", "is not allowed with a batch: give each job an `id`")])
}

/// `Ok` if there is no header that only matters to a waiting job, for a direct lane.
pub(super) fn refuse_waiting(headers: &HeaderMap) -> Result<(), Problem> {
    let problem = "is not allowed in a direct lane, where nothing waits: remove it, or use a lane with `mode = \"queue\"`";
    refuse(headers, WAITING.map(|name| (name, problem)))
}

/// `Ok` if none of these headers is there; each comes with what to do about it.
fn refuse<'a>(
    headers: &HeaderMap,
    refused: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), Problem> {
    let given = refused.into_iter().filter(|(name, _)| headers.contains_key(*name));
    let faults: Vec<Fault> =
        given.map(|(name, problem)| Fault::new(format!("Header {name}"), problem)).collect();
    if faults.is_empty() { Ok(()) } else { Err(Problem::invalid(&faults)) }
}

/// Copies what the headers say about a job into it. A field given in both places must be equal.
pub(super) fn apply(
    headers: &HeaderMap,
    job: &mut JobRequest,
    faults: &mut Vec<Fault>,
) -> Result<(), Problem> {
    priority(headers)?;
    let own = |name| Ok::<_, Problem>(text(headers, name)?.map(ToOwned::to_owned));
    for (name, field, header, said) in [
        ("Idempotency-Key", "id", idempotency_key(headers)?, &mut job.id),
        ("Eclusa-Tenant", "tenant", own("eclusa-tenant")?, &mut job.tenant),
        ("Eclusa-Priority", "priority", own("eclusa-priority")?, &mut job.priority),
        ("Eclusa-Type", "type", own("eclusa-type")?, &mut job.kind),
    ] {
        match (&header, &said) {
            (Some(header), Some(said)) if header != said => faults.push(differs(field, name)),
            (Some(_), _) => *said = header,
            (None, _) => {}
        }
    }
    if let Some(header) = ttl(headers)? {
        match span("ttl", job.ttl.as_ref()) {
            Ok(Some(said)) if said != header => faults.push(differs("ttl", "Eclusa-Ttl")),
            Ok(None) => job.ttl = text(headers, "eclusa-ttl")?.map(Value::from),
            // A fault in the job's own value is reported when the job is read.
            Ok(Some(_)) | Err(_) => {}
        }
    }
    Ok(())
}

fn differs(field: &str, header: &str) -> Fault {
    Fault::new(field, format!("differs from {header}: send one of them"))
}

/// The value of a header that must be text and given at most once.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::new(Kind::BadRequest, format!("The header {name} is given more than once")));
    }
    match value.to_str() {
        Ok(text) => Ok(Some(text.trim())),
        Err(_) => Err(Problem::new(Kind::BadRequest, format!("The header {name} must be plain text"))),
    }
}

/// `Idempotency-Key`: a structured-field string, or the raw value if it is not quoted.
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

/// `Eclusa-Ttl`, such as `10s`.
pub(super) fn ttl(headers: &HeaderMap) -> Result<Option<Span>, Problem> {
    let Some(text) = text(headers, "eclusa-ttl")? else { return Ok(None) };
    let span = parse_duration(text);
    span.map(Some).map_err(|problem| Problem::invalid(&[Fault::new("Eclusa-Ttl", problem)]))
}

/// `Prefer: wait=N` in seconds (RFC 7240). Other preferences, and malformed ones, are ignored.
pub(super) fn prefer_wait(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all("prefer").into_iter().filter_map(|value| value.to_str().ok());
    let seconds = values.flat_map(|value| unquoted(value, ',')).find_map(|preference| {
        // Parameters of the preference follow a semicolon.
        let (name, value) = unquoted(preference, ';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"'))
    })?;
    let digits = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| Duration::from_secs(seconds.parse().unwrap_or(u64::MAX)))
}

/// Splits `text` at each `separator` that is not inside quotes.
fn unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c| {
        let separates = !quoted && c == separator;
        (quoted, escaped) = match c {
            _ if escaped => (quoted, false),
            '"' => (!quoted, false),
            '\\' => (quoted, quoted),
            _ => (quoted, false),
        };
        separates
    })
}

/// The caller's headers that are forwarded to the upstream.
pub(super) fn passed_on(headers: &HeaderMap) -> Result<Vec<(String, Vec<u8>)>, Problem> {
    let all = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    passed::from_caller(all).map_err(|bad| bad_headers(&bad))
}

/// Removes headers that are not forwarded to the upstream.
pub(super) fn sendable(headers: &mut HeaderMap) -> Result<(), Problem> {
    passed::keep_sendable(headers).map_err(|bad| bad_headers(&bad))
}

fn bad_headers(bad: &passed::BadHeaders) -> Problem {
    Problem::new(Kind::BadRequest, format!("The request {bad}"))
}

/// `Cache-Status` (RFC 9211) of a response from the cache, without a job.
pub(super) fn cache_hit(cached: &Cached) -> String {
    match cached.stale {
        None => format!("eclusa; hit; ttl={}", cached.fresh_for.as_millis() / 1_000),
        Some(why) => {
            let stale_for = match cached.stale_for.as_millis() / 1_000 {
                0 => "0".to_owned(),
                seconds => format!("-{seconds}"),
            };
            format!("eclusa; hit; ttl={stale_for}; detail={}", why.as_str())
        }
    }
}

/// `Cache-Status` of a job's response; `None` for a job that was neither sent nor answered.
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
        let wait = |value| prefer_wait(&with("prefer", value)).map(|wait| wait.as_secs());
        assert_eq!(wait("wait=10"), Some(10));
        assert_eq!(wait("respond-async, Wait = \"5\"; a=b, wait=7"), Some(5));
        assert_eq!(wait("wait=99999999999999999999999"), Some(u64::MAX));
        let not_ours =
            ["respond-async", "return=minimal; wait=5", "note=\"a, wait=5\"", "note=\"\\\", wait=5\""];
        let of_no_use = ["wait", "wait=", "wait=soon", "wait=1.5", "wait=-1", "wait=+1", "wait=1 5"];
        for value in not_ours.into_iter().chain(of_no_use) {
            assert_eq!(wait(value), None, "{value}");
        }
    }

    #[test]
    fn the_ttl_of_a_stale_answer_is_never_minus_zero() {
        let hit = |millis| {
            let (stale, stale_for) = (Some(eclusa_core::Fallback::CircuitOpen), Span::from_millis(millis));
            cache_hit(&Cached { answer: [].into(), stale, fresh_for: Span::ZERO, stale_for })
        };
        assert_eq!(hit(999), "eclusa; hit; ttl=0; detail=breaker_aberto");
        assert_eq!(hit(2_000), "eclusa; hit; ttl=-2; detail=breaker_aberto");
    }

    #[test]
    fn idempotency_keys_may_be_quoted() {
        let key = |value| idempotency_key(&with("idempotency-key", value)).unwrap();
        assert_eq!(key("\"a \\\"b\\\"\"").unwrap(), "a \"b\"");
        assert_eq!(key("8e03978e").unwrap(), "8e03978e");
        assert!(idempotency_key(&with("idempotency-key", "\"\"")).is_err());
    }

    #[test]
    fn only_a_similar_name_is_suggested_for_an_unknown_header() {
        assert_eq!(unknown("eclusa-tennant"), "is unknown; did you mean `eclusa-tenant`?");
        for name in ["eclusa-foo", "eclusa-", "eclusa-lane"] {
            let known = "is unknown; known are eclusa-tenant, eclusa-priority, eclusa-type, eclusa-ttl";
            assert_eq!(unknown(name), known, "{name}");
        }
        assert_eq!(unknown("eclusa-job-id"), "is a header of responses: do not send it");
    }

    #[test]
    fn a_ttl_is_a_duration_with_its_unit() {
        assert_eq!(ttl(&with("eclusa-ttl", "10s")).unwrap(), Some(Span::from_secs(10)));
        assert!(ttl(&with("eclusa-ttl", "250")).is_err() && ttl(&with("eclusa-ttl", "soon")).is_err());
    }
}
