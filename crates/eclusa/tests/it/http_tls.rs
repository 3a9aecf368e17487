//! Calls over TLS, with certificates made for the test.

use std::net::SocketAddr;
use std::sync::Arc;

use eclusa::config::{Secret, Tls, UpstreamConfig};
use eclusa::execute::CallEnd;
use eclusa::execute::http::HttpUpstream;
use eclusa::fake::{Answer, FakeUpstream};
use http::Version;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::http_upstream::{answered, client, context, request, rules};

/// A certificate authority for one test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate with the name of its issuer would count as self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    pub(crate) fn key(&self) -> String {
        self.0.key().serialize_pem()
    }

    pub(crate) fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }
}

/// A TLS listener in front of a server; with `clients`, client certificates of that authority are required.
pub(crate) async fn door(
    there: SocketAddr,
    authority: &Authority,
    clients: Option<&Authority>,
    alpn: &[&str],
) -> SocketAddr {
    let (certificate, key) = authority.issue("127.0.0.1");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((outside, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut outside) = acceptor.accept(outside).await else { return };
                let mut inside = TcpStream::connect(there).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    here
}

fn https(to: SocketAddr, tls: Tls) -> HttpUpstream {
    client(&UpstreamConfig { tls, ..rules(&format!("https://{to}")) })
}

fn trusting(authority: &Authority) -> Tls {
    Tls { ca: Some(authority.pem()), client: None }
}

#[tokio::test]
async fn the_best_http_that_both_speak_is_spoken() {
    let authority = Authority::new();
    for (alpn, version) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let fake = FakeUpstream::start(Answer::status(200).body("over TLS")).await.unwrap();
        let to = door(fake.addr(), &authority, None, alpn).await;
        let upstream = https(to, trusting(&authority));
        for _ in 0..3 {
            let answer = answered(upstream.call(&request("POST", "/a"), &context()).await);
            assert_eq!(answer.body, b"over TLS");
        }
        let seen = fake.requests();
        assert!(seen.iter().all(|seen| seen.version == version), "{seen:?}");
        assert_eq!(seen[0].headers["idempotency-key"], "job-1");
    }
}

#[tokio::test]
async fn over_http2_a_misbehaving_answer_ends_as_over_http1() {
    let authority = Authority::new();
    for answer in [Answer::reset(), Answer::truncated(), Answer::garbage()] {
        let fake = FakeUpstream::start(answer.clone()).await.unwrap();
        let upstream = https(door(fake.addr(), &authority, None, &["h2"]).await, trusting(&authority));
        let called = upstream.call(&request("GET", "/"), &context()).await;
        assert!(matches!(called.end, CallEnd::Broken(_)), "{answer:?} {called:?}");
    }
    let fake = FakeUpstream::start(Answer::endless(100 << 20)).await.unwrap();
    let upstream = https(door(fake.addr(), &authority, None, &["h2"]).await, trusting(&authority));
    let called = upstream.call(&request("GET", "/"), &context()).await;
    assert!(matches!(called.end, CallEnd::TooLarge { .. }));
}

#[tokio::test]
async fn an_upstream_with_an_untrusted_certificate_is_sent_nothing() {
    let fake = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let to = door(fake.addr(), &Authority::new(), None, &["h2", "http/1.1"]).await;
    for tls in [Tls::default(), trusting(&Authority::new())] {
        let called = https(to, tls).call(&request("GET", "/"), &context()).await;
        assert!(matches!(&called.end, CallEnd::NotSent(why) if why.contains("certificate")), "{called:?}");
    }
    // The certificate is for the address, not for the name.
    let named = rules(&format!("https://localhost:{}", to.port()));
    let called = client(&named).call(&request("GET", "/"), &context()).await;
    assert!(matches!(called.end, CallEnd::NotSent(_)), "{called:?}");
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn the_client_certificate_is_shown() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let fake = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let to = door(fake.addr(), &authority, Some(&clients), &["h2", "http/1.1"]).await;
    let (certificate, key) = clients.issue("eclusa");
    let client = Some((certificate.pem().into_bytes(), Secret::new(key.serialize_pem())));
    let upstream = https(to, Tls { client, ..trusting(&authority) });
    assert_eq!(answered(upstream.call(&request("GET", "/"), &context()).await).status, 200);

    let called = https(to, trusting(&authority)).call(&request("GET", "/"), &context()).await;
    assert!(!matches!(called.end, CallEnd::Answered(_)), "{called:?}");
    assert_eq!(fake.requests().len(), 1);
}
