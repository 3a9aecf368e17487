//! HTTPS on the listener: HTTP/1.1 and HTTP/2, with a certificate that is renewed at run time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use eclusa::fake::{Answer, FakeUpstream};
use http::Version;
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tempfile::TempDir;

use crate::cli::run_with;
use crate::http_tls::Authority;
use crate::program::{PATIENCE, Program, eclusa};

/// Writes a certificate of `authority` and its key to the paths in the config.
fn write_pair(dir: &Path, authority: &Authority) {
    write_pair_as(dir, authority, "server");
}

fn write_pair_as(dir: &Path, authority: &Authority, name: &str) {
    let (certificate, key) = authority.issue("127.0.0.1");
    std::fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
    std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

fn config(upstream: &FakeUpstream) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ntls = {{ cert_file = \"server.pem\", key_file = \"server.key\" }}\n\
         [lanes.queued]\nchain = [\"up\"]\n[lanes.direct]\nchain = [\"up\"]\nmode = \"direct\"\n\
         [upstreams.up]\nurl = \"{}\"\n",
        upstream.url()
    )
}

async fn start(authority: &Authority, upstream: &FakeUpstream) -> Program {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    write_pair(dir.path(), authority);
    Program::start_in(dir, &config(upstream), &[]).await
}

type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client that trusts only `authority` and uses only this HTTP version.
fn client(authority: &Authority, version: Version) -> Https {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority.pem()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(roots).with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let connector = if version == Version::HTTP_2 {
        connector.enable_http2().build()
    } else {
        connector.enable_http1().build()
    };
    Client::builder(TokioExecutor::new()).build(connector)
}

fn https(program: &Program) -> String {
    program.url().replace("http://", "https://")
}

/// Whether a new connection gets a certificate of `authority`.
async fn serves(program: &Program, authority: &Authority) -> bool {
    let client = client(authority, Version::HTTP_11);
    client.get(format!("{}/livez", https(program)).parse().unwrap()).await.is_ok()
}

async fn until_it_serves(program: &Program, authority: &Authority) {
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let served = async {
        while !serves(program, authority).await {
            pace.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, served).await.unwrap();
}

#[tokio::test]
async fn both_versions_of_http_are_served() {
    let authority = Authority::new();
    let upstream = FakeUpstream::start(Answer::status(200).body("answer")).await.unwrap();
    let program = start(&authority, &upstream).await;
    let body = "x".repeat(300_000);
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let client = client(&authority, version);
        for path in ["/proxy/direct/a", "/proxy/queued/a"] {
            let own = https(&program);
            // A page of the same origin may send it.
            let request = http::Request::post(format!("{own}{path}")).header("origin", own);
            let request = request.header("prefer", "wait=60");
            let answer = client.request(request.body(Full::from(body.clone())).unwrap()).await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.version()), (200, version), "{path}");
            let reported = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(reported, "answer", "{path} {version:?}");
        }
    }
    assert_eq!(upstream.requests().iter().filter(|seen| seen.body.len() == body.len()).count(), 4);
}

/// HTTP/2 without TLS, with prior knowledge.
#[tokio::test]
async fn http2_is_served_without_tls_too() {
    let upstream = FakeUpstream::start(Answer::status(200).body("answer")).await.unwrap();
    let config = config(&upstream).replace("tls = ", "# tls = ");
    let program = Program::start(&config, &[]).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    for path in ["/proxy/direct/a", "/proxy/queued/a"] {
        let request = http::Request::get(format!("{}{path}", program.url())).header("prefer", "wait=60");
        let answer = client.request(request.body(Full::default()).unwrap()).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2), "{path}");
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "answer");
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let [first, second, third] = [Authority::new(), Authority::new(), Authority::new()];
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&first, &upstream).await;
    assert!(serves(&program, &first).await && !serves(&program, &second).await);
    let dir = program.dir.path();

    write_pair(dir, &second);
    program.logged("The certificate was renewed", &[]).await;
    assert!(serves(&program, &second).await && !serves(&program, &first).await);

    let (_, foreign) = third.issue("127.0.0.1");
    std::fs::write(dir.join("server.key"), foreign.serialize_pem()).unwrap();
    let line = program.logged("The new certificate cannot be used", &[]).await;
    assert_eq!(line["error"], "the key does not belong to the certificate");
    program.reload(&config(&upstream));
    let line = program.logged("The config is invalid", &[]).await;
    assert!(line["errors"].as_str().unwrap().contains("`server.tls.key_file` cannot be used"), "{line}");
    assert!(serves(&program, &second).await, "the old one stays");

    // Only the reload knows the new paths.
    write_pair_as(dir, &third, "other");
    program.reload(&config(&upstream).replace("\"server.", "\"other."));
    program.logged("The config was reloaded", &[("changes", "changed: server.tls")]).await;
    until_it_serves(&program, &third).await;

    write_pair_as(dir, &first, "other");
    until_it_serves(&program, &first).await;

    program.reload(&config(&upstream).replace("tls = ", "# tls = "));
    let line = program.logged("The config was not reloaded", &[]).await;
    assert_eq!(line["error"], "`server.tls` can only be changed by a restart");
}

/// The output of `check` for a config whose files `write` has changed.
async fn refused(write: impl FnOnce(&TempDir)) -> String {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    write_pair(dir.path(), &Authority::new());
    write(&dir);
    std::fs::write(dir.path().join("eclusa.toml"), config(&upstream)).unwrap();
    let ended = eclusa().arg("check").current_dir(dir.path()).output().await.unwrap();
    assert_eq!(ended.status.code(), Some(6));
    String::from_utf8(ended.stderr).unwrap()
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_found_by_check() {
    let gone = refused(|dir| {
        std::fs::remove_file(dir.path().join("server.pem")).unwrap();
        std::fs::remove_file(dir.path().join("server.key")).unwrap();
    })
    .await;
    assert_eq!(gone.matches("names a file that cannot be read").count(), 2, "{gone}");
    let foreign = refused(|dir| {
        let (_, key) = Authority::new().issue("127.0.0.1");
        std::fs::write(dir.path().join("server.key"), key.serialize_pem()).unwrap();
    })
    .await;
    assert!(foreign.contains("the key does not belong to the certificate"), "{foreign}");
    let swapped = refused(|dir| {
        let path = |name| dir.path().join(name);
        std::fs::copy(path("server.key"), path("server.pem")).unwrap();
    })
    .await;
    assert!(swapped.contains("`server.tls.cert_file` names a file without PEM certificates"), "{swapped}");
}

#[tokio::test]
async fn the_command_line_speaks_https() {
    let authority = Authority::new();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&authority, &upstream).await;
    let ca = program.dir.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let (url, ca) = (https(&program), ca.to_str().unwrap());
    let lanes = run_with(&["lanes", "ls", "--url", &url, "--ca-file", ca], &[], "").await.ok();
    assert!(lanes.contains("queued"), "{lanes}");
    run_with(&["lanes", "ls"], &[("ECLUSA_URL", &url), ("ECLUSA_CA_FILE", ca)], "").await.ok();
    let err = run_with(&["lanes", "ls", "--url", &url], &[], "").await.failed(5);
    assert!(err.contains("set --ca-file or ECLUSA_CA_FILE"), "{err}");
    let err = run_with(&["lanes", "ls", "--ca-file", "no-such.pem"], &[], "").await.failed(1);
    assert!(err.contains("--ca-file no-such.pem cannot be read"), "{err}");
}

/// HTTP/2 clients may send each cookie in a field of its own; in HTTP/1.1 there is one (RFC 9113, 8.2.3).
#[tokio::test]
async fn cookies_that_come_split_are_passed_on_as_one() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&config(&upstream).replace("tls = ", "# tls = "), &[]).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    for path in ["/proxy/direct/a", "/proxy/queued/a"] {
        let request = http::Request::get(format!("{}{path}", program.url())).header("prefer", "wait=60");
        let request = request.header("cookie", "a=1").header("cookie", "b=2");
        let answer = client.request(request.body(Full::default()).unwrap()).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2), "{path}");
        let seen = upstream.requests().pop().unwrap();
        let cookies: Vec<_> = seen.headers.get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2"], "{path}");
    }
}

/// As `openssl req -x509` makes it by default.
#[tokio::test]
async fn a_ca_certificate_as_the_server_certificate_is_named_as_the_problem() {
    let authority = Authority::new();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let dir = Arc::new(tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("server.pem"), authority.pem()).unwrap();
    std::fs::write(dir.path().join("server.key"), authority.key()).unwrap();
    let program = Program::start_in(dir.clone(), &config(&upstream), &[]).await;
    let ca = dir.path().join("server.pem");
    let arguments = ["lanes", "ls", "--url", &https(&program), "--ca-file", ca.to_str().unwrap()];
    let err = run_with(&arguments, &[], "").await.failed(5);
    assert!(err.contains("its certificate is itself a CA certificate"), "{err}");
    assert!(!err.contains("set --ca-file"), "{err}");
}
