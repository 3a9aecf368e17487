//! Certificates.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::read::Table;
use super::types::{Secret, Tls};

/// Reads the files that the table names; `ca` says what `ca_file` is for.
pub(super) fn tls(t: &mut Table<'_>, ca: &'static str) -> Tls {
    let cert = t
        .file("cert_file", "Shown to the other side: a PEM file with the certificate and those it rests on.");
    let key = t.file("key_file", "The private key of `cert_file`, PEM.");
    let ca = t.file("ca_file", ca);
    match (t.has("cert_file"), t.has("key_file")) {
        (true, false) => {
            t.misplaced("cert_file", "needs `key_file` beside it", "add `key_file = \"client.key\"`");
        }
        (false, true) => {
            t.misplaced("key_file", "needs `cert_file` beside it", "add `cert_file = \"client.pem\"`");
        }
        _ => {}
    }
    let has_certificates = |pem: &Vec<u8>| {
        let mut certificates = CertificateDer::pem_slice_iter(pem).peekable();
        certificates.peek().is_some() && certificates.all(|certificate| certificate.is_ok())
    };
    for (name, pem) in [("cert_file", &cert), ("ca_file", &ca)] {
        if pem.as_ref().is_some_and(|pem| !has_certificates(pem)) {
            t.wrong(
                name,
                "names a file without certificates in PEM",
                "it holds `-----BEGIN CERTIFICATE-----`",
            );
        }
    }
    let key = key.and_then(|pem| {
        let text = PrivateKeyDer::from_pem_slice(&pem).ok().and_then(|_| String::from_utf8(pem).ok());
        if text.is_none() {
            let help = "it holds `-----BEGIN PRIVATE KEY-----`";
            t.wrong("key_file", "names a file without a private key in PEM", help);
        }
        text.map(Secret::new)
    });
    Tls { ca, client: cert.zip(key) }
}
