//! `eclusa doctor`, and what `check --probe` shares with it.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::cli::{Ran, run_with};
use crate::http_tls::{Authority, door};
use crate::http_upstream::free_port;
use crate::redis_server::RedisServer;

/// Runs a command with a config with this store and this upstream.
async fn run(command: &[&str], store: &str, upstream: &str) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("eclusa.toml");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{store}\"\n[lanes.work]\nchain = [\"up\"]\n\
         [upstreams.up]\nurl = \"{upstream}\"\n"
    );
    std::fs::write(&file, config.replace("DIR", dir.path().to_str().unwrap())).unwrap();
    let (first, rest) = command.split_first().unwrap();
    run_with(&[&[*first, file.to_str().unwrap()], rest].concat(), &[], "").await
}

/// The level of each check, from `-o json`.
fn levels(ran: &Ran) -> Vec<(String, String)> {
    let reported: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = reported["findings"].as_array().unwrap();
    for finding in findings {
        assert_eq!(finding["fix"].is_null(), finding["level"] == "ok", "{finding}");
    }
    findings.iter().map(|finding| (text(&finding["check"]), text(&finding["level"]))).collect()
}

#[tokio::test]
async fn a_good_directory_and_an_upstream_that_is_there_are_fine() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let ran = run(&["doctor", "-o", "json"], "embedded:DIR/data", &upstream.url()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let found = levels(&ran);
    for check in ["config", "listen", "store", "upstream up"] {
        assert!(found.contains(&(check.into(), "ok".into())), "{check}: {found:?}");
    }
    assert!(
        found.iter().any(|(check, _)| check == "disk")
            && found.iter().any(|(check, _)| check == "file limit")
    );
    assert!(upstream.requests().is_empty());
    let text = run(&["doctor"], "embedded:DIR/data", &upstream.url()).await.ok();
    assert!(text.contains("will be created\n"), "{text}");
}

#[tokio::test]
async fn each_error_comes_with_its_fix() {
    let gone = format!("http://127.0.0.1:{}/secret-token", free_port());
    // Nothing can be created below a file, not even by root.
    let ran = run(&["doctor"], "embedded:DIR/eclusa.toml/data", &gone).await;
    assert_eq!(ran.code, 1);
    assert!(ran.err.starts_with("error: 2 errors and "), "{ran:?}");
    assert!(ran.out.contains("error    store") && ran.out.contains("error    upstream up"), "{ran:?}");
    assert!(ran.out.contains("fix: ") && !ran.out.contains("secret-token"), "{ran:?}");
    let reported: Value =
        serde_json::from_str(&run(&["doctor", "-o", "json"], "memory:", &gone).await.out).unwrap();
    assert_eq!((&reported["ok"], &reported["errors"]), (&false.into(), &1.into()));
}

#[tokio::test]
async fn an_upstream_with_an_untrusted_certificate_is_found() {
    let fake = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let door = door(fake.addr(), &Authority::new(), None, &["http/1.1"]).await;
    let ran = run(&["doctor"], "memory:", &format!("https://{door}")).await;
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("cannot be reached: invalid peer certificate: UnknownIssuer"), "{ran:?}");
}

/// `smtps://` begins with TLS, which this listener does not speak.
#[tokio::test]
async fn smtps_is_probed_over_tls() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n").await;
        }
    });
    for (scheme, level) in [("smtp", "ok"), ("smtps", "error")] {
        let upstream = format!("{scheme}://{address}\"\nkind = \"smtp");
        let ran = run(&["doctor", "-o", "json"], "memory:", &upstream).await;
        assert!(levels(&ran).contains(&("upstream up".into(), level.into())), "{scheme}: {ran:?}");
        let ran = run(&["check", "--probe"], "memory:", &upstream).await;
        assert_eq!(ran.out.contains("not reachable: "), scheme == "smtps", "{ran:?}");
    }
}

#[tokio::test]
async fn errors_in_the_config_are_findings() {
    let dir = tempfile::tempdir().unwrap();
    let (file, missing) = (dir.path().join("eclusa.toml"), dir.path().join("missing.toml"));
    std::fs::write(&file, "[lanes.a]\nchian = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n")
        .unwrap();
    let (file, missing) = (file.to_str().unwrap(), missing.to_str().unwrap());
    let ran = run_with(&["doctor", file, "-o", "json"], &[], "").await;
    assert_eq!(ran.code, 6, "{ran:?}");
    let found = levels(&ran);
    assert_eq!(found.iter().filter(|(check, level)| check == "config" && level == "error").count(), 2);
    assert!(found.iter().any(|(check, _)| check == "file limit"), "{found:?}");
    let reported: Value = serde_json::from_str(&ran.out).unwrap();
    let unknown = format!("{file}:2:1: unknown key `chian` in `lanes.a`");
    assert_eq!(reported["findings"][1]["found"], unknown.as_str(), "{reported}");
    assert_eq!(reported["findings"][1]["fix"], "did you mean `chain`?");
    assert_eq!((&reported["ok"], &reported["errors"]), (&false.into(), &2.into()));

    let ran = run_with(&["doctor", missing], &[], "").await;
    assert_eq!(ran.code, 6);
    assert!(ran.out.starts_with(&format!("error    config      {missing}: cannot be read: ")), "{ran:?}");
    assert!(ran.out.contains("fix: create one with `eclusa init`\n"), "{ran:?}");
    assert!(ran.err.starts_with("error: 1 error and "), "{ran:?}");
    let ran = run_with(&["doctor", missing, "--env-file", missing, "-o", "jsonl"], &[], "").await;
    assert_eq!((ran.code, ran.out.lines().count()), (6, 2), "{ran:?}");
}

#[tokio::test]
async fn redis_is_looked_at_in_every_respect() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let careful = ["--appendonly", "yes", "--maxmemory", "200mb", "--requirepass", "secret-password"];
    let redis = RedisServer::with(&careful);
    let with = |password: &str| redis.url().replace("redis://", &format!("redis://{password}"));
    let ran = run(&["doctor", "-o", "json"], &with(":secret-password@"), &upstream.url()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let found = levels(&ran);
    for check in ["store", "password", "aof", "eviction", "memory", "clock"] {
        assert!(found.contains(&(check.into(), "ok".into())), "{check}: {found:?}");
    }
    assert!(!ran.out.contains("secret-password"), "{ran:?}");
    let ran = run(&["doctor"], &with(""), &upstream.url()).await;
    assert!(ran.code == 1 && ran.out.contains("requires a password"), "{ran:?}");
    let ran = run(&["doctor"], &with(":wrong@"), &upstream.url()).await;
    assert!(ran.code == 1 && ran.out.contains("does not accept the user and password"), "{ran:?}");

    let careless = RedisServer::with(&["--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru"]);
    let ran = run(&["doctor", "-o", "json"], &careless.url(), &upstream.url()).await;
    let found = levels(&ran);
    assert_eq!(ran.code, 1);
    assert!(found.contains(&("aof".into(), "warning".into())), "{found:?}");
    assert!(found.contains(&("eviction".into(), "error".into())), "{found:?}");
}

#[tokio::test]
async fn check_probes_the_store_too() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let redis = RedisServer::start();
    let out = run(&["check", "--probe"], &redis.url(), &upstream.url()).await.ok();
    assert!(out.contains("\nstore\n") && out.contains("responds: Redis "), "{out}");
    let gone = format!("redis://127.0.0.1:{}", free_port());
    let ran = run(&["check", "--probe"], &gone, &upstream.url()).await;
    assert_eq!((ran.code, ran.err.as_str()), (1, "error: the store cannot be used\n"));
    let ran = run(&["check", "--probe", "-o", "json"], &gone, &upstream.url()).await;
    let reported: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(reported["store"][0]["level"], "error");
}
