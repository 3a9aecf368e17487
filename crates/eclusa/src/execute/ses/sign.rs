//! Signature Version 4 of AWS, in headers.
//!
//! The crate `aws-sigv4` does the same and brings 23 others; this is one hash and a chain of HMACs, checked against the
//! vectors that AWS publishes.

use std::fmt::Write;

use eclusa_core::Time;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::{digest, hmac};

use crate::config::AwsCredentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// The characters of a path that are encoded.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The region and service of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

/// A request that is about to be sent, without a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsigned<'a> {
    pub(super) method: &'a str,
    /// The host as it is sent: without the default port of its scheme.
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    /// With names in lower case; without the headers that signing adds.
    pub(super) headers: &'a [(HeaderName, &'a str)],
    pub(super) body: &'a [u8],
}

/// The headers that sign a request with these credentials at `now`. `None` if a header value is invalid, which only
/// malformed credentials cause.
pub(super) fn sign(
    request: &Unsigned<'_>,
    scope: Scope<'_>,
    credentials: &AwsCredentials,
    now: Time,
) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let moment = jiff::Timestamp::from_millisecond(i64::try_from(now.as_millis()).ok()?).ok()?;
    let time = moment.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = &time[..8];
    let token = credentials.session_token.as_ref().map(|token| (X_AMZ_SECURITY_TOKEN, token.reveal()));
    let added = [(HOST, request.host), (X_AMZ_DATE, time.as_str())].into_iter().chain(token.clone());
    let mut headers: Vec<(HeaderName, &str)> = request.headers.iter().cloned().chain(added).collect();
    headers.sort_by(|(name, _), (other, _)| name.as_str().cmp(other.as_str()));
    let names = headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");

    let within = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let canonical = canonical(request, &headers, &names);
    let text = format!("{ALGORITHM}\n{time}\n{within}\n{}", hex(sha256(canonical.as_bytes()).as_ref()));
    let signature = hex(hmac::sign(&key(credentials, date, scope), text.as_bytes()).as_ref());
    let id = &credentials.access_key_id;
    let authorization =
        format!("{ALGORITHM} Credential={id}/{within}, SignedHeaders={names}, Signature={signature}");

    let sensitive = |text: &str| {
        let mut value = HeaderValue::from_str(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    };
    let mut signed =
        vec![(X_AMZ_DATE, HeaderValue::from_str(&time).ok()?), (AUTHORIZATION, sensitive(&authorization)?)];
    if let Some((name, token)) = token {
        signed.push((name, sensitive(token)?));
    }
    Some(signed)
}

fn canonical(request: &Unsigned<'_>, headers: &[(HeaderName, &str)], names: &str) -> String {
    let Unsigned { method, path, body, .. } = request;
    // The path is encoded once already; every service except S3 wants it encoded again.
    let path = utf8_percent_encode(path, IN_PATH);
    let mut text = format!("{method}\n{path}\n\n");
    for (name, value) in headers {
        let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "{name}:{value}");
    }
    let _ = write!(text, "\n{names}\n{}", hex(sha256(body).as_ref()));
    text
}

/// A key for one day, region and service.
fn key(credentials: &AwsCredentials, date: &str, scope: Scope<'_>) -> hmac::Key {
    let first = format!("AWS4{}", credentials.secret_access_key.reveal()).into_bytes();
    let parts = [date, scope.region, scope.service, "aws4_request"];
    parts.iter().fold(hmac::Key::new(hmac::HMAC_SHA256, &first), |key, part| {
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref())
    })
}

fn sha256(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;

    use super::*;
    use crate::config::Secret;

    /// 30 August 2015, 12:36, the time of the vectors.
    const NOW: Time = Time::from_millis(1_440_938_160_000);
    const VECTORS: Scope<'_> = Scope { region: "us-east-1", service: "service" };
    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    fn example(session_token: Option<&str>) -> AwsCredentials {
        AwsCredentials {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: session_token.map(Secret::new),
        }
    }

    const VANILLA: Unsigned<'_> =
        Unsigned { method: "POST", host: "example.amazonaws.com", path: "/", headers: &[], body: b"" };

    fn signed(request: &Unsigned<'_>, token: Option<&str>) -> Vec<(HeaderName, HeaderValue)> {
        sign(request, VECTORS, &example(token), NOW).unwrap()
    }

    fn authorization(request: &Unsigned<'_>, token: Option<&str>) -> String {
        let headers = signed(request, token);
        let (_, value) = headers.iter().find(|(name, _)| name == AUTHORIZATION).unwrap();
        value.to_str().unwrap().to_owned()
    }

    /// `get-vanilla`, `post-vanilla`, `post-x-www-form-urlencoded` and `post-sts-header-before` of AWS's test suite.
    #[test]
    fn the_published_vectors_are_signed_as_published() {
        let scope = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request";
        let of = |headers: &str, signature: &str| {
            format!("{scope}, SignedHeaders={headers}, Signature={signature}")
        };
        assert_eq!(
            authorization(&Unsigned { method: "GET", ..VANILLA }, None),
            of("host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31")
        );
        assert_eq!(
            authorization(&VANILLA, None),
            of("host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b")
        );
        let form = [(CONTENT_TYPE, "application/x-www-form-urlencoded")];
        assert_eq!(
            authorization(&Unsigned { headers: &form, body: b"Param1=value1", ..VANILLA }, None),
            of(
                "content-type;host;x-amz-date",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
            )
        );
        assert_eq!(
            authorization(&VANILLA, Some(TOKEN)),
            of(
                "host;x-amz-date;x-amz-security-token",
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"
            )
        );
    }

    #[test]
    fn the_date_and_the_token_are_sent_and_no_secret_is_shown() {
        let headers = signed(&VANILLA, Some(TOKEN));
        let sent = |name: &str| headers.iter().find(|(sent, _)| sent == name).unwrap().1.clone();
        assert_eq!(sent("x-amz-date"), "20150830T123600Z");
        assert_eq!(sent("x-amz-security-token"), TOKEN);
        assert!(!format!("{headers:?}{:?}", example(Some(TOKEN))).contains("EXAMPLE"));
    }
}
