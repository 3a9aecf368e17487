//! Signatures of the Standard Webhooks specification, version 1: HMAC-SHA-256 over id, timestamp and body.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

/// Prefix of secrets in base64.
const PREFIX: &str = "whsec_";

/// The message id header; header names are in lower case.
pub(crate) const ID: &str = "webhook-id";
/// Seconds since 1970.
pub(crate) const TIMESTAMP: &str = "webhook-timestamp";
/// `v1,` and the signature in base64; several are separated by spaces.
pub(crate) const SIGNATURE: &str = "webhook-signature";

/// The key of a secret: decoded from base64 after `whsec_`, else the text itself. `None` if it is not valid base64.
pub(crate) fn key(secret: &str) -> Option<hmac::Key> {
    let bytes = match secret.strip_prefix(PREFIX) {
        Some(encoded) => BASE64_STANDARD.decode(encoded).ok()?,
        None => secret.as_bytes().to_vec(),
    };
    Some(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

/// The bytes that are signed; `timestamp` exactly as sent.
pub(crate) fn signed(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}

/// The value of [`SIGNATURE`] for a message.
pub(crate) fn sign(key: &hmac::Key, id: &str, timestamp: u64, body: &[u8]) -> String {
    let signature = hmac::sign(key, &signed(id, &timestamp.to_string(), body));
    format!("v1,{}", BASE64_STANDARD.encode(signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn a_message_has_its_expected_signature() {
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_text_or_base64_after_its_prefix() {
        let of = |secret| key(secret).map(|key| sign(&key, "id", 1, b""));
        assert_eq!(of("whsec_c2VjcmV0"), of("secret"));
        assert_ne!(of("secret"), of("Secret"));
        assert_eq!(of("whsec_?"), None);
    }
}
