//! `[upstreams.NAME] async`: an upstream that takes a job in and tells later how it went.

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

const SIGNED_HELP: &str = "use `{header.NAME}` and `{body}`; `{{` stands for a brace";

/// The rules of an upstream that calls back.
#[derive(Debug, Clone, PartialEq)]
pub struct Async {
    /// Where its answer to the submit says what it calls the job: a pointer into JSON.
    pub id: String,
    /// How long it may take after that.
    pub timeout: Span,
    /// What becomes of a job that it fails.
    pub on_failure: OnFailure,
    /// How it is asked when it does not tell.
    pub poll: Option<Poll>,
    /// How it is told that a job was cancelled.
    pub cancel: Option<RequestTemplate>,
    /// How its webhooks are known and read.
    pub webhook: Option<Webhook>,
}

/// What becomes of a job that an upstream failed after it had taken it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It goes on along its chain.
    Next,
    /// The attempt failed: the lane's `retry` decides.
    Fail,
}

/// How an upstream is asked for a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Poll {
    /// The question.
    pub request: RequestTemplate,
    /// When.
    pub times: Polling,
    /// What its answer means.
    pub states: States,
}

/// Where a body says how a job went, and in which words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct States {
    /// A pointer into JSON.
    pub status: String,
    /// It succeeded.
    pub success: Vec<String>,
    /// It failed. Any other word means that it goes on.
    pub failure: Vec<String>,
}

/// The webhooks of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// How a forged one is told from a true one.
    pub verify: Verify,
    /// What they mean; without it every one says that the job succeeded.
    pub states: Option<States>,
}

/// How a webhook is known.
#[derive(Clone, PartialEq, Eq)]
pub enum Verify {
    /// As Standard Webhooks have it; the key itself.
    StandardWebhooks(Vec<u8>),
    /// A hash of parts of it under a common key.
    HmacSha256 {
        /// The key.
        key: Vec<u8>,
        /// Where and over what.
        signature: Signature,
    },
    /// A signature under a key of theirs.
    Ed25519 {
        /// Their public key.
        public_key: [u8; 32],
        /// Where and over what.
        signature: Signature,
    },
    /// A word in the address that only they were told; made from this key for each job.
    Token(Vec<u8>),
}

/// The keys are secret.
impl std::fmt::Debug for Verify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verify(…)")
    }
}

/// Where a signature is and what it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The header that holds it.
    pub header: HeaderName,
    /// How it is written there.
    pub encoding: Encoding,
    /// What is signed.
    pub signed: Signed,
}

/// How bytes are written in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Two digits each.
    Hex,
    /// RFC 4648, the usual alphabet.
    Base64,
}

/// What is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed(pub Vec<SignedPart>);

/// A part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignedPart {
    /// As it stands.
    Text(String),
    /// The value of a header.
    Header(HeaderName),
    /// The whole body as it came.
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

/// A pointer into JSON.
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

/// A pointer into the body of an answer.
struct BodyPointer(String);

impl FromText for BodyPointer {
    const WHAT: &'static str = "a place in an answer";
    const HELP: &'static str = "write it like `body:/id`";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let pointer = text.strip_prefix("body").and_then(|rest| rest.strip_prefix([':', '.']));
        let pointer = pointer.filter(|pointer| is_pointer(pointer));
        let wrong = || Wrong::new("is not a place in the body of an answer", Self::HELP);
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
                name.map(SignedPart::Header).ok_or_else(|| "has a placeholder that does not exist".to_owned())
            }
        });
        let parts = parts.map_err(|problem| Wrong::new(problem, SIGNED_HELP))?;
        if !parts.contains(&SignedPart::Body) {
            return Err(Wrong::new("leaves out the body, which anybody could then replace", SIGNED_HELP));
        }
        Ok(Self(parts))
    }
}

/// Reads it.
pub(super) fn awaited(t: &mut Table<'_>, public_url: bool) -> Option<Async> {
    let doc = "The upstream takes a job in, answers with its own id of it, and tells later how it went: by a webhook to \
               `{webhook_url}`, or when it is asked. The job stays `processing` and keeps its slot of `max_concurrent` meanwhile.";
    let usable = AllowedPlaceholders { webhook_url: public_url, external_id: true, key: t.has("keys") };
    t.table("async", doc, |t| read(t, usable)).flatten()
}

fn read(t: &mut Table<'_>, usable: AllowedPlaceholders) -> Option<Async> {
    let id: Option<BodyPointer> = t.need(
        "id",
        "\"body:/id\"",
        "Where the answer to the submit says what the upstream calls the job. An answer without it is a failed call.",
    );
    let timeout = t.or(
        "timeout",
        PositiveSpan(Span::from_secs(600)),
        "How long it may take to tell, from its answer to the submit; then the job has failed there.",
    );
    let on_failure = t.or(
        "on_failure",
        OnFailure::Fail,
        "A job that it fails, or does not tell of in time, goes on along its chain (`next`), or the attempt has failed and the \
         lane's `retry` decides (`fail`; a job that it did not tell of ends then).",
    );
    let webhook = t.table("webhook", "How its webhooks are known and read.", webhook).flatten();
    let told = webhook.as_ref().and_then(|webhook: &Webhook| webhook.states.clone());
    let poll =
        t.table("poll", "Asks it, besides or in place of webhooks.", |t| poll(t, usable, told)).flatten();
    let cancel =
        t.table("cancel", "How it is told that a job was cancelled.", |t| request(t, Method::POST, usable));
    if !t.has("webhook") && !t.has("poll") {
        t.wrong(
            "webhook",
            "is missing, and so is `poll`: nobody would tell how a job went",
            "add one of them",
        );
    }
    let (id, cancel) = (id?.0, cancel.flatten());
    Some(Async { id, timeout: timeout.0, on_failure, poll, cancel, webhook })
}

fn poll(t: &mut Table<'_>, usable: AllowedPlaceholders, told: Option<States>) -> Option<Poll> {
    let after =
        t.or("after", PositiveSpan(Span::from_secs(30)), "How long after the submit it is asked first.");
    let every = t.or("every", PositiveSpan(Span::from_secs(10)), "How often after that.");
    let request = request(t, Method::GET, usable);
    let own = states(t);
    let states = own.or_else(|| told.filter(|_| !t.has("status")));
    if states.is_none() && !t.has("status") {
        let help = "add `status = \"/status\", success = [\"done\"]` here or to `webhook`";
        t.wrong("status", "is missing: what the answer means is not known", help);
    }
    Some(Poll { request: request?, times: Polling { after: after.0, every: every.0 }, states: states? })
}

/// The keys that say what a body means; nothing if `status` is not there.
fn states(t: &mut Table<'_>) -> Option<States> {
    let status: Option<Pointer> =
        t.get("status", "Where the body says how the job went. In `poll` as in `webhook` if not given.");
    let success: Option<Vec<String>> =
        t.get("success", "Words for success; `true` and numbers are words too.");
    let failure: Option<Vec<String>> =
        t.get("failure", "Words for failure. Any other means that it goes on.");
    let (success, failure) = (success.unwrap_or_default(), failure.unwrap_or_default());
    if !t.has("status") {
        for key in ["success", "failure"].into_iter().filter(|key| t.has(key)) {
            t.misplaced(key, "is of no use without `status`", "add `status = \"/status\"`");
        }
    } else if success.is_empty() {
        t.wrong("success", "is missing or empty", "add the words for success: `success = [\"succeeded\"]`");
    }
    if let Some(word) = success.iter().find(|word| failure.contains(word)) {
        t.wrong("failure", &format!("has `{word}`, which `success` has too"), "keep it in one of the lists");
    }
    Some(States { status: status?.0, success, failure })
}

fn webhook(t: &mut Table<'_>) -> Option<Webhook> {
    let kind: Option<VerifyKind> = t.need(
        "verify",
        "\"standard-webhooks\"",
        "How a forged one is told from a true one: `standard-webhooks` (as Replicate signs), `hmac-sha256`, `ed25519`, or \
         `token` (a word in `{webhook_url}` itself, another for each job).",
    );
    let secret: Option<Secret> = t.get(
        "secret",
        "The common key; better `${VAR}` than the text. With `standard-webhooks` as it is issued: `whsec_` and base64.",
    );
    let file = t.file("secret_file", "A file that holds it, instead of `secret`.");
    let header: Option<Header> =
        t.get("header", "The header with the signature, for `hmac-sha256` and `ed25519`.");
    let encoding = t.or("encoding", Encoding::Hex, "How the signature is written there.");
    let signed: Option<Signed> = t.get(
        "signed",
        "What is signed: a text with `{header.NAME}` and `{body}`; the body alone if not given.",
    );
    let public_key: Option<String> =
        t.get("public_key", "Their key for `ed25519`: 32 bytes in hex or base64.");
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

/// Where the signature is, for those kinds that do not say so themselves.
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
        t.misplaced(key, "is of no use with `ed25519`, which needs `public_key`", "remove it");
    }
    let help = "write the 32 bytes in hex or base64";
    if !t.has("public_key") {
        t.wrong("public_key", "is missing", "add `public_key = \"…\"`, the 32 bytes in hex or base64");
    }
    let text = public_key?;
    let bytes = Encoding::Hex.decode(&text).or_else(|| Encoding::Base64.decode(&text));
    let Some(public_key) = bytes.and_then(|bytes| bytes.try_into().ok()) else {
        t.wrong("public_key", "is not a key of 32 bytes", help);
        return None;
    };
    Some(Verify::Ed25519 { public_key, signature: signature? })
}

/// The common key.
fn key(t: &Table<'_>, kind: VerifyKind, text: Option<Secret>, file: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let (place, secret) = secret_text(t, ("secret", "secret_file"), text, file)?;
    let text = secret.reveal().as_bytes().to_vec();
    if text.len() < 16 {
        t.wrong(place, "is too short to be safe", "use the secret as it was issued: at least 16 characters");
        return None;
    }
    if kind != VerifyKind::StandardWebhooks {
        return Some(text);
    }
    let decoded = STANDARD.decode(text.strip_prefix(b"whsec_").unwrap_or(&text)).ok();
    if decoded.is_none() {
        t.wrong(
            place,
            "is not a secret of Standard Webhooks",
            "use it as it was issued: `whsec_` and base64",
        );
    }
    decoded
}

impl Encoding {
    /// The bytes that `text` stands for.
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
