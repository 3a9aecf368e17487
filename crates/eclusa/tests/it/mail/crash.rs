//! A process is killed in the middle of a send: the message is sent again, at most once more.

use serde_json::json;

use super::{SmtpServer, lane, message};
use crate::program::Program;
use crate::redis_server::RedisServer;

fn config(store: &str, server: &SmtpServer) -> String {
    let workers = "[workers]\nlease = \"2s\"\n";
    format!("[server]\nlisten = \"127.0.0.1:0\"\n[store]\n{store}\n{workers}{}", lane(&server.url(), "", ""))
}

/// The message was sent once or twice, always the same.
fn sent_at_most_twice(server: &SmtpServer, job: &str) {
    let sent = server.events("data");
    assert_eq!(sent.len(), 2, "one by the process that was killed, one by the next");
    assert!(
        sent.iter().all(|event| event["text"].as_str().unwrap().contains(&format!("<{job}@example.com>")))
    );
    assert_eq!(server.accepted(), [["a@example.com"]]);
}

#[tokio::test]
async fn on_the_embedded_store_the_next_start_sends_it() {
    let server = SmtpServer::start().await;
    let config = config("url = \"embedded:./data\"", &server);
    let program = Program::start(&config, &[]).await;
    server.script(json!({ "data": ["hang"] })).await;
    let job = program.enqueue("mail", &message(&["a@example.com"])).await;
    server.wait_for("hang", 1).await;
    let dir = program.kill().await;
    let program = Program::start_in(dir, &config, &[]).await;
    assert_eq!(program.finished(&job).await["status"], "completed");
    sent_at_most_twice(&server, &job);
}

#[tokio::test]
async fn on_redis_the_other_process_sends_it() {
    let (server, redis) = (SmtpServer::start().await, RedisServer::start());
    let config = config(&format!("url = \"{}\"\nterm = \"500ms\"", redis.url()), &server);
    let first = Program::start(&config, &[]).await;
    server.script(json!({ "data": ["hang"] })).await;
    let job = first.enqueue("mail", &message(&["a@example.com"])).await;
    server.wait_for("hang", 1).await;
    let second = Program::start(&config, &[]).await;
    second.until("/readyz", |answer| answer.status == 200).await;
    drop(first.kill().await);
    assert_eq!(second.ended(&job).await["status"], "completed");
    sent_at_most_twice(&server, &job);
}

/// With `on_ambiguous = "stop"`, a stopping process releases what it has not sent.
#[tokio::test]
async fn a_mail_that_was_not_sent_when_the_process_ends_is_no_dead_letter() {
    for (step, status, messages) in [("rcpt a@example.com", "completed", 1), ("data", "failed", 0)] {
        let server = SmtpServer::start().await;
        let rules = lane(&server.url(), "retry = { on_ambiguous = \"stop\" }", "");
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nshutdown_grace = \"100ms\"\n[store]\nurl = \"embedded:./data\"\n{rules}"
        );
        let program = Program::start(&config, &[]).await;
        server.script(json!({ step: ["hang"] })).await;
        let job = program.enqueue("mail", &message(&["a@example.com"])).await;
        server.wait_for("hang", 1).await;
        let (ended, dir) = program.stop().await;
        assert!(ended.success());
        let program = Program::start_in(dir, &config, &[]).await;
        assert_eq!(program.ended(&job).await["status"], status, "{step}");
        assert_eq!(server.accepted().len(), messages, "{step}");
    }
}

/// Recipients that were accepted before the kill do not get the message again.
#[tokio::test]
async fn recipients_that_have_it_do_not_get_it_again_after_a_kill() {
    let server = SmtpServer::start().await;
    let config = config("url = \"embedded:./data\"", &server);
    let program = Program::start(&config, &[]).await;
    server.script(json!({ "rcpt b@example.com": ["450 busy", "hang"] })).await;
    let job = program.enqueue("mail", &message(&["a@example.com", "b@example.com"])).await;
    server.wait_for("hang", 1).await;
    let dir = program.kill().await;
    let program = Program::start_in(dir, &config, &[]).await;
    assert_eq!(program.finished(&job).await["status"], "completed");
    assert_eq!(server.accepted(), [["a@example.com"], ["b@example.com"]]);
}
