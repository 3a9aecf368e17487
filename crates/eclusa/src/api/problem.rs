//! Errors as the caller sees them: RFC 9457 problem details, one type for each thing that can go wrong.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::access;
use super::json;
use super::model::vocabulary::JobStatus;
use crate::intake::Fault;
use crate::telemetry::log_refusal;

/// What can go wrong: the last part of the problem's `type`, its status and its title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The request cannot be understood.
    BadRequest,
    /// No key, or an unknown one.
    Unauthorized,
    /// The key may not do this.
    Forbidden,
    /// The server does not answer to this name.
    WrongHost,
    /// A page of another site asks.
    ForeignSite,
    /// There is no such thing.
    NotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The state of the thing does not allow it.
    Conflict,
    /// The body is too large.
    TooLarge,
    /// The body comes too slowly.
    TooSlow,
    /// Understood, but wrong.
    Invalid,
    /// The key was used with another payload.
    IdempotencyConflict,
    /// A gate says no.
    QuotaExceeded,
    /// The lane takes no more.
    QueueFull,
    /// It could not start before it expires.
    NotInTime,
    /// No more can be followed here.
    TooManyStreams,
    /// No more bodies can be received at the same time.
    TooManyBodies,
    /// The store does not answer.
    StoreUnavailable,
    /// The process is stopping.
    Stopping,
    /// The job ended without an answer.
    JobDropped,
    /// The upstream did not answer as it should.
    UpstreamFailed,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// A bug.
    Internal,
}

impl Kind {
    /// All of them.
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

    /// The last part of the problem's `type`.
    pub(super) const fn word(self) -> &'static str {
        self.facts().0
    }

    /// Its status.
    pub(super) const fn status(self) -> StatusCode {
        self.facts().1
    }

    /// What it means, in a sentence without a full stop.
    pub(super) const fn title(self) -> &'static str {
        self.facts().2
    }

    /// The problem's `type`.
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
                ("foreign-site", StatusCode::FORBIDDEN, "Pages of other sites may not ask for this")
            }
            Kind::NotFound => ("not-found", StatusCode::NOT_FOUND, "There is no such thing"),
            Kind::MethodNotAllowed => {
                ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, "This method is not for this path")
            }
            Kind::Conflict => ("conflict", StatusCode::CONFLICT, "Its state does not allow that"),
            Kind::TooSlow => ("too-slow", StatusCode::REQUEST_TIMEOUT, "The request came too slowly"),
            Kind::TooLarge => ("too-large", StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Kind::Invalid => ("invalid", StatusCode::UNPROCESSABLE_ENTITY, "The request is not valid"),
            Kind::IdempotencyConflict => (
                "idempotency-conflict",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The key was used with another payload",
            ),
            Kind::QuotaExceeded => ("quota-exceeded", StatusCode::TOO_MANY_REQUESTS, "Not now"),
            Kind::QueueFull => ("queue-full", StatusCode::SERVICE_UNAVAILABLE, "The queue is full"),
            Kind::NotInTime => {
                ("not-in-time", StatusCode::SERVICE_UNAVAILABLE, "It cannot start before it expires")
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
            Kind::JobDropped => ("job-dropped", StatusCode::SERVICE_UNAVAILABLE, "The job was given up"),
            Kind::UpstreamFailed => ("upstream-failed", StatusCode::BAD_GATEWAY, "The upstream failed"),
            Kind::UpstreamTimeout => {
                ("upstream-timeout", StatusCode::GATEWAY_TIMEOUT, "The upstream did not answer in time")
            }
            Kind::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong here"),
        }
    }
}

/// What the type of every problem begins with.
const TYPE: &str = "urn:eclusa:problem:";

/// Problem details (RFC 9457). Which members there are besides the first four depends on the `type`.
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
    /// What kind of problem it is.
    #[schema(value_type = ProblemType)]
    r#type: String,
    /// The kind in words.
    title: String,
    /// The status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong, where, and how to fix it.
    detail: String,
    /// With `invalid`: each field that is wrong.
    #[schema(nullable = false)]
    errors: Option<Vec<FieldError>>,
    /// With `quota-exceeded`, the gate that refused; with `job-dropped`, why.
    #[schema(nullable = false)]
    reason: Option<String>,
    /// With `quota-exceeded`: the limits that are used up.
    #[serde(rename = "violated-policies")]
    #[schema(nullable = false)]
    violated_policies: Option<Vec<String>>,
    /// With `queue-full` and `not-in-time`: the lane.
    #[schema(nullable = false)]
    lane: Option<String>,
    /// With `not-in-time`: when the job would start.
    #[schema(format = DateTime, nullable = false)]
    eta: Option<String>,
    /// The job that it is about.
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
    /// The field, such as `request.path`; or the parameter or header.
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

/// A problem to answer with.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Method and path of a request that was refused for its key, for the log.
    request: Option<String>,
}

impl Problem {
    /// A problem of this kind; `detail` says what, where and how to mend it.
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
        Self { kind, members, headers, request: None }
    }

    /// Everything that is wrong with a request, each with its field.
    pub(super) fn invalid(faults: &[Fault]) -> Self {
        let said: Vec<String> =
            faults.iter().map(|fault| format!("{}: {}", fault.field, fault.problem)).collect();
        let errors: Vec<Value> =
            faults.iter().map(|fault| json!({ "field": fault.field, "problem": fault.problem })).collect();
        Self::new(Kind::Invalid, said.join("; ")).with("errors", errors)
    }

    /// The same about a body in JSON: each field with where it is, as a JSON pointer.
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

    /// The same with one more member.
    #[must_use]
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.into(), value.into());
        self
    }

    /// The same with one more header.
    #[must_use]
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The same for a request of which the log is to tell.
    #[must_use]
    pub(super) fn of_request(self, method: &http::Method, path: &str) -> Self {
        Self { request: Some(format!("{method} {}", access::masked_path(path))), ..self }
    }

    /// The same, to be tried again after `seconds`.
    #[must_use]
    pub(super) fn retry_after(self, seconds: u64) -> Self {
        self.header(RETRY_AFTER, HeaderValue::from(seconds.max(1)))
    }
}

impl Problem {
    /// As JSON.
    pub(super) fn into_json(self) -> Value {
        Value::Object(self.members)
    }
}

/// Marks a problem of ours, as opposed to one that an upstream answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnProblem;

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (_, status, _) = self.kind.facts();
        if matches!(self.kind, Kind::Unauthorized | Kind::Forbidden) {
            let reason = self.members.get("detail").and_then(Value::as_str).unwrap_or_default();
            log_refusal(status.as_u16(), self.request.as_deref(), reason);
        }
        let body = Value::Object(self.members).to_string();
        let mut response = (status, body).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response.headers_mut().extend(self.headers);
        response.extensions_mut().insert(OwnProblem);
        response
    }
}

/// What the DICT API, whose clients expect XML, says where a quota is exceeded.
const DICT_RATE_LIMITED: [(&str, &str); 2] =
    [("type", "https://dict.pi.rsfn.net.br/api/v2/error/RateLimited"), ("title", "Rate limited")];
/// What comes first, in the order of RFC 9457.
const FIRST: [&str; 4] = ["type", "title", "status", "detail"];

/// The same problem as XML, for those who ask for it. An exceeded quota is told in the words of the DICT API.
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

/// As it stands in XML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_every_type_with_its_status_and_no_other() {
        assert_eq!(Kind::ALL.len(), Kind::Internal as usize + 1, "the list is not whole");
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
    fn an_exceeded_quota_is_told_as_the_dict_api_does() {
        let xml = as_xml(Problem::new(Kind::QuotaExceeded, "`dict` takes no more now").members);
        let said = "<problem xmlns=\"urn:ietf:rfc:7807\">\
                    <type>https://dict.pi.rsfn.net.br/api/v2/error/RateLimited</type>\
                    <title>Rate limited</title><status>429</status><detail>`dict` takes no more now</detail></problem>\n";
        assert!(xml.ends_with(said), "{xml}");
    }
}
