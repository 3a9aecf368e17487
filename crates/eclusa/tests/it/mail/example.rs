//! `examples/email.toml`: the flow of the source's diagrams, to the dead letters and back.

use serde_json::{Value, json};

use super::SmtpServer;
use crate::program::Program;

#[tokio::test]
async fn refused_five_times_a_message_is_a_dead_letter_and_replayed_it_is_sent() {
    let server = SmtpServer::start().await;
    let url = server.url();
    let program = Program::start_example("email.toml", &[("SMTP_URL", &url), ("RETRY_BASE_MS", "20")]).await;
    let busy = vec!["421 4.3.2 Service not available"; 5];
    server.script(json!({ "connect": busy })).await;
    let job = json!({ "id": "outbox-1", "tenant": "acme", "message": {
        "from": "shop@example.com", "to": "ana@example.com", "subject": "Olá", "text": "Bom dia" } });
    let id = program.enqueue("email", &job).await;
    // Finished jobs are not kept; the letter is.
    program.logged("Job failed for good", &[("jobId", &id)]).await;
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
