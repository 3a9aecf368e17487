//! The access log: one line per request, written when its response has ended.

use std::fmt::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body as HttpBody;
use axum::response::Response;
use bytes::Bytes;
use eclusa_core::{JobId, Time};
use http::{HeaderMap, Method, Uri};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::auth::by_bearer;
use super::session;
use super::state::ApiState;
use crate::config::Key;

/// Replaces masked values and identifiers.
const MASK: &str = "***";
/// Maximum bytes of caller-supplied text in a line.
const MAX_TEXT: usize = 256;
/// A path segment with more digits than this is masked as an identifier.
const MAX_DIGITS: usize = 3;
/// The same bound for names of lanes, upstreams and policies, which may contain a date.
const MAX_DIGITS_OF_NAME: usize = 8;

/// A log line that is written on drop: when the response has ended, or the client has disconnected.
pub(super) struct AccessLine {
    began: Instant,
    method: String,
    path: String,
    query: Option<String>,
    key: Option<String>,
    client: SocketAddr,
    trace: Option<String>,
    request_id: Option<String>,
    /// 0 until the response begins.
    status: u16,
    job: Option<String>,
    bytes: u64,
    /// Whether the whole response was sent.
    whole: bool,
}

impl AccessLine {
    /// Starts the line of a request that has just arrived.
    pub(super) fn begin<B>(api: &ApiState, request: &http::Request<B>, client: SocketAddr) -> Self {
        let (headers, uri) = (request.headers(), request.uri());
        let rules = api.rules.get();
        let key = key_of(headers, &rules.config.keys, api.clock.now()).map(|key| key.name.clone());
        let trace = text(headers, "traceparent").and_then(|text| Some(text.split('-').nth(1)?.to_owned()));
        Self {
            began: Instant::now(),
            method: request.method().to_string(),
            path: masked_path(uri.path()),
            query: uri.query().map(masked_query),
            key,
            client,
            trace: trace.filter(|trace| trace.len() == 32),
            request_id: text(headers, "x-request-id"),
            status: 0,
            job: None,
            bytes: 0,
            // Responses to HEAD have no body.
            whole: request.method() == Method::HEAD,
        }
    }

    /// Returns the response with a body that writes the line when it ends.
    pub(super) fn of(mut self: Box<Self>, response: Response) -> Response {
        let (parts, body) = response.into_parts();
        (self.status, self.job) = (parts.status.as_u16(), text(&parts.headers, "eclusa-job-id"));
        self.whole |= body.is_end_stream();
        Response::from_parts(parts, HttpBody::new(Logged { body, line: self }))
    }
}

/// The key that a request was sent with, or that its session belongs to.
fn key_of<'a>(headers: &HeaderMap, keys: &'a [Arc<Key>], now: Time) -> Option<&'a Arc<Key>> {
    by_bearer(headers, keys).or_else(|| session::find(headers, keys, now).map(|(key, _)| key))
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    (text.len() <= MAX_TEXT).then(|| text.to_owned())
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let ms = self.began.elapsed().as_secs_f64() * 1_000.0;
        let ms = (ms * 1_000.0).round() / 1_000.0;
        let Self { method, path, status, bytes, .. } = &*self;
        tracing::info!(
            target: "access",
            method,
            path,
            query = self.query,
            status,
            durationMs = ms,
            bytes,
            key = self.key,
            client = %self.client,
            jobId = self.job,
            traceId = self.trace,
            requestId = self.request_id,
            cutOff = (!self.whole).then_some(true),
            "{method} {path} {status}"
        );
    }
}

struct Logged {
    body: HttpBody,
    line: Box<AccessLine>,
}

impl Body for Logged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                self.line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                self.line.whole = self.body.is_end_stream();
            }
            Poll::Ready(None) => self.line.whole = true,
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Keeps names and masks values: `cpf=***&page=***`.
fn masked_query(query: &str) -> String {
    let mut masked = String::new();
    for (at, pair) in query.split('&').enumerate() {
        let name = pair.split('=').next().unwrap_or_default();
        let separator = if at == 0 { "" } else { "&" };
        // A part without `=` may itself be a value.
        let name = if pair.contains('=') { cut(name) } else { MASK };
        let _ = write!(masked, "{separator}{name}");
        if pair.contains('=') {
            let _ = write!(masked, "={MASK}");
        }
    }
    cut(&masked).to_owned()
}

/// Method, path and query, masked.
pub(super) fn masked_request(method: &Method, uri: &Uri) -> String {
    let path = masked_path(uri.path());
    match uri.query().map(masked_query) {
        Some(query) => format!("{method} {path}?{query}"),
        None => format!("{method} {path}"),
    }
}

/// Masks path segments that look like personal identifiers, and lease ids, which grant a right. Job ids stay visible.
fn masked_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let is_hidden = |at: usize, part: &str| match (&parts[..], at) {
        (["v1", "limits", "leases", ..], 3) => true,
        (["proxy", ..], 1) | (["v1", "lanes" | "upstreams" | "breakers" | "policies", ..], 2) => {
            is_identifier(part, MAX_DIGITS_OF_NAME)
        }
        (["proxy", ..], _) => is_identifier(part, MAX_DIGITS),
        _ => is_identifier(part, MAX_DIGITS) && !is_job_id(part),
    };
    let mut masked = String::new();
    for (at, part) in parts.iter().enumerate() {
        let _ = write!(masked, "/{}", if is_hidden(at, part) { MASK } else { part });
    }
    cut(&masked).to_owned()
}

/// Whether a segment contains an `@`, a `+`, a percent-escape or many digits.
fn is_identifier(part: &str, max_digits: usize) -> bool {
    part.bytes().filter(u8::is_ascii_digit).count() > max_digits || part.contains(['@', '+', '%'])
}

fn is_job_id(part: &str) -> bool {
    part.parse::<JobId>().is_ok()
}

fn cut(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_masked_and_names_are_not() {
        assert_eq!(masked_query("cpf=12345678901&page=2"), "cpf=***&page=***");
        assert_eq!(masked_query("12345678901"), "***");
        assert_eq!(masked_query("a=b=c&&d="), "a=***&***&d=***");
    }

    #[test]
    fn identifiers_in_the_path_of_an_upstream_are_masked() {
        let rows = [
            ("/proxy/score", "/proxy/score"),
            ("/proxy/dict/api/v2/entries/+5511999998888", "/proxy/dict/api/v2/entries/***"),
            ("/proxy/dict/entries/a%40b.example/claims", "/proxy/dict/entries/***/claims"),
            ("/proxy/lane-2026/12345678901", "/proxy/lane-2026/***"),
            ("/proxy/12345678901", "/proxy/***"),
            ("/score/12345678901", "/score/***"),
            ("/v1/lanes/12345678901/pause", "/v1/lanes/***/pause"),
            ("/v1/lanes/lane-2026/jobs/12345678901", "/v1/lanes/lane-2026/jobs/***"),
            (
                "/v1/jobs/0193f0aa-0000-7000-8000-000000000000",
                "/v1/jobs/0193f0aa-0000-7000-8000-000000000000",
            ),
        ];
        for (path, masked) in rows {
            assert_eq!(masked_path(path), masked);
        }
        assert_eq!(masked_path(&format!("/é{}", "é".repeat(500))).len(), 255);
    }
}
