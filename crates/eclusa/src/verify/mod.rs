//! Checks that a webhook comes from the upstream and is not a replay of an old one.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use eclusa_core::{JobId, Name, Span, Time};
use http::HeaderMap;
use ring::{hmac, signature};
use subtle::ConstantTimeEq;

use crate::config::{Signature, SignedPart, Verify};
use crate::standard_webhooks as webhooks;

/// How far the timestamp of a webhook may be from the current time.
const TOLERANCE: Span = Span::from_secs(300);

/// A received webhook.
pub(crate) struct Incoming<'a> {
    pub(crate) upstream: &'a Name,
    pub(crate) job: JobId,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// The query parameter `token`.
    pub(crate) token: Option<&'a str>,
}

/// Why a webhook is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VerifyError {
    /// A header or token that the check needs is missing.
    Missing(String),
    /// The timestamp is too old, or in the future.
    Stale,
    /// The signature or the token is wrong.
    Forged,
}

impl VerifyError {
    /// The text for the sender.
    pub(crate) fn problem(&self) -> String {
        match self {
            Self::Missing(what) => format!("The webhook has no {what}"),
            Self::Stale => "The webhook's timestamp is more than 5 minutes from the current time".to_owned(),
            Self::Forged => "The webhook's signature or token is wrong".to_owned(),
        }
    }
}

/// The token in the webhook address of `job`.
pub(crate) fn token(key: &[u8], upstream: &Name, job: JobId) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), format!("{upstream}/{job}").as_bytes());
    URL_SAFE_NO_PAD.encode(tag)
}

/// Verifies a webhook; returns a hash of its message id, if it has one.
pub(crate) fn verify(rule: &Verify, webhook: &Incoming<'_>, now: Time) -> Result<Option<u64>, VerifyError> {
    match rule {
        Verify::StandardWebhooks(key) => standard(key, webhook, now).map(Some),
        Verify::HmacSha256 { key, signature } => {
            let (given, signed) = signed(signature, webhook)?;
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::verify(&key, &signed, &given).map(|()| None).map_err(|_| VerifyError::Forged)
        }
        Verify::Ed25519 { public_key, signature } => {
            let (given, signed) = signed(signature, webhook)?;
            let key = signature::UnparsedPublicKey::new(&signature::ED25519, public_key);
            key.verify(&signed, &given).map(|()| None).map_err(|_| VerifyError::Forged)
        }
        Verify::Token(key) => {
            let given =
                webhook.token.ok_or_else(|| VerifyError::Missing("`token` in its address".to_owned()))?;
            let right = token(key, webhook.upstream, webhook.job);
            let same: bool = right.as_bytes().ct_eq(given.as_bytes()).into();
            if same { Ok(None) } else { Err(VerifyError::Forged) }
        }
    }
}

/// Standard Webhooks: a signature over `webhook-id`, `webhook-timestamp` and the body; several during a key rotation.
fn standard(key: &[u8], webhook: &Incoming<'_>, now: Time) -> Result<u64, VerifyError> {
    let id = header(webhook, webhooks::ID)?;
    let timestamp = header(webhook, webhooks::TIMESTAMP)?;
    let signatures = header(webhook, webhooks::SIGNATURE)?;
    let seconds: u64 = timestamp.parse().map_err(|_| VerifyError::Stale)?;
    let made = Time::from_millis(seconds.saturating_mul(1_000));
    if now.since(made) > TOLERANCE || made.since(now) > TOLERANCE {
        return Err(VerifyError::Stale);
    }
    let signed = webhooks::signed(id, timestamp, webhook.body);
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let versions = signatures.split(' ').filter_map(|signature| signature.strip_prefix("v1,"));
    let mut given = versions.filter_map(|signature| STANDARD.decode(signature).ok());
    if given.any(|given| hmac::verify(&key, &signed, &given).is_ok()) {
        Ok(xxhash_rust::xxh3::xxh3_64(id.as_bytes()))
    } else {
        Err(VerifyError::Forged)
    }
}

/// The signature of a webhook, and the bytes that it must sign.
fn signed(rule: &Signature, webhook: &Incoming<'_>) -> Result<(Vec<u8>, Vec<u8>), VerifyError> {
    let given = header(webhook, rule.header.as_str())?;
    // Some upstreams prefix the algorithm.
    let given = given.strip_prefix("sha256=").unwrap_or(given);
    let given = rule.encoding.decode(given).ok_or(VerifyError::Forged)?;
    let mut signed = Vec::with_capacity(webhook.body.len());
    for part in &rule.signed.0 {
        match part {
            SignedPart::Text(text) => signed.extend_from_slice(text.as_bytes()),
            SignedPart::Header(name) => signed.extend_from_slice(header(webhook, name.as_str())?.as_bytes()),
            SignedPart::Body => signed.extend_from_slice(webhook.body),
        }
    }
    Ok((given, signed))
}

/// The value of a header that occurs exactly once.
fn header<'a>(webhook: &Incoming<'a>, name: &str) -> Result<&'a str, VerifyError> {
    let mut values = webhook.headers.get_all(name).iter();
    let value = values.next().and_then(|value| value.to_str().ok()).filter(|_| values.next().is_none());
    value.ok_or_else(|| VerifyError::Missing(format!("header `{name}`, or more than one")))
}

#[cfg(test)]
mod tests;
