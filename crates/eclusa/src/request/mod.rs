//! What a job carries through the store: the request to send, and the response.
//!
//! The engine sees only bytes. These types give them meaning, with a version in front, so that jobs accepted by an
//! older version can be read by a newer one.

mod mail;
mod trace;

use std::fmt;
use std::sync::Arc;

use eclusa_core::Payload;
use http::HeaderMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

pub use mail::{Attachment, Mail, MailProgress, Mailbox, Refusal};
pub use trace::{JobTrace, TraceContext};
pub(crate) use trace::{TRACESTATE, remove_lone_state, trace_state};

/// The version of the layout of jobs, and the previous one, which knew only HTTP requests.
const ENVELOPE: u8 = 2;
const ENVELOPE_BEFORE: u8 = 1;
/// A job that belongs to a trace: the trace, followed by the job.
const TRACED_ENVELOPE: u8 = 3;
/// The version of the layout of responses.
const RESPONSE: u8 = 1;

/// Initial capacity, enough for most values.
const USUAL_BYTES: usize = 512;

/// The part of a job that only the program understands, not the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The `type` given by the caller.
    pub kind: Option<String>,
    /// The `params` given by the caller, as JSON text: the input of upstream templates.
    pub params: Option<String>,
    /// The caller's idempotency key, which is forwarded so that the upstream recognises a repeated call.
    pub key: Option<String>,
    /// What to send.
    pub content: Content,
    /// The trace it belongs to, which is stored before the rest.
    #[serde(skip)]
    pub trace: Option<Box<JobTrace>>,
}

/// What a job sends, by the kind of its upstreams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// To HTTP upstreams.
    Http(Request),
    /// What each upstream's template builds from `params`.
    Templates,
    /// To mail upstreams.
    Mail(Box<Mail>),
}

/// The previous layout of [`Envelope`], without kinds.
#[derive(Deserialize)]
struct EnvelopeBefore {
    kind: Option<String>,
    params: Option<String>,
    key: Option<String>,
    request: Request,
}

impl From<EnvelopeBefore> for Envelope {
    fn from(EnvelopeBefore { kind, params, key, request }: EnvelopeBefore) -> Self {
        Self { kind, params, key, content: Content::Http(request), trace: None }
    }
}

/// An HTTP request, relative to an upstream's base URL.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// `GET`, `POST`, …
    pub method: String,
    /// Normalised: empty or starting with `/`, and never outside its base.
    pub path: String,
    /// Without the `?`, as it is sent.
    pub query: Option<String>,
    /// End-to-end headers only, names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// A request as the rules see it: that of a job, or a direct one.
#[derive(Clone, Copy)]
pub(crate) struct RequestView<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: Headers<'a>,
    pub(crate) body: &'a [u8],
}

/// The headers of a [`RequestView`].
#[derive(Clone, Copy)]
pub(crate) enum Headers<'a> {
    /// Names in lower case.
    Stored(&'a [(String, Vec<u8>)]),
    Passing(&'a HeaderMap),
}

impl<'a> Headers<'a> {
    /// The first value of the header with this name, in lower case.
    pub(crate) fn get(self, name: &str) -> Option<&'a [u8]> {
        match self {
            Self::Stored(pairs) => {
                pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_slice())
            }
            Self::Passing(map) => map.get(name).map(http::HeaderValue::as_bytes),
        }
    }

    /// The number of values of this header.
    pub(crate) fn count(self, name: &str) -> usize {
        match self {
            Self::Stored(pairs) => pairs.iter().filter(|(key, _)| key == name).count(),
            Self::Passing(map) => map.get_all(name).iter().count(),
        }
    }
}

impl<'a> From<&'a Request> for RequestView<'a> {
    fn from(Request { method, path, query, headers, body }: &'a Request) -> Self {
        Self { method, path, query: query.as_deref(), headers: Headers::Stored(headers), body }
    }
}

/// An upstream's response.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// End-to-end headers only, names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// Query, headers and body may contain secrets and personal data: they must not be logged.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} … ({} headers, {} bytes)", self.method, self.headers.len(), self.body.len())
    }
}

/// See [`Request`].
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} … ({} headers, {} bytes)", self.status, self.headers.len(), self.body.len())
    }
}

/// Stored bytes that this version cannot read.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// Written by a newer version.
    #[error("was written by a newer version of Eclusa (layout {0})")]
    Newer(u8),
    /// Invalid bytes.
    #[error("is damaged: {0}")]
    Damaged(#[from] postcard::Error),
}

impl Envelope {
    /// Serializes for the store.
    pub fn to_payload(&self) -> Payload {
        match &self.trace {
            None => write(ENVELOPE, self),
            Some(trace) => write(TRACED_ENVELOPE, &(trace, self)),
        }
    }

    /// Deserializes from the store.
    pub fn from_payload(bytes: &[u8]) -> Result<Self, Unreadable> {
        match bytes.split_first() {
            Some((&ENVELOPE_BEFORE, rest)) => Ok(postcard::from_bytes::<EnvelopeBefore>(rest)?.into()),
            Some((&TRACED_ENVELOPE, rest)) => {
                let (trace, envelope): (_, Self) = postcard::from_bytes(rest)?;
                Ok(Self { trace: Some(trace), ..envelope })
            }
            _ => read(ENVELOPE, bytes),
        }
    }
}

impl Response {
    /// Serializes for the store.
    pub fn to_payload(&self) -> Payload {
        write(RESPONSE, self)
    }

    /// Deserializes from the store.
    pub fn from_payload(bytes: &[u8]) -> Result<Self, Unreadable> {
        read(RESPONSE, bytes)
    }
}

fn write<T: Serialize>(version: u8, value: &T) -> Payload {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    bytes.push(version);
    // Writing into a vector cannot fail, and postcard can serialize these types.
    let bytes = postcard::to_extend(value, bytes).unwrap_or_default();
    Arc::from(bytes)
}

fn read<T: DeserializeOwned>(version: u8, bytes: &[u8]) -> Result<T, Unreadable> {
    match bytes.split_first() {
        Some((&written, rest)) if written == version => Ok(postcard::from_bytes(rest)?),
        Some((&written, _)) if written > version => Err(Unreadable::Newer(written)),
        _ => Err(Unreadable::Damaged(postcard::Error::DeserializeUnexpectedEnd)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        let headers = vec![("accept".into(), b"*/*".to_vec())];
        let request = Request {
            method: "GET".into(),
            path: "/score".into(),
            query: Some("cpf=1".into()),
            headers,
            body: vec![0, 255],
        };
        let content = Content::Http(request);
        Envelope {
            kind: Some("update".into()),
            params: Some("{}".into()),
            key: Some("k-1".into()),
            content,
            trace: None,
        }
    }

    fn response() -> Response {
        let headers = vec![("content-type".into(), b"text/plain".to_vec())];
        Response { status: 404, headers, body: b"no".to_vec() }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let hex = hex.trim();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn of_mail() -> Envelope {
        let mailbox = |address: &str| Mailbox { name: Some("Zé".into()), address: address.into() };
        let mail = Mail {
            message_id: "1@example.com".into(),
            from: mailbox("from@example.com"),
            to: vec![mailbox("to@example.com")],
            cc: vec![mailbox("cc@example.com")],
            bcc: vec![Mailbox { name: None, address: "bcc@example.com".into() }],
            reply_to: vec![mailbox("reply@example.com")],
            subject: "Olá".into(),
            text: Some("text".into()),
            html: Some("<p>".into()),
            headers: vec![("X-Id".into(), "7".into())],
            attachments: vec![Attachment {
                filename: "a.pdf".into(),
                content_type: "application/pdf".into(),
                content: vec![0, 255],
                content_id: Some("logo".into()),
            }],
            progress: MailProgress {
                accepted: vec!["to@example.com".into()],
                job: u128::MAX,
                refused: vec![Refusal {
                    address: "cc@example.com".into(),
                    code: "550".into(),
                    reason: "no".into(),
                }],
            },
        };
        Envelope { content: Content::Mail(Box::new(mail)), ..envelope() }
    }

    fn of_templates() -> Envelope {
        Envelope { content: Content::Templates, ..envelope() }
    }

    fn traced() -> Envelope {
        let context = TraceContext { trace: 0xab, span: 0xcd, flags: 1 };
        let trace = JobTrace { context, state: Some("a=b".into()), taken_ms: 1_700_000_000_000 };
        Envelope { trace: Some(Box::new(trace)), ..envelope() }
    }

    #[test]
    fn jobs_and_responses_match_the_golden_files() {
        assert_eq!(hex(&envelope().to_payload()), include_str!("golden/envelope-2.hex").trim());
        assert_eq!(hex(&of_templates().to_payload()), include_str!("golden/envelope-2-templates.hex").trim());
        assert_eq!(hex(&of_mail().to_payload()), include_str!("golden/envelope-2-mail.hex").trim());
        assert_eq!(hex(&traced().to_payload()), include_str!("golden/envelope-3-traced.hex").trim());
        assert_eq!(hex(&response().to_payload()), include_str!("golden/response-1.hex").trim());
    }

    #[test]
    fn current_and_previous_layouts_can_be_read() {
        for golden in [include_str!("golden/envelope-1.hex"), include_str!("golden/envelope-2.hex")] {
            assert_eq!(Envelope::from_payload(&bytes(golden)).unwrap(), envelope());
        }
        let golden = include_str!("golden/envelope-2-templates.hex");
        assert_eq!(Envelope::from_payload(&bytes(golden)).unwrap(), of_templates());
        let golden = include_str!("golden/envelope-2-mail.hex");
        assert_eq!(Envelope::from_payload(&bytes(golden)).unwrap(), of_mail());
        let golden = include_str!("golden/envelope-3-traced.hex");
        assert_eq!(Envelope::from_payload(&bytes(golden)).unwrap(), traced());
        let golden = include_str!("golden/response-1.hex");
        assert_eq!(Response::from_payload(&bytes(golden)).unwrap(), response());
    }

    #[test]
    fn damage_and_newer_versions_are_distinguished() {
        let mut bytes = envelope().to_payload().to_vec();
        assert!(matches!(Envelope::from_payload(&bytes[..9]), Err(Unreadable::Damaged(_))));
        assert!(matches!(Envelope::from_payload(&[]), Err(Unreadable::Damaged(_))));
        bytes[0] = 9;
        assert!(matches!(Envelope::from_payload(&bytes), Err(Unreadable::Newer(9))));
    }
}
