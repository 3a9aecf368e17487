//! Whether a webhook comes from the upstream, and is not an old one that somebody kept.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use eclusa_core::{JobId, Name, Span, Time};
use http::HeaderMap;
use ring::{hmac, signature};
use subtle::ConstantTimeEq;

use crate::config::{Signature, SignedPart, Verify};
use crate::standard_webhooks as webhooks;

/// How far the timestamp of a webhook may be from now.
const TOLERANCE: Span = Span::from_secs(300);

/// A webhook as it came.
pub(crate) struct Incoming<'a> {
    pub(crate) upstream: &'a Name,
    pub(crate) job: JobId,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// `token` of the query.
    pub(crate) token: Option<&'a str>,
}

/// Why a webhook is not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VerifyError {
    /// What must be there to check it is not.
    Missing(String),
    /// It was made too long ago, or in the future.
    Stale,
    /// Its signature, or its token, is not right.
    Forged,
}

impl VerifyError {
    /// What to tell whoever sent it.
    pub(crate) fn problem(&self) -> String {
        match self {
            Self::Missing(what) => format!("The webhook has no {what}"),
            Self::Stale => "The webhook's timestamp is more than 5 minutes from now".to_owned(),
            Self::Forged => "The webhook's signature or token is not right".to_owned(),
        }
    }
}

/// The word in the address of a webhook of `job`.
pub(crate) fn token(key: &[u8], upstream: &Name, job: JobId) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), format!("{upstream}/{job}").as_bytes());
    URL_SAFE_NO_PAD.encode(tag)
}

/// Believes a webhook; gives a hash of its own id, if it has one.
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

/// Standard Webhooks: `webhook-id`, `webhook-timestamp` and the body, signed; several signatures while keys change.
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

/// The signature that a webhook brings, and what it must be of.
fn signed(rule: &Signature, webhook: &Incoming<'_>) -> Result<(Vec<u8>, Vec<u8>), VerifyError> {
    let given = header(webhook, rule.header.as_str())?;
    // Some say in the same header how it was made.
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

/// A header that is there once.
fn header<'a>(webhook: &Incoming<'a>, name: &str) -> Result<&'a str, VerifyError> {
    let mut values = webhook.headers.get_all(name).iter();
    let value = values.next().and_then(|value| value.to_str().ok()).filter(|_| values.next().is_none());
    value.ok_or_else(|| VerifyError::Missing(format!("header `{name}`, or more than one")))
}

#[cfg(test)]
mod tests;
