//! TLS certificates and keys.

use std::io::Read;
use std::path::{Path, PathBuf};

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

use super::read::{At, MAX_FILE_BYTES, Table};
use super::texts::FilePath;
use super::types::{Secret, ServerTls, Tls};

const NO_CERTIFICATE: &str = "names a file without PEM certificates";
const NO_KEY: &str = "names a file without a PEM private key";

/// Reads the files that the table names; `ca` describes `ca_file`.
pub(super) fn tls(t: &mut Table<'_>, ca: &'static str) -> Tls {
    let cert =
        t.file("cert_file", "The client certificate: a PEM file, followed by the intermediate certificates.");
    let key = t.file("key_file", "The private key of `cert_file`, PEM.");
    let ca = t.file("ca_file", ca);
    match (t.has("cert_file"), t.has("key_file")) {
        (true, false) => {
            t.misplaced("cert_file", "needs `key_file`", "add `key_file = \"client.key\"`");
        }
        (false, true) => {
            t.misplaced("key_file", "needs `cert_file`", "add `cert_file = \"client.pem\"`");
        }
        _ => {}
    }
    for (name, pem) in [("cert_file", &cert), ("ca_file", &ca)] {
        if pem.as_ref().is_some_and(|pem| certificates(pem).is_none()) {
            t.wrong(name, NO_CERTIFICATE, "it must contain `-----BEGIN CERTIFICATE-----`");
        }
    }
    let key = key.and_then(|pem| {
        let text = PrivateKeyDer::from_pem_slice(&pem).ok().and_then(|_| String::from_utf8(pem).ok());
        if text.is_none() {
            let help = "it must contain `-----BEGIN PRIVATE KEY-----`";
            t.wrong("key_file", NO_KEY, help);
        }
        text.map(Secret::new)
    });
    Tls { ca, client: cert.zip(key) }
}

/// Reads the listener's certificate and key.
pub(super) fn server_tls(t: &mut Table<'_>) -> Option<ServerTls> {
    let cert = "A PEM file with the server's certificate, followed by the intermediate certificates.";
    let cert: Option<At<FilePath>> = t.need("cert_file", "\"server.pem\"", cert);
    let key: Option<At<FilePath>> =
        t.need("key_file", "\"server.key\"", "A PEM file with the private key of `cert_file`.");
    let ((cert, key), ctx) = (cert.zip(key)?, t.context());
    let (certificate, secret) = (ctx.file(&cert), ctx.file(&key));
    let tls = ServerTls {
        cert_file: ctx.path(&cert),
        key_file: ctx.path(&key),
        certificate: certificate?,
        key: Secret::new(String::from_utf8_lossy(&secret?)),
    };
    match tls.certified_key() {
        Ok(_) => {}
        Err(CertificateError::NoCertificate(_)) => {
            t.wrong("cert_file", NO_CERTIFICATE, "it must contain `-----BEGIN CERTIFICATE-----`");
        }
        Err(CertificateError::NoKey(_)) => {
            t.wrong("key_file", NO_KEY, "it must contain `-----BEGIN PRIVATE KEY-----`");
        }
        Err(error) => {
            let help = "name the key that belongs to the certificate";
            t.wrong("key_file", &format!("cannot be used with `cert_file`: {error}"), help);
        }
    }
    Some(tls)
}

/// Why the listener's certificate cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", .file.display())]
    Unreadable {
        /// Its path.
        file: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// `cert_file` is not a list of certificates in PEM.
    #[error("{} contains no PEM certificate", .0.display())]
    NoCertificate(PathBuf),
    /// `key_file` is not a private key in PEM.
    #[error("{} contains no PEM private key", .0.display())]
    NoKey(PathBuf),
    /// Certificate and key do not match, or rustls does not accept them.
    #[error("{}", in_words(.0))]
    Refused(#[from] rustls::Error),
}

fn in_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => "the key does not belong to the certificate".into(),
        other => other.to_string(),
    }
}

impl ServerTls {
    /// The certificate and key for the listener.
    pub(crate) fn certified_key(&self) -> Result<CertifiedKey, CertificateError> {
        let chain = certificates(&self.certificate)
            .ok_or_else(|| CertificateError::NoCertificate(self.cert_file.clone()))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.reveal().as_bytes())
            .map_err(|_| CertificateError::NoKey(self.key_file.clone()))?;
        Ok(CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())?)
    }

    /// Reads the files again.
    pub(crate) fn read_again(&self) -> Result<Self, CertificateError> {
        let (cert_file, key_file) = (self.cert_file.clone(), self.key_file.clone());
        let (certificate, key) = (contents(&cert_file)?, contents(&key_file)?);
        let key = Secret::new(String::from_utf8_lossy(&key));
        Ok(Self { cert_file, key_file, certificate, key })
    }
}

fn contents(file: &Path) -> Result<Vec<u8>, CertificateError> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(source) => Err(CertificateError::Unreadable { file: file.to_owned(), source }),
    }
}

/// The certificates of a file; `None` if there are none, or one is damaged.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    (!found.is_empty()).then_some(found)
}
