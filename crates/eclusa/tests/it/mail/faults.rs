//! Servers that are busy, silent, or disconnect in the middle.

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::{SmtpServer, lane, letter, sent, start};

#[tokio::test]
async fn a_busy_server_is_a_limit_like_429_and_its_words_are_kept() {
    let server = SmtpServer::start().await;
    let rules = "cooldown = [\"100ms\"]\nbreaker = { failures = 1, open_for = \"1m\" }";
    let program = start(&lane(&server.url(), "", rules)).await;
    server
        .script(json!({ "mail": ["454 4.7.0 throttled"], "connect": ["421 4.7.0 too many connections"] }))
        .await;
    let job = sent(&program, &["a@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"completed".into(), &3.into()), "{job}");
    let failed: Vec<_> =
        job["timeline"].as_array().unwrap().iter().filter(|entry| entry["event"] == "failed").collect();
    assert_eq!((&failed[0]["code"], &failed[1]["code"]), (&"421".into(), &"454".into()), "{job}");
    assert!(failed[1]["detail"].as_str().unwrap().contains("SMTP 454 4.7.0: throttled"), "{job}");
    assert_eq!(
        program.metric("proxy_upstream_errors_total", &[("upstream", "smtp"), ("code", "421")]).await,
        1
    );
    let breaker = program.get("/v1/breakers/smtp").await.json();
    assert_eq!(breaker["state"], "closed", "a limit is no failure: {breaker}");
    program.logged("Job failed, scheduling retry", &[("errorCode", "421"), ("attempt", "1")]).await;
}

#[tokio::test]
async fn a_server_that_refuses_to_take_a_message_takes_the_next_one_over_the_same_connection() {
    let server = SmtpServer::start().await;
    let program = start(&lane(&server.url(), "retry = { attempts = 1 }", "")).await;
    server.script(json!({ "data command": ["554 5.7.1 not now"] })).await;
    let refused = sent(&program, &["a@example.com"]).await;
    assert_eq!((&refused["status"], &refused["lastFailure"]["code"]), (&"failed".into(), &"554".into()));
    let next = sent(&program, &["b@example.com"]).await;
    assert_eq!(next["status"], "completed", "{next}");
    assert_eq!(server.events("connect").len(), 1);
}

#[tokio::test]
async fn a_connection_lost_after_the_message_is_ambiguous() {
    for (rule, attempts, status) in [("retry", 2, "completed"), ("stop", 1, "failed")] {
        let server = SmtpServer::start().await;
        let retry = format!("retry = {{ base = \"20ms\", cap = \"20ms\", on_ambiguous = \"{rule}\" }}");
        let program = start(&lane(&server.url(), &retry, "")).await;
        server.script(json!({ "data": ["drop"] })).await;
        let job = sent(&program, &["a@example.com"]).await;
        assert_eq!((&job["status"], &job["attempts"]), (&status.into(), &attempts.into()), "{rule}: {job}");
        assert_eq!(job["lastFailure"]["code"], "connection_broken");
    }
}

#[tokio::test]
async fn a_failure_before_the_message_is_not_ambiguous() {
    let server = SmtpServer::start().await;
    let retry = "retry = { base = \"20ms\", cap = \"20ms\", on_ambiguous = \"stop\" }";
    let program = start(&lane(&server.url(), retry, "timeout = \"1s\"")).await;
    server
        .script(
            json!({ "rcpt a@example.com": ["drop"], "rcpt b@example.com": ["hang"], "connect": ["hang"] }),
        )
        .await;
    for (to, code, attempts) in [("a@example.com", "connection_broken", 3), ("b@example.com", "timeout", 2)] {
        let job = sent(&program, &[to]).await;
        assert_eq!((&job["status"], &job["attempts"]), (&"completed".into(), &attempts.into()), "{job}");
        assert_eq!(job["lastFailure"]["code"], code, "{job}");
    }
    assert_eq!(server.accepted().len(), 2);
}

#[tokio::test]
async fn a_silent_server_after_the_message_is_ambiguous() {
    let server = SmtpServer::start().await;
    let retry = "retry = { base = \"20ms\", cap = \"20ms\", on_ambiguous = \"stop\" }";
    let program = start(&lane(&server.url(), retry, "timeout = \"1s\"")).await;
    server.script(json!({ "data": ["hang"] })).await;
    let job = sent(&program, &["a@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"failed".into(), &1.into()), "{job}");
    let dead = letter(&program, &job).await;
    assert_eq!(
        (&dead["lastFailureCode"], &dead["lastFailureReason"]),
        (&"timeout".into(), &"no reply to the message within 1s".into())
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let retry = "retry = { attempts = 2, base = \"20ms\", cap = \"20ms\", on_ambiguous = \"stop\" }";
    let program = start(&lane(&format!("smtp://127.0.0.1:{gone}"), retry, "")).await;
    let job = sent(&program, &["a@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"failed".into(), &2.into()), "{job}");
    assert_eq!(job["lastFailure"]["code"], "connect_failed");
}

/// An attacker injects replies after the one to STARTTLS, to be taken for encrypted replies of the server.
#[tokio::test]
async fn plain_text_after_starttls_is_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("smtp://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        stream.write_all(b"220 test\r\n").await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        stream.write_all(b"250-test\r\n250 STARTTLS\r\n").await.unwrap();
        stream.read_line(&mut line).await.unwrap();
        stream.write_all(b"220 go\r\n250-evil\r\n250 AUTH PLAIN\r\n").await.unwrap();
        // Until the other side closes.
        let _ = stream.read_line(&mut line).await;
    });
    let program = start(&lane(&url, "retry = { attempts = 1 }", "")).await;
    let job = sent(&program, &["a@example.com"]).await;
    assert_eq!(job["lastFailure"]["reason"], "the server sent more in the clear after STARTTLS", "{job}");
}
