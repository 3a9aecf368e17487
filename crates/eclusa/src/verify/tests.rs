use http::{HeaderName, HeaderValue};
use ring::signature::KeyPair;

use super::*;
use crate::config::{Encoding, Signed};

const JOB: JobId = JobId(7);

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

fn check(
    rule: &Verify,
    pairs: &[(&str, &str)],
    body: &str,
    token: Option<&str>,
    now: u64,
) -> Result<(), VerifyError> {
    let (upstream, headers) = (Name::new("u").unwrap(), headers(pairs));
    let webhook = Incoming { upstream: &upstream, job: JOB, headers: &headers, body: body.as_bytes(), token };
    verify(rule, &webhook, Time::from_millis(now * 1_000)).map(drop)
}

/// The example of the Standard Webhooks specification and its libraries.
#[test]
fn standard_webhooks_are_verified_as_published() {
    let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let rule = Verify::StandardWebhooks(key);
    let (at, body) = (1_614_265_330, r#"{"test": 2432232314}"#);
    let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let with = |id: &'static str, signature: &str, body: &str, now: u64| {
        let pairs =
            [("webhook-id", id), ("webhook-timestamp", "1614265330"), ("webhook-signature", signature)];
        check(&rule, &pairs, body, None, now)
    };
    let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    assert_eq!(with(id, good, body, at), Ok(()));
    assert_eq!(with(id, &format!("v1,AAAA v1a,BBBB {good}"), body, at + 300), Ok(()), "one of several");
    assert_eq!(with(id, good, body, at + 301), Err(VerifyError::Stale));
    assert_eq!(with(id, good, body, at - 301), Err(VerifyError::Stale));
    assert_eq!(with(id, good, r#"{"test": 2432232315}"#, at), Err(VerifyError::Forged));
    assert_eq!(with("msg_other", good, body, at), Err(VerifyError::Forged));
    assert_eq!(with(id, good.trim_start_matches("v1,"), body, at), Err(VerifyError::Forged), "no version");
    assert_eq!(with(id, "", body, at), Err(VerifyError::Forged));
    let missing = check(&rule, &[("webhook-id", id)], body, None, at);
    assert!(matches!(missing, Err(VerifyError::Missing(what)) if what.contains("webhook-timestamp")));
}

fn signature(encoding: Encoding) -> Signature {
    let signed = vec![
        SignedPart::Header(HeaderName::from_static("x-id")),
        SignedPart::Text(".".into()),
        SignedPart::Body,
    ];
    Signature { header: HeaderName::from_static("x-signature"), encoding, signed: Signed(signed) }
}

/// RFC 4231, test case 2.
#[test]
fn an_hmac_is_verified_over_its_template() {
    let body_only = Signature { signed: Signed(vec![SignedPart::Body]), ..signature(Encoding::Hex) };
    let rule = Verify::HmacSha256 { key: b"Jefe".to_vec(), signature: body_only };
    let hex = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    let body = "what do ya want for nothing?";
    assert_eq!(check(&rule, &[("x-signature", hex)], body, None, 0), Ok(()));
    assert_eq!(check(&rule, &[("x-signature", &format!("sha256={hex}"))], body, None, 0), Ok(()));
    assert_eq!(check(&rule, &[("x-signature", &hex[2..])], body, None, 0), Err(VerifyError::Forged));
    let rule = Verify::HmacSha256 { key: b"k".to_vec(), signature: signature(Encoding::Base64) };
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"k");
    let good = STANDARD.encode(hmac::sign(&key, b"m-1.body"));
    let with = |id: &str, body: &str| check(&rule, &[("x-id", id), ("x-signature", &good)], body, None, 0);
    assert_eq!(with("m-1", "body"), Ok(()));
    assert_eq!(with("m-2", "body"), Err(VerifyError::Forged));
    assert_eq!(with("m-1", "other"), Err(VerifyError::Forged));
    assert!(matches!(check(&rule, &[("x-signature", &good)], "body", None, 0), Err(VerifyError::Missing(_))));
    let twice = [("x-id", "m-1"), ("x-id", "m-1"), ("x-signature", good.as_str())];
    assert!(matches!(check(&rule, &twice, "body", None, 0), Err(VerifyError::Missing(_))));
}

#[test]
fn an_ed25519_signature_is_verified_with_the_public_key() {
    let pair = signature::Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let public_key = pair.public_key().as_ref().try_into().unwrap();
    let rule = Verify::Ed25519 { public_key, signature: signature(Encoding::Base64) };
    let good = STANDARD.encode(pair.sign(b"m-1.body"));
    let with = |body: &str| check(&rule, &[("x-id", "m-1"), ("x-signature", &good)], body, None, 0);
    assert_eq!((with("body"), with("other")), (Ok(()), Err(VerifyError::Forged)));
}

#[test]
fn a_token_is_good_for_one_job_of_one_upstream() {
    let (key, rule) = (b"0123456789abcdef", Verify::Token(b"0123456789abcdef".to_vec()));
    let with = |token: Option<&str>| check(&rule, &[], "", token, 0);
    let of = |upstream: &str, job| token(key, &Name::new(upstream).unwrap(), job);
    assert_eq!(with(Some(&of("u", JOB))), Ok(()));
    for other in [of("u", JobId(8)), of("v", JOB), String::new(), "0123456789abcdef".to_owned()] {
        assert_eq!(with(Some(&other)), Err(VerifyError::Forged));
    }
    assert!(matches!(with(None), Err(VerifyError::Missing(_))));
}
