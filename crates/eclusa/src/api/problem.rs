//! Errors as callers see them: RFC 9457 problem details, one type per kind of error.

use std::borrow::Cow;
use std::net::SocketAddr;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde_json::{Map, Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::access;
use super::json;
use super::model::vocabulary::{JobStatus, ProblemReason};
use crate::config::Key;
use crate::intake::Fault;
use crate::telemetry::{RefusedRequest, log_refusal};

/// The kinds of error, each with the last part of its `type`, its status and its title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The request cannot be understood.
    BadRequest,
    /// A missing or unknown key.
    Unauthorized,
    /// The key does not allow this.
    Forbidden,
    /// The `Host` is not a name of this server.
    WrongHost,
    /// Sent by a page of another site.
    ForeignSite,
    /// There is no such thing.
    NotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The current state does not allow it.
    Conflict,
    /// The body is too large.
    TooLarge,
    /// The body arrives too slowly.
    TooSlow,
    /// Readable, but not valid.
    Invalid,
    /// The key was used with another payload.
    IdempotencyConflict,
    /// A gate denies the call now.
    QuotaExceeded,
    /// The lane accepts no more jobs.
    QueueFull,
    /// The job could not start before it expires.
    NotInTime,
    /// No more event streams can be opened.
    TooManyStreams,
    /// No more bodies can be received at the same time.
    TooManyBodies,
    /// The store does not answer.
    StoreUnavailable,
    /// The process is stopping.
    Stopping,
    /// The job ended without an answer.
    JobDropped,
    /// The upstream failed.
    UpstreamFailed,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// A bug.
    Internal,
}

impl Kind {
    /// All kinds.
    const ALL: [Self; 23] = [
        Kind::BadRequest,
        Kind::Unauthorized,
        Kind::Forbidden,
        Kind::WrongHost,
        Kind::ForeignSite,
        Kind::NotFound,
        Kind::MethodNotAllowed,
        Kind::Conflict,
        Kind::TooLarge,
        Kind::TooSlow,
        Kind::Invalid,
        Kind::IdempotencyConflict,
        Kind::QuotaExceeded,
        Kind::QueueFull,
        Kind::NotInTime,
        Kind::TooManyStreams,
        Kind::TooManyBodies,
        Kind::StoreUnavailable,
        Kind::Stopping,
        Kind::JobDropped,
        Kind::UpstreamFailed,
        Kind::UpstreamTimeout,
        Kind::Internal,
    ];

    /// The last part of the `type`.
    pub(super) const fn word(self) -> &'static str {
        self.facts().0
    }

    /// The HTTP status.
    pub(super) const fn status(self) -> StatusCode {
        self.facts().1
    }

    /// The title: a sentence without a full stop.
    pub(super) const fn title(self) -> &'static str {
        self.facts().2
    }

    /// The `type`.
    pub(super) fn urn(self) -> String {
        format!("{TYPE}{}", self.word())
    }

    const fn facts(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Kind::BadRequest => ("bad-request", StatusCode::BAD_REQUEST, "The request cannot be understood"),
            Kind::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, "A valid key is needed"),
            Kind::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "This key may not do that"),
            Kind::WrongHost => {
                ("wrong-host", StatusCode::FORBIDDEN, "The server does not answer to this Host")
            }
            Kind::ForeignSite => {
                ("foreign-site", StatusCode::FORBIDDEN, "Pages of other sites may not send this")
            }
            Kind::NotFound => ("not-found", StatusCode::NOT_FOUND, "Not found"),
            Kind::MethodNotAllowed => (
                "method-not-allowed",
                StatusCode::METHOD_NOT_ALLOWED,
                "This path does not support the method",
            ),
            Kind::Conflict => ("conflict", StatusCode::CONFLICT, "The current state does not allow that"),
            Kind::TooSlow => ("too-slow", StatusCode::REQUEST_TIMEOUT, "The request arrived too slowly"),
            Kind::TooLarge => ("too-large", StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Kind::Invalid => ("invalid", StatusCode::UNPROCESSABLE_ENTITY, "The request is not valid"),
            Kind::IdempotencyConflict => (
                "idempotency-conflict",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The key was used with another payload",
            ),
            Kind::QuotaExceeded => {
                ("quota-exceeded", StatusCode::TOO_MANY_REQUESTS, "A limit does not allow the call now")
            }
            Kind::QueueFull => ("queue-full", StatusCode::SERVICE_UNAVAILABLE, "The queue is full"),
            Kind::NotInTime => {
                ("not-in-time", StatusCode::SERVICE_UNAVAILABLE, "The job cannot start before it expires")
            }
            Kind::TooManyStreams => {
                ("too-many-streams", StatusCode::SERVICE_UNAVAILABLE, "Too many streams are open")
            }
            Kind::TooManyBodies => {
                ("too-many-bodies", StatusCode::SERVICE_UNAVAILABLE, "Too many bodies are being received")
            }
            Kind::StoreUnavailable => {
                ("store-unavailable", StatusCode::SERVICE_UNAVAILABLE, "The store does not answer")
            }
            Kind::Stopping => ("stopping", StatusCode::SERVICE_UNAVAILABLE, "The server is stopping"),
            Kind::JobDropped => ("job-dropped", StatusCode::SERVICE_UNAVAILABLE, "The job was dropped"),
            Kind::UpstreamFailed => ("upstream-failed", StatusCode::BAD_GATEWAY, "The upstream failed"),
            Kind::UpstreamTimeout => {
                ("upstream-timeout", StatusCode::GATEWAY_TIMEOUT, "The upstream did not answer in time")
            }
            Kind::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, "Internal error"),
        }
    }
}

/// Prefix of every problem `type`.
const TYPE: &str = "urn:eclusa:problem:";

/// Problem details (RFC 9457). Members other than the first four depend on the `type`.
#[derive(ToSchema)]
#[schema(as = Problem, example = json!({
    "type": "urn:eclusa:problem:invalid",
    "title": "The request is not valid",
    "status": 422,
    "detail": "priority: must be one of high, normal, low",
    "errors": [{ "field": "priority", "problem": "must be one of high, normal, low" }],
}))]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its description is used")]
pub(super) struct ProblemDetails {
    /// The kind of problem.
    #[schema(value_type = ProblemType)]
    r#type: String,
    /// The kind, as text.
    title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong, where, and how to fix it.
    detail: String,
    /// With `invalid`: the fields that are wrong.
    #[schema(nullable = false)]
    errors: Option<Vec<FieldError>>,
    /// With `quota-exceeded`: the gate that denied. With `job-dropped`: why it was dropped.
    #[schema(value_type = Option<ProblemReason>, nullable = false)]
    reason: Option<String>,
    /// With `quota-exceeded`: the limits that are exhausted.
    #[serde(rename = "violated-policies")]
    #[schema(nullable = false)]
    violated_policies: Option<Vec<String>>,
    /// With `queue-full` and `not-in-time`: the lane.
    #[schema(nullable = false)]
    lane: Option<String>,
    /// With `not-in-time`: when the job would start.
    #[schema(format = DateTime, nullable = false)]
    eta: Option<String>,
    /// The job concerned.
    #[schema(nullable = false)]
    job_id: Option<String>,
    /// The status of that job.
    #[schema(value_type = Option<JobStatus>, nullable = false)]
    job_status: Option<String>,
}

/// What is wrong with one field.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its description is used")]
pub(super) struct FieldError {
    /// The field, such as `request.path`, or the name of a parameter or header.
    field: String,
    /// What is wrong with it.
    problem: String,
}

/// The types of problems.
enum ProblemType {}

impl PartialSchema for ProblemType {
    fn schema() -> RefOr<Schema> {
        let words = Kind::ALL.iter().map(|kind| kind.urn());
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).into()
    }
}

impl ToSchema for ProblemType {
    fn name() -> Cow<'static, str> {
        "ProblemType".into()
    }
}

/// A problem to respond with.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The name of the key that a refused request was sent with, for the log.
    key: Option<String>,
}

impl Problem {
    /// Creates a problem. `detail` says what is wrong, where, and how to fix it.
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let (word, status, title) = kind.facts();
        let mut members = Map::new();
        members.insert("type".into(), format!("{TYPE}{word}").into());
        members.insert("title".into(), title.into());
        members.insert("status".into(), status.as_u16().into());
        members.insert("detail".into(), detail.into().into());
        let headers = match kind {
            Kind::Unauthorized => {
                vec![(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"eclusa\""))]
            }
            _ => Vec::new(),
        };
        Self { kind, members, headers, key: None }
    }

    /// Everything that is wrong with a request, by field.
    pub(super) fn invalid(faults: &[Fault]) -> Self {
        let said: Vec<String> =
            faults.iter().map(|fault| format!("{}: {}", fault.field, fault.problem)).collect();
        let errors: Vec<Value> =
            faults.iter().map(|fault| json!({ "field": fault.field, "problem": fault.problem })).collect();
        Self::new(Kind::Invalid, said.join("; ")).with("errors", errors)
    }

    /// For a JSON body: adds the JSON pointer of each field.
    #[must_use]
    pub(super) fn in_body(mut self) -> Self {
        let errors = self.members.get_mut("errors").and_then(Value::as_array_mut);
        for error in errors.into_iter().flatten() {
            if let Some(pointer) = error["field"].as_str().and_then(json::pointer) {
                error["pointer"] = pointer.into();
            }
        }
        self
    }

    /// Adds a member.
    #[must_use]
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.into(), value.into());
        self
    }

    /// Adds a header.
    #[must_use]
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Something that a known key may not do. The log reports the key's name.
    pub(super) fn forbidden(key: &Key, detail: impl Into<String>) -> Self {
        Self { key: Some(key.name.clone()), ..Self::new(Kind::Forbidden, detail) }
    }

    /// Sets `Retry-After`.
    #[must_use]
    pub(super) fn retry_after(self, seconds: u64) -> Self {
        self.header(RETRY_AFTER, HeaderValue::from(seconds.max(1)))
    }
}

impl Problem {
    /// Converts to JSON.
    pub(super) fn into_json(self) -> Value {
        Value::Object(self.members)
    }
}

/// Marks a problem response as Eclusa's own, not an upstream's.
#[derive(Debug, Clone)]
pub(super) struct OwnProblem {
    /// Set if the request was refused for its key.
    pub(super) refusal: Option<Refusal>,
}

/// Why a request was refused for its key.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    /// The key's name, if it is known.
    key: Option<String>,
    reason: String,
}

impl Refusal {
    /// Logs and counts the refusal of this request.
    pub(super) fn log(&self, status: StatusCode, method: &Method, uri: &Uri, client: SocketAddr) {
        log_refusal(&RefusedRequest {
            status: status.as_u16(),
            request: access::masked_request(method, uri),
            key: self.key.as_deref(),
            client,
            reason: &self.reason,
        });
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (_, status, _) = self.kind.facts();
        let refusal = matches!(self.kind, Kind::Unauthorized | Kind::Forbidden).then(|| {
            let reason = self.members.get("detail").and_then(Value::as_str).unwrap_or_default().to_owned();
            Refusal { key: self.key, reason }
        });
        let body = Value::Object(self.members).to_string();
        let mut response = (status, body).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response.headers_mut().extend(self.headers);
        response.extensions_mut().insert(OwnProblem { refusal });
        response
    }
}

/// The type and title of the DICT API for an exceeded quota, for clients that expect XML.
const DICT_RATE_LIMITED: [(&str, &str); 2] =
    [("type", "https://dict.pi.rsfn.net.br/api/v2/error/RateLimited"), ("title", "Rate limited")];
/// The first members, in the order of RFC 9457.
const FIRST: [&str; 4] = ["type", "title", "status", "detail"];

/// The problem as XML. An exceeded quota uses the type and title of the DICT API.
pub(super) fn as_xml(mut problem: Map<String, Value>) -> String {
    let (quota, ..) = Kind::QuotaExceeded.facts();
    if problem.get("type").and_then(Value::as_str).and_then(|kind| kind.strip_prefix(TYPE)) == Some(quota) {
        problem.extend(DICT_RATE_LIMITED.map(|(name, text)| (name.to_owned(), text.into())));
    }
    let mut xml =
        String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<problem xmlns=\"urn:ietf:rfc:7807\">");
    for name in FIRST {
        if let Some(value) = problem.remove(name) {
            element(&mut xml, name, &value);
        }
    }
    for (name, value) in &problem {
        element(&mut xml, name, value);
    }
    xml.push_str("</problem>\n");
    xml
}

fn element(xml: &mut String, name: &str, value: &Value) {
    xml.extend(["<", name, ">"]);
    match value {
        Value::Array(items) => items.iter().for_each(|item| element(xml, "i", item)),
        Value::Object(members) => members.iter().for_each(|(name, value)| element(xml, name, value)),
        Value::String(text) => xml.push_str(&escaped(text)),
        other => xml.push_str(&other.to_string()),
    }
    xml.extend(["</", name, ">"]);
}

/// Escapes text for XML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_every_type_with_its_status_and_no_other() {
        assert_eq!(Kind::ALL.len(), Kind::Internal as usize + 1, "the list is incomplete");
        let page = include_str!("../../../../docs/reference/api.md");
        let (_, problems) = page.split_once("\n## Problems\n").unwrap();
        let mut listed: Vec<String> = problems
            .lines()
            .filter_map(|line| {
                Some(line.strip_prefix("| `")?.split(" | ").take(2).collect::<Vec<_>>().join(" "))
            })
            .collect();
        let mut known: Vec<String> = Kind::ALL
            .iter()
            .map(|kind| kind.facts())
            .map(|(word, status, _)| format!("{word}` {}", status.as_u16()))
            .collect();
        listed.sort();
        known.sort();
        assert_eq!(listed, known);
    }

    #[test]
    fn xml_says_the_same_and_escapes() {
        let problem = Problem::new(Kind::Invalid, "a < b & c").with("errors", json!([{ "field": "ttl" }]));
        let xml = as_xml(problem.members);
        let said = "<type>urn:eclusa:problem:invalid</type><title>The request is not valid</title>\
                    <status>422</status><detail>a &lt; b &amp; c</detail>\
                    <errors><i><field>ttl</field></i></errors></problem>\n";
        assert!(xml.ends_with(said), "{xml}");
    }

    #[test]
    fn an_exceeded_quota_has_the_type_of_the_dict_api() {
        let xml = as_xml(Problem::new(Kind::QuotaExceeded, "`dict` accepts no more calls now").members);
        let said = "<problem xmlns=\"urn:ietf:rfc:7807\">\
                    <type>https://dict.pi.rsfn.net.br/api/v2/error/RateLimited</type>\
                    <title>Rate limited</title><status>429</status><detail>`dict` accepts no more calls now</detail></problem>\n";
        assert!(xml.ends_with(said), "{xml}");
    }
}
