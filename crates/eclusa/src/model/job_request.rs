//! A job as JSON, and how it becomes a submission.

use std::collections::BTreeMap;

use eclusa_core::{JobId, Level, Span};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::message::Message;
use super::object;
use super::vocabulary::Priority;
use crate::config::{DURATION_HELP, LaneConfig, Targets, parse_duration};
use crate::execute::http::{headers, target};
use crate::intake::{DEFAULT_TENANT, Fault, Submission};
use crate::request::Request;

/// A job to enqueue.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(example = json!({
    "tenant": "acme",
    "priority": "high",
    "ttl": "30s",
    "request": { "method": "POST", "path": "/image", "body": { "prompt": "a lock" } },
}))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct JobRequest {
    /// Unique per lane (`outboxId`). Sending the same id again returns the same job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tenant the job belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `high`, `normal` or `low`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Priority>)]
    pub priority: Option<String>,
    /// The job's type; the lane's `types` may map it to a priority.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// How long to wait before the job may start, such as `"10s"`.
    #[schema(value_type = Option<String>, example = "10s")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Value>,
    /// How long the job may wait before it expires, such as `"10s"`.
    #[schema(value_type = Option<String>, example = "10s")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Value>,
    /// The request to send. May be omitted if every upstream of the job builds its request from `params`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub request: Option<HttpRequest>,
    /// The message to send, in a lane whose upstreams send mail.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub message: Option<Message>,
    /// Returned with the job. Upstreams with a `request` template build their request from these.
    #[schema(value_type = Option<Value>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Box<RawValue>>,
    /// URL to which the ended job is posted. Its host must be allowed in `[callbacks]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
}

/// A request to an upstream.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpRequest {
    /// Defaults to `GET` without a body, else `POST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path below the upstream's base URL.
    #[serde(default)]
    pub path: String,
    /// Parameters as an object, or the whole query string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<Value>,
    /// Headers to send.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// A JSON value, sent exactly as written here; a string is sent as plain text.
    #[schema(value_type = Option<Value>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Box<RawValue>>,
}

impl JobRequest {
    /// Reads a submission from JSON; `Err` lists everything that is wrong with it.
    pub(crate) fn read(job: &Value) -> Result<Submission, String> {
        // `RawValue` can only be deserialized from text.
        let request: Self = serde_json::from_str(&job.to_string()).map_err(|error| error.to_string())?;
        request.into_submission(None).map_err(|faults| in_words(&faults))
    }

    /// `Ok` if the lane accepts this job. Its id is assigned later.
    pub(crate) fn check(job: &Value, rules: &LaneConfig, targets: Targets<'_>) -> Result<(), String> {
        let submission = Self::read(job)?;
        if submission.key.is_some() {
            return Err("id: is set by the schedule".into());
        }
        submission.check(JobId(0), rules, targets).map(drop).map_err(|faults| in_words(&faults))
    }

    /// Converts to a submission, or reports everything that is wrong. The tenant defaults to `own_tenant`.
    pub(crate) fn into_submission(self, own_tenant: Option<&str>) -> Result<Submission, Vec<Fault>> {
        let mut faults = Vec::new();
        let submission = self.into_readable_part(own_tenant, &mut faults);
        if faults.is_empty() { Ok(submission) } else { Err(faults) }
    }

    /// Converts what is valid; what is not is added to `faults`.
    pub(crate) fn into_readable_part(self, own_tenant: Option<&str>, faults: &mut Vec<Fault>) -> Submission {
        let tenant = self.tenant.as_deref().or(own_tenant).unwrap_or(DEFAULT_TENANT).to_owned();
        let mut or_fault = |fault| faults.push(fault);
        let priority = self.priority.as_deref().map(level).transpose().map_err(&mut or_fault).ok().flatten();
        let delay = span("delay", self.delay.as_ref()).map_err(&mut or_fault).ok().flatten();
        let ttl = span("ttl", self.ttl.as_ref()).map_err(&mut or_fault).ok().flatten();
        let request = self.request.map(HttpRequest::into_request).transpose();
        let request = request.map_err(|wrong| faults.extend(wrong)).ok().flatten();
        let message = self.message.map(Message::into_mail).transpose();
        let message = message.map_err(|wrong| faults.extend(wrong)).ok().flatten();
        Submission {
            key: self.id,
            tenant,
            priority,
            kind: self.kind,
            delay: delay.unwrap_or_default(),
            ttl,
            params: self.params.map(|params| params.get().to_owned()),
            request,
            message,
            callback: self.callback_url,
            trace: None,
        }
    }
}

fn in_words(faults: &[Fault]) -> String {
    let words = faults.iter().map(|fault| format!("{}: {}", fault.field, fault.problem));
    words.collect::<Vec<_>>().join("; ")
}

/// Parses a priority.
pub(crate) fn level(text: &str) -> Result<Level, Fault> {
    let found = Level::ALL.into_iter().find(|level| level.as_str() == text);
    found.ok_or_else(|| Fault::new("priority", "must be one of high, normal, low"))
}

/// Parses a duration such as `"10s"`. A bare number is refused: it could mean seconds or milliseconds.
pub(crate) fn span(field: &str, value: Option<&Value>) -> Result<Option<Span>, Fault> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            parse_duration(text).map(Some).map_err(|problem| Fault::new(field, problem))
        }
        Some(Value::Number(_)) => Err(Fault::new(field, format!("has no unit: {DURATION_HELP}"))),
        Some(_) => Err(Fault::new(field, format!("is not a duration: {DURATION_HELP}"))),
    }
}

impl HttpRequest {
    /// Converts to a request, or reports everything that is wrong.
    pub(crate) fn into_request(self) -> Result<Request, Vec<Fault>> {
        let mut faults = Vec::new();
        let path = target::normalise(&self.path).unwrap_or_else(|bad| {
            faults.push(Fault::new("request.path", bad.to_string()));
            String::new()
        });
        let query = self.query.and_then(|query| match query_text(query) {
            Ok(query) => query,
            Err(fault) => {
                faults.push(fault);
                None
            }
        });
        let given = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let mut headers = headers::from_caller(given).unwrap_or_else(|bad| {
            faults.push(Fault::new("request.headers", bad.to_string()));
            Vec::new()
        });
        let text = self.body.as_ref().map(|body| serde_json::from_str::<String>(body.get()));
        if matches!(text, Some(Err(_))) && !headers.iter().any(|(name, _)| name == "content-type") {
            headers.push(("content-type".into(), b"application/json".to_vec()));
        }
        let body = match (self.body, text) {
            (_, Some(Ok(text))) => Some(text.into_bytes()),
            (body, _) => body.map(|json| json.get().as_bytes().to_vec()),
        };
        let method = self.method.unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.into());
        if let Err(bad) = target::method(&method) {
            faults.push(Fault::new("request.method", bad.to_string()));
        }
        let request = Request { method, path, query, headers, body: body.unwrap_or_default() };
        if faults.is_empty() { Ok(request) } else { Err(faults) }
    }
}

fn query_text(query: Value) -> Result<Option<String>, Fault> {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    match query {
        Value::Null => Ok(None),
        Value::String(text) => match target::query(&text) {
            Ok(text) => Ok(Some(text)),
            Err(bad) => Err(Fault::new("request.query", bad.to_string())),
        },
        Value::Object(parameters) => {
            let pair = |(name, value): (&String, &Value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                format!("{}={}", encoded(name), encoded(&value))
            };
            Ok(Some(parameters.iter().map(pair).collect::<Vec<_>>().join("&")))
        }
        _ => Err(Fault::new("request.query", "must be an object of parameters, or text")),
    }
}
