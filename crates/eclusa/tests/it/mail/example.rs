//! `examples/email.toml`: from intake to dead letters and back.

use serde_json::{Value, json};

use super::SmtpServer;
use crate::program::Program;
use crate::ses::server::{Account, ENV, Ses, accepted, error};

/// The example with these servers.
async fn start(ses: &Ses, ses_eu: &Ses, smtp: &SmtpServer) -> Program {
    let (ses, ses_eu, smtp) = (ses.http.url(), ses_eu.http.url(), smtp.url());
    let own = [("SES_URL", &*ses), ("SES_EU_URL", &*ses_eu), ("SMTP_URL", &*smtp), ("RETRY_BASE_MS", "20")];
    Program::start_example("email.toml", &[&own[..], &ENV].concat()).await
}

fn message() -> Value {
    json!({ "from": "shop@example.com", "to": "ana@example.com", "subject": "Olá", "text": "Bom dia" })
}

#[tokio::test]
async fn a_throttled_region_is_stood_in_for_by_the_next_and_that_by_smtp() {
    let throttled = || error(429, "TooManyRequestsException", "Maximum sending rate exceeded.");
    let ses = Ses::start(Account::in_region("us-east-1"), [throttled(), throttled()]).await;
    let ses_eu = Ses::start(Account::in_region("eu-west-1"), [accepted("0100-eu"), throttled()]).await;
    let smtp = SmtpServer::start().await;
    let program = start(&ses, &ses_eu, &smtp).await;
    for outbox in ["outbox-1", "outbox-2"] {
        program.enqueue("email", &json!({ "id": outbox, "tenant": "acme", "message": message() })).await;
    }
    smtp.wait_for("accepted", 1).await;
    assert_eq!(smtp.accepted(), [["ana@example.com"]]);
    assert_eq!((ses.bodies().len(), ses_eu.bodies().len()), (2, 2));
}

#[tokio::test]
async fn refused_five_times_a_message_is_a_dead_letter_and_replayed_it_is_sent() {
    let server = SmtpServer::start().await;
    let down =
        |region| Ses::start(Account::in_region(region), vec![error(503, "ServiceUnavailable", "no"); 6]);
    let program = start(&down("us-east-1").await, &down("eu-west-1").await, &server).await;
    let busy = vec!["421 4.3.2 Service not available"; 5];
    server.script(json!({ "connect": busy })).await;
    let job = json!({ "id": "outbox-1", "tenant": "acme", "message": message() });
    let id = program.enqueue("email", &job).await;
    // Finished jobs are not kept; the letter is.
    program.logged("Job failed permanently", &[("jobId", &id)]).await;
    for attempt in ["1", "2", "3", "4"] {
        let fields =
            [("jobId", id.as_str()), ("attempt", attempt), ("maxAttempts", "5"), ("errorCode", "421")];
        let line = program.logged("Job failed, scheduling retry", &fields).await;
        assert_eq!((&line["companyId"], &line["isRetryable"]), (&"acme".into(), &true.into()), "{line}");
    }
    let letter = program.get(&format!("/v1/dead-letters/{id}")).await.json();
    assert_eq!(
        (&letter["outboxId"], &letter["companyId"], &letter["failedAttempts"], &letter["lastFailureCode"]),
        (&"outbox-1".into(), &"acme".into(), &5.into(), &"421".into())
    );
    assert_eq!(letter["lastFailureReason"], "SMTP 421 4.3.2: Service not available");
    assert_eq!(letter["ttl"], 604_800_000);
    assert_eq!(server.accepted().len(), 0);
    let replay = program.post(&format!("/v1/dead-letters/{id}/replay"), &Value::Null).await;
    assert_eq!(replay.status, 202, "{}", replay.text());
    server.wait_for("accepted", 1).await;
    assert_eq!(server.accepted(), [["ana@example.com"]]);
    program.until(&format!("/v1/dead-letters/{id}"), |answer| answer.status == 404).await;
}
