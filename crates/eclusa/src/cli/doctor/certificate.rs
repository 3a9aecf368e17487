//! Checks how long the listener's certificate is valid.

use eclusa_core::Clock;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::Finding;
use crate::SystemClock;
use crate::config::ServerTls;

/// A certificate that expires sooner gets a warning.
const SOON_DAYS: i64 = 14;

pub(super) fn examine(tls: &ServerTls) -> Finding {
    let file = tls.cert_file.display();
    let end = CertificateDer::from_pem_slice(&tls.certificate).ok().and_then(|der| valid_until(&der));
    let Some(end) = end else {
        let fix = "check it with `openssl x509 -noout -enddate`";
        return Finding::warning("certificate", format!("{file}: its expiry date cannot be read"), fix);
    };
    let now = i64::try_from(SystemClock.now().as_millis() / 1_000).unwrap_or(i64::MAX);
    let left = end.as_second() - now;
    let fix = "renew it; a running server picks it up automatically";
    match left {
        ..=0 => Finding::error("certificate", format!("{file} expired at {end}"), fix),
        _ if left < SOON_DAYS * 86_400 => {
            Finding::warning("certificate", format!("{file} expires at {end}"), fix)
        }
        _ => Finding::ok("certificate", format!("{file} is valid until {end}")),
    }
}

/// `notAfter` of a certificate: the second date of `validity`, which is the fourth field after the version.
fn valid_until(certificate: &[u8]) -> Option<Timestamp> {
    let (_, certificate, _) = element(certificate)?;
    let (_, signed, _) = element(certificate)?;
    let (tag, _, after_version) = element(signed)?;
    let mut rest = if tag == 0xa0 { after_version } else { signed };
    for _serial_algorithm_issuer in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, after_begin) = element(validity)?;
    let (tag, end, _) = element(after_begin)?;
    let text = std::str::from_utf8(end).ok()?;
    // Years of two digits are those from 1950 to 2049.
    let text = match tag {
        0x17 if text.as_bytes().first()? < &b'5' => format!("20{text}"),
        0x17 => format!("19{text}"),
        _ => text.to_owned(),
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
}

/// The tag and contents of the first DER element, and what comes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let length = bytes
            .iter()
            .try_fold(0_usize, |length, byte| length.checked_mul(256)?.checked_add(usize::from(*byte)))?;
        (length, rest)
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_date_is_read() {
        for (year, end) in [(2031, "2031-05-06T00:00:00Z"), (2051, "2051-05-06T00:00:00Z")] {
            let mut params = rcgen::CertificateParams::new(["host".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 5, 6);
            let key = rcgen::KeyPair::generate().unwrap();
            let made = params.self_signed(&key).unwrap();
            assert_eq!(valid_until(made.der()), Some(end.parse().unwrap()));
        }
    }

    #[test]
    fn invalid_certificates_have_no_expiry_date() {
        for bad in
            [&b""[..], b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x03\x02\x01\x01", b"not DER at all"]
        {
            assert_eq!(valid_until(bad), None);
        }
    }
}
