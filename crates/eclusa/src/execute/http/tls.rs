//! TLS settings of clients: trusted authorities and client certificates.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

use crate::config::Tls;

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// `ca_file` is not PEM.
    #[error("ca_file cannot be read")]
    Ca(#[source] pem::Error),
    /// `cert_file` is not PEM.
    #[error("cert_file cannot be read")]
    Certificate(#[source] pem::Error),
    /// `key_file` is not PEM.
    #[error("key_file cannot be read")]
    Key(#[source] pem::Error),
    /// A file is PEM but holds no certificate.
    #[error("{0} holds no certificate")]
    Empty(&'static str),
    /// A certificate or key that TLS refuses, or two that do not match.
    #[error("the certificates cannot be used")]
    Refused(#[from] rustls::Error),
}

/// Trusts the public authorities and those of `tls`, and uses its client certificate. The connector chooses the version
/// of HTTP.
pub(crate) fn client_config(tls: &Tls) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(ca) = &tls.ca {
        for certificate in certificates("ca_file", ca, TlsError::Ca)? {
            roots.add(certificate)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let Some((certificate, key)) = &tls.client else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates("cert_file", certificate, TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes()).map_err(TlsError::Key)?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

fn certificates(
    file: &'static str,
    pem: &[u8],
    unreadable: impl FnOnce(pem::Error) -> TlsError,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(unreadable)?;
    if found.is_empty() { Err(TlsError::Empty(file)) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn pair() -> (Vec<u8>, Secret) {
        let made = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        (made.cert.pem().into_bytes(), Secret::new(made.signing_key.serialize_pem()))
    }

    #[test]
    fn matching_certificates_are_accepted() {
        let (ca, _) = pair();
        assert!(client_config(&Tls { ca: Some(ca), client: Some(pair()) }).is_ok());
    }

    #[test]
    fn faults_are_reported_by_file() {
        let bad = |tls| client_config(&tls).unwrap_err();
        let ca = |pem: &[u8]| bad(Tls { ca: Some(pem.to_vec()), client: None });
        assert!(matches!(ca(b"not pem"), TlsError::Empty("ca_file")));
        assert!(matches!(ca(b"-----BEGIN CERTIFICATE-----\n!!\n"), TlsError::Ca(_)));
        assert!(matches!(
            ca(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            TlsError::Refused(_)
        ));
        let (certificate, key) = pair();
        let client = |certificate: &[u8], key: Secret| {
            bad(Tls { ca: None, client: Some((certificate.to_vec(), key)) })
        };
        assert!(matches!(client(b"", key), TlsError::Empty("cert_file")));
        assert!(matches!(client(&certificate, Secret::new("no key")), TlsError::Key(_)));
        let (_, foreign) = pair();
        assert!(matches!(client(&certificate, foreign), TlsError::Refused(_)));
    }
}
