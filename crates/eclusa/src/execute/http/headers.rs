//! Which headers are passed on.
//!
//! Hop-by-hop headers and headers for Eclusa are removed, and headers that frame the message are written again. All
//! others are passed on unchanged, in both directions.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use thiserror::Error;

use crate::execute::CallContext;

/// The most headers of a request.
pub const MAX_HEADERS: usize = 100;
/// The most bytes of all names and values of a request's headers.
pub const MAX_HEADER_BYTES: usize = 32 * 1024;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Why headers cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadHeaders {
    /// Too many.
    #[error("has more than {MAX_HEADERS} headers")]
    TooMany,
    /// Too large in all.
    #[error("has headers of more than {MAX_HEADER_BYTES} bytes")]
    TooLarge,
    /// An invalid name.
    #[error("has a header whose name is empty or holds a character that names cannot")]
    Name,
    /// An invalid value, with a line break for example. The value is not shown, since it may be secret.
    #[error("has a header {0:?} whose value holds a character that values cannot")]
    Value(String),
}

/// Removes headers of a caller's request that must not be sent upstream.
pub fn keep_sendable(headers: &mut HeaderMap) -> Result<(), BadHeaders> {
    if headers.len() > MAX_HEADERS {
        return Err(BadHeaders::TooMany);
    }
    if headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() > MAX_HEADER_BYTES
    {
        return Err(BadHeaders::TooLarge);
    }
    strip(headers, is_for_us);
    join_cookies(headers);
    Ok(())
}

/// The headers of a caller that are sent upstream, with names in lower case.
pub fn from_caller<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Vec<(String, Vec<u8>)>, BadHeaders> {
    Ok(pairs(&sendable(headers)?))
}

/// The headers as pairs, for a job.
pub(super) fn pairs(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
}

/// The headers of a job. They are checked again: the job may be older than a rule.
pub(super) fn of_job(headers: &[(String, Vec<u8>)]) -> Result<HeaderMap, BadHeaders> {
    sendable(headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())))
}

/// The headers of a request: the caller's, then ours, then those that the configuration defines for the upstream and
/// this call. Later ones replace earlier ones.
pub(super) fn outgoing(
    mut headers: HeaderMap,
    configured: &[(HeaderName, HeaderValue)],
    context: &CallContext<'_>,
) -> HeaderMap {
    headers.insert(IDEMPOTENCY_KEY, key_value(context.idempotency_key));
    if let Some(traceparent) = context.traceparent.and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(TRACEPARENT, traceparent);
    }
    let configured = configured.iter().chain(context.headers);
    for (name, value) in configured.filter(|(name, _)| !is_framing(name)) {
        headers.insert(name.clone(), value.clone());
    }
    headers
}

/// Adds `Content-Length: 0` for methods that usually have a body: servers may answer 411 without it.
pub(super) fn announce_empty_body(method: &Method, headers: &mut HeaderMap) {
    if [Method::POST, Method::PUT, Method::PATCH].contains(method) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

/// Removes headers of an upstream's answer that must not reach the caller.
pub(super) fn strip_answer(headers: &mut HeaderMap) {
    // The caller would take its `Eclusa-…` headers for ours.
    strip(headers, |name| name.as_str().starts_with("eclusa-"));
}

fn sendable<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<HeaderMap, BadHeaders> {
    let mut sent = HeaderMap::new();
    let mut bytes = 0;
    for (name, value) in headers {
        bytes += name.len() + value.len();
        if bytes > MAX_HEADER_BYTES {
            return Err(BadHeaders::TooLarge);
        }
        if sent.len() == MAX_HEADERS {
            return Err(BadHeaders::TooMany);
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| BadHeaders::Name)?;
        let value = HeaderValue::from_bytes(value).map_err(|_| BadHeaders::Value(name.to_string()))?;
        sent.append(name, value);
    }
    strip(&mut sent, is_for_us);
    join_cookies(&mut sent);
    Ok(sent)
}

/// Joins `Cookie` fields: HTTP/2 clients may split them, other protocols have one (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Removes hop-by-hop headers, those that `Connection` names, and those that are `unwanted`.
fn strip(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    let listed = headers.keys().filter(|name| is_hop_by_hop(name) || unwanted(name)).cloned();
    for name in listed.chain(named).collect::<Vec<_>>() {
        headers.remove(name);
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || name == "keep-alive"
        || name == "http2-settings"
        || name.as_str().starts_with("proxy-")
}

fn is_framing(name: &HeaderName) -> bool {
    is_hop_by_hop(name) || [HOST, CONTENT_LENGTH, EXPECT].contains(name)
}

/// Whether a header is meant for Eclusa, not for the upstream. The caller's `Authorization` holds its key for Eclusa;
/// the upstream's own comes from the configuration.
fn is_for_us(name: &HeaderName) -> bool {
    is_framing(name)
        || name == AUTHORIZATION
        || name == IDEMPOTENCY_KEY
        || name == "prefer"
        || name.as_str().starts_with("eclusa-")
}

/// Keys may also come as JSON text and contain anything, so characters that are invalid in a header are escaped.
fn key_value(key: &str) -> HeaderValue {
    if key.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && let Ok(value) = HeaderValue::from_str(key)
    {
        return value;
    }
    let escaped = utf8_percent_encode(key, CONTROLS).to_string();
    // Only visible ASCII and spaces remain.
    HeaderValue::try_from(escaped).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use eclusa_core::Time;

    use super::*;

    struct Epoch;
    impl eclusa_core::Clock for Epoch {
        fn now(&self) -> Time {
            Time::default()
        }
    }

    fn context(key: &str) -> CallContext<'_> {
        CallContext { idempotency_key: key, traceparent: None, headers: &[], clock: &Epoch }
    }

    fn caller(headers: &[(&str, &str)]) -> Result<Vec<(String, Vec<u8>)>, BadHeaders> {
        from_caller(headers.iter().map(|(name, value)| (*name, value.as_bytes())))
    }

    /// The headers that are passed on, the same for jobs and for streamed requests.
    fn names(headers: &[(&str, &str)]) -> Vec<String> {
        let mut names: Vec<String> = caller(headers).unwrap().into_iter().map(|(name, _)| name).collect();
        names.sort();
        let mut passing = HeaderMap::new();
        for (name, value) in headers {
            passing.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        keep_sendable(&mut passing).unwrap();
        let mut kept: Vec<&str> = passing.iter().map(|(name, _)| name.as_str()).collect();
        kept.sort_unstable();
        assert_eq!(kept, names);
        names
    }

    #[test]
    fn hop_by_hop_headers_and_ours_are_not_passed_on() {
        let stripped = [
            ("Connection", "close, X-Hop ,  x-other"),
            ("connection", "X-Third"),
            ("X-Hop", "1"),
            ("x-other", "1"),
            ("x-third", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Authorization", "Basic x"),
            ("Proxy-Connection", "close"),
            ("TE", "trailers"),
            ("Trailer", "x"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA"),
            ("Host", "evil.example"),
            ("Content-Length", "99"),
            ("Expect", "100-continue"),
            ("Eclusa-Tenant", "a"),
            ("eclusa-anything", "a"),
            ("Prefer", "wait=5"),
            ("Authorization", "Bearer the-key-for-us"),
            ("Idempotency-Key", "k"),
        ];
        assert_eq!(names(&stripped), [""; 0]);
    }

    #[test]
    fn all_other_headers_are_passed_on_unchanged() {
        let passed = [
            ("Accept", "*/*"),
            ("Accept-Encoding", "gzip"),
            ("Forwarded", "for=10.0.0.1"),
            ("Forwarded", "for=10.0.0.2"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("traceparent", "00-1-2-01"),
            ("tracestate", "a=b"),
            ("Content-Type", "text/plain"),
        ];
        let mut expected: Vec<String> = passed.iter().map(|(name, _)| name.to_lowercase()).collect();
        expected.sort();
        assert_eq!(names(&passed), expected);
        let kept = caller(&[("X", "1"), ("X", "2")]).unwrap();
        assert_eq!(kept, [("x".into(), b"1".to_vec()), ("x".into(), b"2".to_vec())]);
    }

    #[test]
    fn split_cookies_are_joined_and_other_headers_are_not() {
        let split = [("Cookie", "a=1"), ("x-a", "1"), ("Cookie", "b=2; c=3"), ("Cookie", "d=4")];
        assert_eq!(names(&split), ["cookie", "x-a"]);
        let kept = caller(&split).unwrap();
        assert!(kept.contains(&("cookie".into(), b"a=1; b=2; c=3; d=4".to_vec())), "{kept:?}");
    }

    #[test]
    fn an_invalid_header_is_refused_without_quoting_its_value() {
        assert_eq!(caller(&[("X", "a\r\nHost: evil")]), Err(BadHeaders::Value("x".into())));
        assert_eq!(caller(&[("X", "a\0")]), Err(BadHeaders::Value("x".into())));
        for name in ["", "a b", "a:", "a\r\nb", "é"] {
            assert_eq!(caller(&[(name, "1")]), Err(BadHeaders::Name), "{name:?}");
        }
    }

    #[test]
    fn number_and_size_are_bounded() {
        let exactly = vec![("a", "1"); MAX_HEADERS];
        assert!(caller(&exactly).is_ok());
        assert_eq!(caller(&vec![("a", "1"); MAX_HEADERS + 1]), Err(BadHeaders::TooMany));
        let large = "x".repeat(MAX_HEADER_BYTES - 1);
        assert!(caller(&[("a", &large)]).is_ok());
        assert_eq!(caller(&[("ab", &large)]), Err(BadHeaders::TooLarge));
        let mut passing = HeaderMap::new();
        passing.insert("ab", HeaderValue::from_str(&large).unwrap());
        assert_eq!(keep_sendable(&mut passing), Err(BadHeaders::TooLarge));
        passing = HeaderMap::new();
        passing.extend(std::iter::repeat_n((AUTHORIZATION, HeaderValue::from_static("1")), MAX_HEADERS + 1));
        assert_eq!(keep_sendable(&mut passing), Err(BadHeaders::TooMany));
    }

    #[test]
    fn the_configuration_wins_over_the_caller_but_not_over_the_framing() {
        let stored =
            [("x-api-key".to_owned(), b"caller".to_vec()), ("x-api-key".to_owned(), b"twice".to_vec())];
        let text = HeaderValue::from_static;
        let configured = [
            (HeaderName::from_static("x-api-key"), text("ours")),
            (AUTHORIZATION, text("Bearer upstream")),
            (HOST, text("evil.example")),
            (CONTENT_LENGTH, text("3")),
        ];
        let sent = |context: &CallContext<'_>| {
            let sent = outgoing(of_job(&stored).unwrap(), &configured, context);
            let mut sent: Vec<_> =
                sent.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            sent.sort_unstable();
            sent
        };
        assert_eq!(
            sent(&context("k1")),
            ["authorization: Bearer upstream", "idempotency-key: k1", "x-api-key: ours"]
        );
        let of_call = [(AUTHORIZATION, text("Bearer of this call")), (IDEMPOTENCY_KEY, text("k2"))];
        assert_eq!(
            sent(&CallContext { headers: &of_call, ..context("k1") }),
            ["authorization: Bearer of this call", "idempotency-key: k2", "x-api-key: ours"]
        );
    }

    #[test]
    fn an_older_job_is_stripped_when_it_is_sent() {
        let stored = [("authorization".to_owned(), b"Bearer us".to_vec())];
        let sent = outgoing(of_job(&stored).unwrap(), &[], &context("k"));
        assert!(!sent.contains_key(AUTHORIZATION));
    }

    #[test]
    fn our_trace_replaces_the_callers() {
        let stored = [("traceparent".to_owned(), b"theirs".to_vec())];
        let sent = |ours| {
            let context = CallContext { traceparent: ours, ..context("k") };
            outgoing(of_job(&stored).unwrap(), &[], &context)[TRACEPARENT].clone()
        };
        assert_eq!(sent(None), "theirs");
        assert_eq!(sent(Some("ours")), "ours");
    }

    #[test]
    fn any_key_can_be_sent() {
        for (key, sent) in
            [("plain-1", "plain-1"), ("50% \"a\"", "50% \"a\""), ("a\r\nb", "a%0D%0Ab"), ("é", "%C3%A9")]
        {
            assert_eq!(key_value(key), sent);
        }
    }

    #[test]
    fn answers_keep_their_cookies_and_lose_hop_by_hop_headers() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("proxy-authenticate", "Basic"),
            ("eclusa-job-id", "forged"),
            ("content-length", "3"),
            ("www-authenticate", "Bearer"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        strip_answer(&mut headers);
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        assert_eq!(
            left,
            [
                ("content-length", "3"),
                ("set-cookie", "a=1"),
                ("set-cookie", "b=2"),
                ("www-authenticate", "Bearer")
            ]
        );
    }
}
