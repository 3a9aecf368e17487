//! Redis over TLS.

use std::path::Path;

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;
use tempfile::TempDir;

use super::{begin, lane};
use crate::http_tls::Authority;
use crate::redis_server::RedisServer;

/// Certificates of one authority, as files.
struct Files(TempDir);

impl Files {
    fn of(authority: &Authority) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = authority.issue("127.0.0.1");
        for (name, pem) in [
            ("ca.pem", authority.pem()),
            ("own.pem", certificate.pem().into_bytes()),
            ("own.key", key.serialize_pem().into_bytes()),
        ] {
            std::fs::write(dir.path().join(name), pem).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        Path::new(self.0.path()).join(name).to_str().unwrap().to_owned()
    }

    fn server(&self, ask_clients: &str) -> RedisServer {
        let [ca, certificate, key] = ["ca.pem", "own.pem", "own.key"].map(|name| self.path(name));
        let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
        RedisServer::with(&[&files[..], &["--tls-auth-clients", ask_clients]].concat())
    }
}

#[tokio::test]
async fn a_process_that_trusts_the_authority_works_and_another_reports_why_not() {
    let files = Files::of(&Authority::new());
    let redis = files.server("no");
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = lane(&upstream.url(), "", "");
    let trusting =
        begin(&redis, "all", &format!("tls = {{ ca_file = \"{}\" }}\n{rules}", files.path("ca.pem"))).await;
    trusting.until("/readyz", |answer| answer.status == 200).await;
    let job = trusting.enqueue("work", &json!({ "request": {} })).await;
    assert_eq!(trusting.ended(&job).await["status"], "completed");

    let doubting = begin(&redis, "all", &rules).await;
    let answer = doubting.get("/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().to_lowercase().contains("certificate"), "{}", answer.text());
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_it() {
    let files = Files::of(&Authority::new());
    let redis = files.server("yes");
    let [ca, certificate, key] = ["ca.pem", "own.pem", "own.key"].map(|name| files.path(name));
    let tls =
        format!("tls = {{ ca_file = \"{ca}\", cert_file = \"{certificate}\", key_file = \"{key}\" }}\n");
    let program = begin(&redis, "all", &format!("{tls}{}", lane("http://127.0.0.1:9", "", ""))).await;
    program.until("/readyz", |answer| answer.status == 200).await;
}
