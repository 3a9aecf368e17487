//! The listener's certificate. It is replaced without closing connections, when its files change and on a reload.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use crate::config::{CertificateError, ServerTls};
use crate::file_stamp::FileStamp;
use crate::rules::CurrentRules;

/// How often the files are checked.
const LOOK: Duration = Duration::from_secs(1);

/// The certificate in use. Open connections keep the one they began with.
#[derive(Debug, Clone)]
pub(crate) struct Certificate(Arc<Current>);

#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Certificate {
    pub(crate) fn new(tls: &ServerTls) -> Result<Self, CertificateError> {
        Ok(Self(Arc::new(Current(RwLock::new(Arc::new(tls.certified_key()?))))))
    }

    /// The acceptor for connections, with HTTP/2 or HTTP/1.1.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, CertificateError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(self.0.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config).into())
    }

    fn replace(&self, tls: &ServerTls) -> Result<(), CertificateError> {
        let key = Arc::new(tls.certified_key()?);
        *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }

    /// Uses the certificate of `rules`, and reads its files again when they change. Never returns.
    pub(crate) async fn follow(self, rules: Arc<CurrentRules>) {
        let mut reloads = rules.watch();
        let mut look = tokio::time::interval(LOOK);
        let Some(mut tls) = reloads.borrow_and_update().config.server.tls.clone() else { return };
        let mut files = Files::default();
        loop {
            tokio::select! {
                _ = look.tick() => {}
                reloaded = reloads.changed() => {
                    let Ok(()) = reloaded else { return };
                    let newer = reloads.borrow_and_update().config.server.tls.clone();
                    if let Some(newer) = newer.filter(|newer| *newer != tls) {
                        tls = newer;
                        self.renew(&tls);
                        files = Files::default();
                    }
                    continue;
                }
            }
            let seen = (stamp(&tls.cert_file), stamp(&tls.key_file));
            if !files.have_changed(seen) {
                continue;
            }
            match tls.read_again() {
                Ok(newer) if newer == tls => {}
                Ok(newer) => {
                    if self.renew(&newer) {
                        tls = newer;
                    }
                }
                Err(error) => kept(&error),
            }
        }
    }

    /// Returns whether `tls` is in use now.
    fn renew(&self, tls: &ServerTls) -> bool {
        match self.replace(tls) {
            Ok(()) => tracing::info!(file = %tls.cert_file.display(), "The certificate was renewed"),
            Err(error) => {
                kept(&error);
                return false;
            }
        }
        true
    }
}

fn kept(error: &CertificateError) {
    tracing::error!(%error, "The new certificate cannot be used; the old one stays in use");
}

/// The state of a file; `None` while it is missing.
fn stamp(file: &Path) -> Option<FileStamp> {
    std::fs::metadata(file).ok().map(|file| FileStamp::from(&file))
}

/// The states of the certificate and of its key.
type FileStamps = (Option<FileStamp>, Option<FileStamp>);

/// Both files as last seen, and as last read.
#[derive(Debug, Default)]
struct Files {
    seen: Option<FileStamps>,
    read: Option<FileStamps>,
}

impl Files {
    /// Whether the files must be read: they have changed, and not since the last check. Tools write one file after the
    /// other.
    fn have_changed(&mut self, now: FileStamps) -> bool {
        let settled = self.seen.replace(now) == Some(now);
        settled && self.read.replace(now) != Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_read_once_and_only_after_they_settle() {
        let stamp = |inode| Some(FileStamp { inode, bytes: 0, modified: (0, 0) });
        let mut files = Files::default();
        let looks = [(1, 1), (1, 1), (1, 1), (2, 1), (2, 2), (2, 2), (2, 2)];
        let read = looks.map(|(cert, key)| files.have_changed((stamp(cert), stamp(key))));
        assert_eq!(read, [false, true, false, false, false, true, false]);
        let gone = (None, stamp(2));
        assert_eq!([files.have_changed(gone), files.have_changed(gone)], [false, true]);
    }
}
