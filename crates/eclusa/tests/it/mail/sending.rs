//! A message from the API to the server: its contents, encryption, authentication, and what is refused at intake.

use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{SmtpServer, fates, lane, letter, message, sent, start};
use crate::http_tls::Authority;
use crate::program::Program;

#[tokio::test]
async fn a_message_arrives_complete_and_the_job_lists_its_recipients() {
    let server = SmtpServer::start().await;
    let program = start(&lane(&server.url(), "", "")).await;
    let whole = json!({ "message": {
        "from": "Loja do Zé <loja@example.com>",
        "to": ["Ana <ana@example.com>", "bob@bücher.example"],
        "bcc": "secret@example.com",
        "replyTo": "sac@example.com",
        "subject": "Promoção",
        "text": "Olá\n.\nfim",
        "html": "<p>Olá</p>",
        "headers": { "List-Unsubscribe": "<https://example.com/u>" },
        "attachments": [{ "filename": "nota.pdf", "contentType": "application/pdf", "content": "JVBERg==" }],
    } });
    let id = program.enqueue("mail", &whole).await;
    let job = program.finished(&id).await;
    assert_eq!(
        (&job["status"], &job["attempts"], &job["result"]["status"]),
        (&"completed".into(), &1.into(), &250.into())
    );
    let to = ["ana@example.com", "bob@xn--bcher-kva.example", "secret@example.com"];
    assert_eq!(fates(&job), to.map(|address| (address.to_owned(), "accepted".to_owned())));
    assert_eq!(server.accepted(), [to.map(ToOwned::to_owned)]);
    let sent = &server.events("data")[0];
    assert_eq!(sent["sender"], "loja@example.com");
    let text = sent["text"].as_str().unwrap();
    assert!(text.contains(&format!("Message-ID: <{id}@example.com>")), "{text}");
    assert_eq!(job["result"]["body"]["messageId"], format!("<{id}@example.com>"));
    assert!(
        text.contains("List-Unsubscribe: <https://example.com/u>") && text.contains("JVBERg=="),
        "{text}"
    );
    assert!(!text.contains("secret@example.com"), "{text}");
    assert_eq!(program.get(&format!("/v1/jobs/{id}")).await.json()["message"]["subject"], "Promoção");
    // Shown without the contents of files.
    let shown = program.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(
        shown["message"]["attachments"],
        json!([{ "filename": "nota.pdf", "contentType": "application/pdf" }])
    );
}

#[tokio::test]
async fn connections_are_used_again_and_replaced_when_the_server_closed_them() {
    let server = SmtpServer::start().await;
    let program = start(&lane(&server.url(), "", "")).await;
    for _ in 0..3 {
        assert_eq!(sent(&program, &["a@example.com"]).await["status"], "completed");
    }
    assert_eq!(server.events("connect").len(), 1);
    // The server closes the connection at its next use, as if it had been idle for too long.
    server.script(json!({ "mail": ["421 4.4.2 idle for too long"] })).await;
    let job = sent(&program, &["b@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"completed".into(), &1.into()), "{job}");
    server.script(json!({ "mail": ["drop"] })).await;
    let job = sent(&program, &["c@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"completed".into(), &1.into()), "{job}");
    assert_eq!((server.events("connect").len(), server.accepted().len()), (3, 5));
}

/// A directory with the certificate of a server, its key, and the authority's certificate; and the options for the server.
fn certificates() -> (Arc<TempDir>, Value) {
    let (dir, authority) = (Arc::new(tempfile::tempdir().unwrap()), Authority::new());
    let (certificate, key) = authority.issue("localhost");
    let write = |name: &str, pem: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    write("ca.pem", &authority.pem());
    let options = json!({ "cert": write("s.pem", certificate.pem().as_bytes()), "key": write("s.key", key.serialize_pem().as_bytes()) });
    (dir, options)
}

fn with(mut options: Value, name: &str, value: Value) -> Value {
    options[name] = value;
    options
}

async fn start_in(dir: &Arc<TempDir>, rules: &str) -> Program {
    let config = format!("[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"memory:\"\n{rules}");
    Program::start_in(dir.clone(), &config, &[]).await
}

#[tokio::test]
async fn connections_are_encrypted_by_starttls_or_from_the_start_and_accounts_named() {
    let (dir, options) = certificates();
    let auth = "tls = { ca_file = \"ca.pem\" }\nauth = { user = \"mailer\", password = \"geheim\" }";
    let account = |options: &Value| with(options.clone(), "auth", json!(["mailer", "geheim"]));
    let starttls = SmtpServer::with(account(&options)).await;
    let login = SmtpServer::with(with(account(&options), "exclude", json!(["PLAIN"]))).await;
    let implicit = SmtpServer::with(with(account(&options), "implicit", json!(true))).await;
    for (server, scheme, rules) in
        [(&starttls, "smtp", "starttls = \"required\"\n"), (&login, "smtp", ""), (&implicit, "smtps", "")]
    {
        let url = format!("{scheme}://localhost:{}", server.port);
        let program = start_in(&dir, &lane(&url, "", &format!("{rules}{auth}"))).await;
        let job = sent(&program, &["a@example.com"]).await;
        assert_eq!(job["status"], "completed", "{url} {job}");
        let data = &server.events("data")[0];
        assert_eq!((&data["tls"], &data["user"]), (&true.into(), &"mailer".into()), "{url}");
        assert!(!program.log().iter().any(|line| line.to_string().contains("geheim")));
    }
    assert_eq!(login.events("auth")[0]["mechanism"], "LOGIN");
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_and_a_wrong_password_send_nothing() {
    let (dir, options) = certificates();
    let server = SmtpServer::with(with(options, "auth", json!(["mailer", "geheim"]))).await;
    let url = format!("smtp://localhost:{}", server.port);
    let once = "retry = { attempts = 1 }";
    let program = start_in(&dir, &lane(&url, once, "")).await;
    let job = sent(&program, &["a@example.com"]).await;
    assert_eq!((&job["status"], &job["lastFailure"]["code"]), (&"failed".into(), &"connect_failed".into()));
    assert!(job["lastFailure"]["reason"].as_str().unwrap().starts_with("no TLS with the server"), "{job}");
    let wrong = "tls = { ca_file = \"ca.pem\" }\nauth = { user = \"mailer\", password = \"falsch\" }";
    let program = start_in(&dir, &lane(&url, once, wrong)).await;
    let job = sent(&program, &["a@example.com"]).await;
    assert_eq!((&job["status"], &job["lastFailure"]["code"]), (&"failed".into(), &"535".into()), "{job}");
    assert_eq!(server.events("data"), [Value::Null; 0]);
}

#[tokio::test]
async fn encryption_that_is_required_and_not_offered_sends_nothing() {
    let server = SmtpServer::start().await;
    let twice = "retry = { attempts = 2, base = \"20ms\", cap = \"20ms\" }";
    let program = start(&lane(&server.url(), twice, "starttls = \"required\"")).await;
    let job = sent(&program, &["a@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"failed".into(), &2.into()));
    let dead = letter(&program, &job).await;
    assert_eq!(dead["lastFailureReason"], "the server offers no STARTTLS, which is required");
    assert_eq!(dead["lastFailureCode"], "connect_failed");
    assert_eq!(server.events("rcpt"), [Value::Null; 0]);
}

/// Otherwise a server that refuses every login would turn the whole queue into dead letters.
#[tokio::test]
async fn a_fault_of_the_server_or_the_account_opens_the_breaker_and_the_next_upstream_sends() {
    let (dir, options) = certificates();
    let locked = SmtpServer::with(with(options, "auth", json!(["mailer", "geheim"]))).await;
    let (closed, next) = (SmtpServer::start().await, SmtpServer::start().await);
    closed.script(json!({ "connect": ["554 5.3.2 no service here", "..."] })).await;
    let account = "tls = { ca_file = \"ca.pem\" }\nauth = { user = \"mailer\", password = \"falsch\" }";
    for (url, rules, code) in [
        (format!("smtp://localhost:{}", locked.port), account, "535"),
        (closed.url(), "", "554"),
        (next.url(), "starttls = \"required\"", "connect_failed"),
    ] {
        let rules = format!("breaker = {{ failures = 1, open_for = \"1m\" }}\n{rules}");
        let chain = lane(&url, "", &rules).replace("chain = [\"smtp\"]", "chain = [\"smtp\", \"next\"]");
        let more = format!("[upstreams.next]\nkind = \"smtp\"\nurl = \"{}\"\n", next.url());
        let program = start_in(&dir, &format!("{chain}{more}")).await;
        let job = sent(&program, &["a@example.com"]).await;
        assert_eq!((&job["status"], &job["upstream"]), (&"completed".into(), &"next".into()), "{job}");
        assert_eq!(job["lastFailure"]["code"], code, "{job}");
        assert_eq!(program.get("/v1/breakers/smtp").await.json()["state"], "open", "{code}");
    }
}

#[tokio::test]
async fn invalid_messages_are_refused_at_intake_with_their_fields() {
    let server = SmtpServer::start().await;
    let http = "[lanes.web]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:1\"\n";
    let program = start(&format!("{}{http}", lane(&server.url(), "", ""))).await;
    let fields = |answer: crate::program::Answer| {
        assert_eq!(answer.status, 422, "{}", answer.text());
        let errors = answer.json()["errors"].as_array().unwrap().clone();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let bad = json!({ "message": { "from": "shop", "to": ["a@example.com", "b"], "subject": "a\nBcc: c@example.com" } });
    let said = program.post("/v1/lanes/mail/jobs", &bad).await;
    assert_eq!(fields(said), ["message.from", "message.to[1]", "message", "message.subject"]);
    let request = json!({ "request": { "path": "/x" } });
    for (lane, job, field) in [
        ("mail", json!({ "params": {} }), "message"),
        ("mail", request.clone(), "request"),
        ("web", message(&["a@example.com"]), "message"),
    ] {
        assert_eq!(fields(program.post(&format!("/v1/lanes/{lane}/jobs"), &job).await), [field], "{lane}");
    }
    let both = json!({ "request": { "path": "/x" }, "message": message(&["a@example.com"])["message"] });
    assert_eq!(fields(program.post("/v1/lanes/mail/jobs", &both).await), ["message"]);
    assert_eq!(fields(program.send("POST", "/proxy/mail/x", &[], "").await), ["request"]);
    let batch =
        program.post("/v1/lanes/mail/jobs/batch", &json!([message(&["a@example.com"]), bad])).await.json();
    assert_eq!((&batch[0]["status"], &batch[1]["status"]), (&"queued".into(), &422.into()), "{batch}");
}
