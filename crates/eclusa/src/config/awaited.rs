//! `[upstreams.NAME] async`: an upstream that accepts a job and reports its result later.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eclusa_core::{Polling, Span};
use http::{HeaderName, Method};

use super::read::{FromText, Table, Wrong};
use super::request::{AllowedPlaceholders, RequestTemplate, request};
use super::server::secret_text;
use super::template::{is_pointer, pieces};
use super::types::Secret;
use super::units::PositiveSpan;

const SIGNED_HELP: &str = "use `{header.NAME}` and `{body}`; `{{` is a literal brace";

/// The rules of an asynchronous upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Async {
    /// A JSON pointer to the upstream's id of the job in its response to the submit.
    pub id: String,
    /// How long the result may take after that response.
    pub timeout: Span,
    /// What happens to a job that fails there.
    pub on_failure: OnFailure,
    /// How it is polled for results.
    pub poll: Option<Poll>,
    /// The request that cancels a job there.
    pub cancel: Option<RequestTemplate>,
    /// How its webhooks are verified and read.
    pub webhook: Option<Webhook>,
}

/// What happens to a job that an upstream accepted and then failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It continues along its chain.
    Next,
    /// The attempt failed: the lane's `retry` decides.
    Fail,
}

/// How an upstream is polled for a job's result.
#[derive(Debug, Clone, PartialEq)]
pub struct Poll {
    /// The request.
    pub request: RequestTemplate,
    /// When to poll.
    pub times: Polling,
    /// How to read the response.
    pub states: States,
}

/// Where a body reports the state of a job, and the words it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct States {
    /// A JSON pointer to the state.
    pub status: String,
    /// Words for success.
    pub success: Vec<String>,
    /// Words for failure. Any other word means that the job is still running.
    pub failure: Vec<String>,
}

/// The webhooks of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// How authenticity is verified.
    pub verify: Verify,
    /// How to read their bodies; without it, every webhook means success.
    pub states: Option<States>,
}

/// How a webhook is verified.
#[derive(Clone, PartialEq, Eq)]
pub enum Verify {
    /// A Standard Webhooks signature; holds the key.
    StandardWebhooks(Vec<u8>),
    /// An HMAC over parts of the request.
    HmacSha256 {
        /// The shared key.
        key: Vec<u8>,
        /// Where the signature is and what it covers.
        signature: Signature,
    },
    /// A signature with the upstream's private key.
    Ed25519 {
        /// The upstream's public key.
        public_key: [u8; 32],
        /// Where the signature is and what it covers.
        signature: Signature,
    },
    /// A token in the webhook URL, derived from this key for each job.
    Token(Vec<u8>),
}

/// The keys are secret.
impl std::fmt::Debug for Verify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verify(…)")
    }
}

/// Where a signature is and what it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The header that holds it.
    pub header: HeaderName,
    /// How it is encoded.
    pub encoding: Encoding,
    /// What is signed.
    pub signed: Signed,
}

/// How bytes are encoded in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Two digits each.
    Hex,
    /// The standard alphabet of RFC 4648.
    Base64,
}

/// What is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed(pub Vec<SignedPart>);

/// A part of what is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignedPart {
    /// Literal text.
    Text(String),
    /// The value of a header.
    Header(HeaderName),
    /// The body as received.
    Body,
}

/// The kinds of [`Verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerifyKind {
    StandardWebhooks,
    HmacSha256,
    Ed25519,
    Token,
}

/// A JSON pointer.
struct Pointer(String);

impl FromText for Pointer {
    const WHAT: &'static str = "a JSON pointer";
    const HELP: &'static str = "write it like `/status`";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        if is_pointer(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(Wrong::new("is not a JSON pointer", Self::HELP))
    }
}

/// A JSON pointer into a response body.
struct BodyPointer(String);

impl FromText for BodyPointer {
    const WHAT: &'static str = "a field of the response";
    const HELP: &'static str = "write it like `body:/id`";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let pointer = text.strip_prefix("body").and_then(|rest| rest.strip_prefix([':', '.']));
        let pointer = pointer.filter(|pointer| is_pointer(pointer));
        let wrong = || Wrong::new("is not a field of a response body", Self::HELP);
        pointer.map(|pointer| Self(pointer.to_owned())).ok_or_else(wrong)
    }
}

struct Header(HeaderName);

impl FromText for Header {
    const WHAT: &'static str = "a header";
    const HELP: &'static str = "write it like `X-Signature`";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let name = HeaderName::try_from(text);
        name.map(Self).map_err(|_| Wrong::new("is not the name of a header", Self::HELP))
    }
}

impl FromText for Signed {
    const WHAT: &'static str = "a template";
    const HELP: &'static str = SIGNED_HELP;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let parts = pieces(text, SignedPart::Text, |inside| match inside {
            "body" => Ok(SignedPart::Body),
            other => {
                let name = other.strip_prefix("header").and_then(|rest| rest.strip_prefix(['.', ':']));
                let name = name.and_then(|name| HeaderName::try_from(name).ok());
                name.map(SignedPart::Header).ok_or_else(|| "has an unknown placeholder".to_owned())
            }
        });
        let parts = parts.map_err(|problem| Wrong::new(problem, SIGNED_HELP))?;
        if !parts.contains(&SignedPart::Body) {
            return Err(Wrong::new(
                "does not include the body, which anybody could then replace",
                SIGNED_HELP,
            ));
        }
        Ok(Self(parts))
    }
}

pub(super) fn awaited(t: &mut Table<'_>, public_url: bool) -> Option<Async> {
    let doc = "The upstream accepts a job, responds with its own id for it, and reports the result later: by a webhook to \
               `{webhook_url}`, or when it is polled. Until then the job stays `processing` and keeps its slot of `max_concurrent`.";
    let usable = AllowedPlaceholders { webhook_url: public_url, external_id: true, key: t.has("keys") };
    t.table("async", doc, |t| read(t, usable)).flatten()
}

fn read(t: &mut Table<'_>, usable: AllowedPlaceholders) -> Option<Async> {
    let id: Option<BodyPointer> = t.need(
        "id",
        "\"body:/id\"",
        "Where the response to the submit holds the upstream's id for the job. A response without it is a failed call.",
    );
    let timeout = t.or(
        "timeout",
        PositiveSpan(Span::from_secs(600)),
        "How long the result may take after the response to the submit; then the job has failed there.",
    );
    let on_failure = t.or(
        "on_failure",
        OnFailure::Fail,
        "What happens to a job that fails there or times out: it continues along its chain (`next`), or the attempt fails and the \
         lane's `retry` decides (`fail`; a job that timed out then ends).",
    );
    let webhook = t.table("webhook", "How its webhooks are verified and read.", webhook).flatten();
    let webhook_states = webhook.as_ref().and_then(|webhook: &Webhook| webhook.states.clone());
    let poll = t
        .table("poll", "Polls for results, in addition to or instead of webhooks.", |t| {
            poll(t, usable, webhook_states)
        })
        .flatten();
    let cancel =
        t.table("cancel", "The request that cancels a job there.", |t| request(t, Method::POST, usable));
    if !t.has("webhook") && !t.has("poll") {
        t.wrong(
            "webhook",
            "and `poll` are both missing: the result of a job would never arrive",
            "add one of them",
        );
    }
    let (id, cancel) = (id?.0, cancel.flatten());
    Some(Async { id, timeout: timeout.0, on_failure, poll, cancel, webhook })
}

fn poll(t: &mut Table<'_>, usable: AllowedPlaceholders, webhook_states: Option<States>) -> Option<Poll> {
    let after = t.or("after", PositiveSpan(Span::from_secs(30)), "How long after the submit to poll first.");
    let every = t.or("every", PositiveSpan(Span::from_secs(10)), "The interval after that.");
    let request = request(t, Method::GET, usable);
    let own = states(t);
    let states = own.or_else(|| webhook_states.filter(|_| !t.has("status")));
    if states.is_none() && !t.has("status") {
        let help = "add `status = \"/status\", success = [\"done\"]` here or to `webhook`";
        t.wrong("status", "is missing: the response cannot be interpreted", help);
    }
    Some(Poll { request: request?, times: Polling { after: after.0, every: every.0 }, states: states? })
}

/// Reads the keys that say how to read a body; `None` without `status`.
fn states(t: &mut Table<'_>) -> Option<States> {
    let status: Option<Pointer> = t.get(
        "status",
        "A JSON pointer to the job's state in the body. In `poll`, defaults to the one of `webhook`.",
    );
    let success: Option<Vec<String>> =
        t.get("success", "States that mean success; `true` and numbers are allowed.");
    let failure: Option<Vec<String>> =
        t.get("failure", "States that mean failure. Any other state means that the job is still running.");
    let (success, failure) = (success.unwrap_or_default(), failure.unwrap_or_default());
    if !t.has("status") {
        for key in ["success", "failure"].into_iter().filter(|key| t.has(key)) {
            t.misplaced(key, "has no effect without `status`", "add `status = \"/status\"`");
        }
    } else if success.is_empty() {
        t.wrong(
            "success",
            "is missing or empty",
            "add the states that mean success: `success = [\"succeeded\"]`",
        );
    }
    if let Some(word) = success.iter().find(|word| failure.contains(word)) {
        t.wrong("failure", &format!("has `{word}`, which `success` also has"), "keep it in one list only");
    }
    Some(States { status: status?.0, success, failure })
}

fn webhook(t: &mut Table<'_>) -> Option<Webhook> {
    let kind: Option<VerifyKind> = t.need(
        "verify",
        "\"standard-webhooks\"",
        "How authenticity is verified: `standard-webhooks` (as Replicate signs), `hmac-sha256`, `ed25519`, or \
         `token` (a secret in `{webhook_url}`, different for each job).",
    );
    let secret: Option<Secret> = t.get(
        "secret",
        "The shared key; prefer `${VAR}` to the plain text. For `standard-webhooks`, as issued: `whsec_` and base64.",
    );
    let file = t.file("secret_file", "A file that contains it, instead of `secret`.");
    let header: Option<Header> =
        t.get("header", "The header with the signature, for `hmac-sha256` and `ed25519`.");
    let encoding = t.or("encoding", Encoding::Hex, "The encoding of the signature.");
    let signed: Option<Signed> = t.get(
        "signed",
        "What is signed: a template with `{header.NAME}` and `{body}`; only the body if not given.",
    );
    let public_key: Option<String> =
        t.get("public_key", "The upstream's public key for `ed25519`: 32 bytes in hex or base64.");
    let states = states(t);
    let kind = kind?;
    let signature = signature(t, kind, header, encoding, signed);
    if kind == VerifyKind::Ed25519 {
        return Some(Webhook { verify: ed25519(t, public_key, signature)?, states });
    }
    if t.has("public_key") {
        t.misplaced("public_key", "is for `ed25519`", "remove it");
    }
    let key = key(t, kind, secret, file);
    let verify = match kind {
        VerifyKind::StandardWebhooks => key.map(Verify::StandardWebhooks),
        VerifyKind::Token => key.map(Verify::Token),
        VerifyKind::HmacSha256 | VerifyKind::Ed25519 => {
            key.zip(signature).map(|(key, signature)| Verify::HmacSha256 { key, signature })
        }
    };
    Some(Webhook { verify: verify?, states })
}

/// Where the signature is, for the methods that do not define it themselves.
fn signature(
    t: &Table<'_>,
    kind: VerifyKind,
    header: Option<Header>,
    encoding: Encoding,
    signed: Option<Signed>,
) -> Option<Signature> {
    if matches!(kind, VerifyKind::StandardWebhooks | VerifyKind::Token) {
        for key in ["header", "encoding", "signed"].into_iter().filter(|key| t.has(key)) {
            t.misplaced(key, "is for `hmac-sha256` and `ed25519`", "remove it");
        }
        return None;
    }
    if !t.has("header") {
        t.wrong("header", "is missing", "add `header = \"X-Signature\"`");
    }
    let signed = signed.or_else(|| (!t.has("signed")).then(|| Signed(vec![SignedPart::Body])));
    Some(Signature { header: header?.0, encoding, signed: signed? })
}

fn ed25519(t: &Table<'_>, public_key: Option<String>, signature: Option<Signature>) -> Option<Verify> {
    for key in ["secret", "secret_file"].into_iter().filter(|key| t.has(key)) {
        t.misplaced(key, "has no effect with `ed25519`, which uses `public_key`", "remove it");
    }
    let help = "write the 32 bytes in hex or base64";
    if !t.has("public_key") {
        t.wrong("public_key", "is missing", "add `public_key = \"…\"`, the 32 bytes in hex or base64");
    }
    let text = public_key?;
    let bytes = Encoding::Hex.decode(&text).or_else(|| Encoding::Base64.decode(&text));
    let Some(public_key) = bytes.and_then(|bytes| bytes.try_into().ok()) else {
        t.wrong("public_key", "is not a 32-byte key", help);
        return None;
    };
    Some(Verify::Ed25519 { public_key, signature: signature? })
}

/// Reads the shared key.
fn key(t: &Table<'_>, kind: VerifyKind, text: Option<Secret>, file: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let (place, secret) = secret_text(t, ("secret", "secret_file"), text, file)?;
    let text = secret.reveal().as_bytes().to_vec();
    if text.len() < 16 {
        t.wrong(place, "is too short to be safe", "use the secret as issued: at least 16 characters");
        return None;
    }
    if kind != VerifyKind::StandardWebhooks {
        return Some(text);
    }
    let decoded = STANDARD.decode(text.strip_prefix(b"whsec_").unwrap_or(&text)).ok();
    if decoded.is_none() {
        t.wrong(place, "is not a Standard Webhooks secret", "use it as issued: `whsec_` and base64");
    }
    decoded
}

impl Encoding {
    /// Decodes `text`.
    pub(crate) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Base64 => STANDARD.decode(text).ok(),
            Self::Hex => {
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let pairs = text.as_bytes().chunks(2);
                pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
            }
        }
    }
}
