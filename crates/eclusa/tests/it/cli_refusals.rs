//! Errors of the command line: messages on standard error, and exit codes.

use std::sync::Arc;

use eclusa::fake::{Answer, FakeUpstream};

use crate::cli::{Scene, run_at, run_with};
use crate::http_upstream::free_port;
use crate::program::Program;

#[tokio::test]
async fn not_found_exits_with_3() {
    let scene = Scene::start().await;
    let id = "01900000-0000-7000-8000-000000000000";
    let reported = "error: Not found: ";
    for (arguments, detail) in [
        (vec!["send", "nope"], "There is no lane `nope`; the config has mail, score"),
        (vec!["lanes", "pause", "nope"], "There is no lane `nope`; the config has mail, score"),
        (vec!["jobs", "get", "../lanes"], "There is no job"),
        (vec!["jobs", "wait", id], "There is no job"),
        (vec!["jobs", "cancel", id], "There is no job"),
        (vec!["why", id], "There is no job"),
        (vec!["breakers", "reset", "nope"], "There is no upstream `nope`; the config has api"),
        (vec!["dlq", "get", id], "There is no such dead letter"),
        (vec!["dlq", "replay", id], "There is no such dead letter"),
        (vec!["jobs", "ls", "--lane", "nope"], "There is no lane"),
    ] {
        let err = scene.run(&arguments).await.failed(3);
        assert!(err.starts_with(&format!("{reported}{detail}")), "{arguments:?}: {err}");
    }
}

#[tokio::test]
async fn usage_errors_exit_with_2_before_anything_is_sent() {
    let nobody = format!("http://127.0.0.1:{}", free_port());
    for (arguments, detail) in [
        (vec!["send", "mail", "--priority", "urgent"], "[possible values: high, normal, low]"),
        (vec!["send", "mail", "--ttl", "soon"], "500ms"),
        (vec!["send", "mail", "--query", "a"], "write it as NAME=VALUE"),
        (vec!["send", "mail", "--header", "a"], "write it as NAME:VALUE"),
        (vec!["send", "mail", "-H", "A:1", "-H", "a:2"], "--header a is given twice"),
        (vec!["send", ""], "a value is required"),
        (vec!["jobs", "get", ""], "a value is required"),
        (vec!["jobs", "ls", "--status", "lost"], "possible values: pending, queued"),
        (vec!["jobs", "wait", "x", "--timeout", "soon"], "invalid digit"),
        (vec!["dlq", "stats", "--by", "day"], "possible values: code, tenant, lane"),
        (vec!["dlq", "replay"], "required"),
        (vec!["dlq", "replay", "x", "--all"], "cannot be used with"),
        (vec!["dlq", "replay", "x", "--lane", "mail"], "use the filter with --all"),
        (vec!["dlq", "replay", "x", "--set", "path=/x"], "is not POINTER=VALUE"),
        (vec!["dlq", "replay", "x", "--set", "/message/to/0=a@b.c"], "points into a list"),
        (vec!["dlq", "replay", "x", "--set", "/message/to/-=a@b.c"], "points into a list"),
        (vec!["dlq", "replay", "x", "--patch", "{"], "--patch is not JSON"),
        (vec!["dlq", "replay", "x", "y", "--set", "/type=a"], "edit one dead letter"),
        (vec!["dlq", "purge"], "ids or a filter"),
        (vec!["dlq", "purge", "x", "--lane", "mail"], "ids or a filter"),
        (vec!["dlq", "replay", "--lane", "mail"], "required"),
        (vec!["lanes", "ls", "--url", "127.0.0.1:8080"], "http://"),
        (vec!["lanes", "ls", "--url", "http://user:word@host"], "ECLUSA_KEY"),
        (vec!["lanes", "ls", "-o", "yaml"], "possible values: text, json, jsonl"),
        (vec!["lanes", "stop"], "unrecognized subcommand"),
    ] {
        let err = run_at(&nobody, &arguments).await.failed(2);
        assert!(err.contains(detail), "{arguments:?}: {err}");
    }
}

#[tokio::test]
async fn a_refusal_by_the_server_is_printed_with_every_field() {
    let scene = Scene::start().await;
    let err = scene.run(&["send", "mail", "/a/../b", "--ttl", "0s", "--method", "trace"]).await.failed(1);
    assert!(
        err.starts_with("error: The request is not valid: request.path: must not contain a segment"),
        "{err}"
    );
    assert!(err.contains("; request.method: is not a method"), "{err}");
    scene.run(&["send", "mail", "/a", "--id", "1"]).await.ok();
    let err = scene.run(&["send", "mail", "/b", "--id", "1"]).await.failed(1);
    assert!(err.starts_with("error: The key was used with another payload: "), "{err}");
}

#[tokio::test]
async fn unreadable_bodies_are_reported() {
    let scene = Scene::start().await;
    let err = scene.run(&["send", "mail", "--body", "@no-such-file"]).await.failed(1);
    assert!(err.starts_with("error: cannot read the body from @no-such-file: "), "{err}");
    let file = scene.program.dir.path().join("bytes");
    std::fs::write(&file, [0xff, 0x00]).unwrap();
    let err = scene.run(&["send", "mail", "--body", &format!("@{}", file.display())]).await.failed(1);
    assert!(err.starts_with("error: the body is not UTF-8 text\nhelp: "), "{err}");
    assert!(scene.upstream.requests().is_empty());
}

#[tokio::test]
async fn keys_come_from_the_environment_and_wrong_ones_end_with_4() {
    let config = r#"
        [store]
        url = "memory:"
        [lanes.mail]
        chain = ["api"]
        [upstreams.api]
        url = "http://127.0.0.1:9"
        [[auth.keys]]
        name = "app"
        role = "producer"
        key = "producer-0123456789"
        [[auth.keys]]
        name = "ops"
        role = "operator"
        key = "operator-0123456789"
    "#;
    let program = Program::start(config, &[]).await;
    let url = program.url();
    let with_key =
        async |key: &str| run_with(&["lanes", "ls"], &[("ECLUSA_URL", &url), ("ECLUSA_KEY", key)], "").await;
    assert!(with_key("operator-0123456789").await.ok().starts_with("LANE"));
    let err = run_at(&url, &["lanes", "ls"]).await.failed(4);
    assert!(
        err.starts_with("error: A valid key is needed: ") && err.ends_with("help: set ECLUSA_KEY to a key\n")
    );
    let err = with_key("wrong-0123456789").await.failed(4);
    assert!(err.ends_with("help: the server does not know the key in ECLUSA_KEY\n"), "{err}");
    assert!(!err.contains("wrong-0123456789"));
    let err = with_key("producer-0123456789").await.failed(4);
    assert!(err.starts_with("error: This key may not do that: Key `app` (producer) may not"), "{err}");
    let err = with_key("two\nlines").await.failed(4);
    assert!(err.starts_with("error: ECLUSA_KEY contains characters that no key can have"), "{err}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_ends_with_5() {
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let err = run_at(&nobody, &["lanes", "ls"]).await.failed(5);
    let reported = format!(
        "error: cannot reach {nobody}: is `eclusa serve` running? Set --url or ECLUSA_URL\ncause: Connection refused"
    );
    assert!(err.starts_with(&reported), "{err}");
    for answer in [Answer::reset(), Answer::garbage(), Answer::truncated()] {
        let broken = FakeUpstream::start(answer).await.unwrap();
        run_at(&broken.url(), &["lanes", "ls"]).await.failed(5);
    }
}

#[tokio::test]
async fn an_untrusted_certificate_exits_with_5() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key.into()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        let (connection, _) = listener.accept().await.unwrap();
        tokio_rustls::TlsAcceptor::from(Arc::new(tls)).accept(connection).await.is_err()
    });
    let err = run_at(&url, &["lanes", "ls"]).await.failed(5);
    assert!(err.contains("cannot reach https://localhost") && err.contains("certificate"), "{err}");
    assert!(server.await.unwrap(), "the client must not have gone on");
}

#[tokio::test]
async fn https_to_a_server_without_tls_ends_with_5() {
    let plain = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let url = plain.url().replace("http://", "https://");
    run_at(&url, &["lanes", "ls"]).await.failed(5);
    assert!(plain.requests().is_empty());
}

#[tokio::test]
async fn a_server_that_is_not_eclusa_is_recognised() {
    for status in [200, 404, 502] {
        let other = FakeUpstream::start(Answer::status(status).body("<html>")).await.unwrap();
        let err = run_at(&other.url(), &["lanes", "ls"]).await.failed(1);
        assert!(err.contains("but it is not Eclusa: is --url or ECLUSA_URL right?"), "{err}");
    }
    let odd = FakeUpstream::start(Answer::status(200).body("{\"jobs\": [{}]}")).await.unwrap();
    let err = run_at(&odd.url(), &["jobs", "ls"]).await.failed(1);
    assert!(err.starts_with("error: the server's response has an unexpected form: "), "{err}");
}
