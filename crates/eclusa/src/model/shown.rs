//! A job's content as it is shown: without secrets, and without the fields that the lane masks.

use std::collections::BTreeMap;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::job::body;
use super::message::Message;
use crate::config::Field;
use crate::request::{Content, Envelope, Request};

/// Replaces masked values.
pub(crate) const MASK: &str = "***";
/// Headers that carry credentials; masked for every role.
const SECRET_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];
/// Words that mark a header as secret: `x-api-key`, `x-auth-token`, `x-client-secret`.
const SECRET_WORDS: [&str; 6] = ["key", "token", "secret", "password", "auth", "signature"];
/// Headers that contain such a word but are no credentials.
const PUBLIC_HEADERS: [&str; 1] = ["idempotency-key"];

/// The request that a job sends.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShownRequest {
    /// The method.
    pub method: String,
    /// The path below the upstream's base URL.
    pub path: String,
    /// The query as it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Headers by name, each with all its values. Secrets are masked.
    pub headers: BTreeMap<String, Vec<String>>,
    /// JSON if it is JSON, else text; bytes that are not text as `{"base64": …}`.
    pub body: Value,
}

/// A job's content as it is shown.
#[derive(Default)]
pub(crate) struct Shown {
    /// The request; absent if the templates of upstreams build it from `params`.
    pub(crate) request: Option<ShownRequest>,
    /// The message, in a lane that sends mail.
    pub(crate) message: Option<Value>,
    /// `params`.
    pub(crate) params: Option<Value>,
}

/// A job's content without any masking; never shown.
pub(crate) fn unmasked(envelope: Envelope) -> Shown {
    let params = envelope.params.and_then(|params| serde_json::from_str(&params).ok());
    let mut whole = Shown { params, ..Shown::default() };
    match envelope.content {
        Content::Http(request) => whole.request = Some(ShownRequest::from(request)),
        Content::Mail(mail) => whole.message = serde_json::to_value(Message::from(&*mail)).ok(),
        Content::Templates => {}
    }
    whole
}

/// A job's content, masked. `body` fields refer to the message if there is one.
pub(crate) fn shown(envelope: Envelope, masks: &[Field]) -> Shown {
    let mut shown = unmasked(envelope);
    shown.request.iter_mut().for_each(ShownRequest::mask_secrets);
    mask_headers(shown.message.as_mut(), is_secret);
    for masked in masks {
        match (masked, &mut shown.request) {
            (Field::Params(pointer), _) => mask_at(shown.params.as_mut(), pointer),
            (Field::Body(pointer), Some(request)) => request.mask_body(pointer),
            (Field::Body(pointer), None) => mask_at(shown.message.as_mut(), pointer),
            (Field::Header(name), Some(request)) => request.mask_header(name),
            (Field::Query(name), Some(request)) => {
                request.query = request.query.take().map(|query| without_value(&query, name));
            }
            (Field::Header(name), None) => mask_headers(shown.message.as_mut(), |header| header == name),
            (Field::Query(_), None) => {}
        }
    }
    shown
}

impl From<Request> for ShownRequest {
    fn from(request: Request) -> Self {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in request.headers {
            headers.entry(name).or_default().push(String::from_utf8_lossy(&value).into_owned());
        }
        let Request { method, path, query, body: bytes, .. } = request;
        Self { method, path, query, headers, body: body(bytes) }
    }
}

impl ShownRequest {
    fn mask_secrets(&mut self) {
        for (_, values) in self.headers.iter_mut().filter(|(name, _)| is_secret(name)) {
            values.fill(MASK.into());
        }
    }

    /// A body that is not JSON has no fields, so it is masked as a whole.
    fn mask_body(&mut self, pointer: &str) {
        match &self.body {
            Value::Object(_) | Value::Array(_) => mask_at(Some(&mut self.body), pointer),
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            _ => self.body = MASK.into(),
        }
    }

    fn mask_header(&mut self, name: &str) {
        if let Some(values) = self.headers.get_mut(name) {
            values.fill(MASK.into());
        }
    }
}

/// Masks the headers of a message for which `hidden` is true; names are in lower case.
fn mask_headers(message: Option<&mut Value>, hidden: impl Fn(&str) -> bool) {
    let headers = message.and_then(|message| message.get_mut("headers")).and_then(Value::as_object_mut);
    for (name, value) in headers.into_iter().flatten() {
        if hidden(&name.to_ascii_lowercase()) {
            *value = MASK.into();
        }
    }
}

fn mask_at(value: Option<&mut Value>, pointer: &str) {
    if let Some(found) = value.and_then(|value| value.pointer_mut(pointer)) {
        *found = MASK.into();
    }
}

/// The query with each value of `name` masked.
fn without_value(query: &str, name: &str) -> String {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pair = |pair: &str| {
        let key = pair.split('=').next().unwrap_or(pair);
        let masked = || format!("{key}={}", utf8_percent_encode(MASK, NON_ALPHANUMERIC));
        if decode(key) == name { masked() } else { pair.to_owned() }
    };
    query.split('&').map(pair).collect::<Vec<_>>().join("&")
}

fn is_secret(header: &str) -> bool {
    let secret = || SECRET_HEADERS.contains(&header) || SECRET_WORDS.iter().any(|word| header.contains(word));
    !PUBLIC_HEADERS.contains(&header) && secret()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn envelope(body: &str) -> Envelope {
        let headers = [
            ("authorization", "Bearer x"),
            ("x-api-key", "k"),
            ("x-amz-security-token", "t"),
            ("idempotency-key", "order-1"),
            ("x-id", "7"),
        ];
        let request = Request {
            method: "POST".into(),
            path: "/run".into(),
            query: Some("cpf=1&a%20b=2&cpf=3".into()),
            headers: headers.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).into(),
            body: body.as_bytes().to_vec(),
        };
        let params = Some(r#"{"email":"a@b.c","size":1}"#.to_owned());
        Envelope { kind: None, params, key: None, content: Content::Http(request), trace: None }
    }

    fn masks(request: &[&str]) -> Vec<Field> {
        request.iter().map(|field| Field::parse(field).unwrap()).collect()
    }

    #[test]
    fn secrets_are_masked_for_every_role() {
        let Shown { request, params, .. } = shown(envelope("{}"), &[]);
        let request = request.unwrap();
        let masked = |name: &str| request.headers[name] == [MASK];
        assert!(masked("authorization") && masked("x-api-key") && masked("x-amz-security-token"));
        assert!(!masked("idempotency-key") && !masked("x-id"));
        assert_eq!(request.query.as_deref(), Some("cpf=1&a%20b=2&cpf=3"));
        assert_eq!(params, Some(json!({ "email": "a@b.c", "size": 1 })));
    }

    #[test]
    fn fields_are_masked_wherever_they_are() {
        let mut all = masks(&["query.cpf", "query.a b", "header.X-Id", "body./user/email", "body./no"]);
        all.push(Field::Params("/email".into()));
        let body = r#"{"user":{"email":"a@b.c","age":7}}"#;
        let Shown { request, params, .. } = shown(envelope(body), &all);
        let request = request.unwrap();
        assert_eq!(request.query.as_deref(), Some("cpf=%2A%2A%2A&a%20b=%2A%2A%2A&cpf=%2A%2A%2A"));
        assert_eq!(request.headers["x-id"], [MASK]);
        assert_eq!(request.body, json!({ "user": { "email": MASK, "age": 7 } }));
        assert_eq!(params, Some(json!({ "email": MASK, "size": 1 })));
    }

    #[test]
    fn a_body_without_fields_is_masked_whole() {
        let mask = masks(&["body./email"]);
        for (body, seen) in [("email=a@b.c", MASK), ("", ""), ("\u{1}", MASK)] {
            assert_eq!(shown(envelope(body), &mask).request.unwrap().body, json!(seen), "{body:?}");
        }
    }
}
