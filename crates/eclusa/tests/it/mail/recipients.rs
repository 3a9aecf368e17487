//! Several recipients: a reply about one does not affect the others.

use serde_json::{Value, json};

use super::{SmtpServer, fates, lane, letter, message, sent, start};

fn expected(fates: &[(&str, &str)]) -> Vec<(String, String)> {
    fates.iter().map(|(address, fate)| ((*address).to_owned(), (*fate).to_owned())).collect()
}

#[tokio::test]
async fn only_those_refused_for_now_are_tried_again() {
    let server = SmtpServer::start().await;
    let program = start(&lane(&server.url(), "", "")).await;
    server.script(json!({ "rcpt b@example.com": ["450 4.2.1 busy", "451 4.3.0 later"] })).await;
    let job = sent(&program, &["a@example.com", "b@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"completed".into(), &3.into()), "{job}");
    assert_eq!(server.accepted(), [["a@example.com"], ["b@example.com"]]);
    assert_eq!(fates(&job), expected(&[("a@example.com", "accepted"), ("b@example.com", "accepted")]));
    // Both times it is the same message, with all recipients in its header.
    let ids: Vec<String> = server
        .events("accepted")
        .iter()
        .map(|event| {
            let text = event["text"].as_str().unwrap();
            assert!(text.contains("To: a@example.com, b@example.com"), "{text}");
            text.lines().find(|line| line.starts_with("Message-ID")).unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn the_dead_letter_of_a_partly_refused_mail_has_only_the_refused_recipients() {
    let server = SmtpServer::start().await;
    let program = start(&lane(&server.url(), "", "")).await;
    let gone = "550 5.1.1 <b@example.com> no such user";
    server.script(json!({ "rcpt b@example.com": [gone], "rcpt c@example.com": ["450 4.2.1 busy"] })).await;
    let job = sent(&program, &["a@example.com", "b@example.com", "c@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"failed".into(), &2.into()), "{job}");
    assert_eq!(server.accepted(), [["a@example.com"], ["c@example.com"]]);
    let all = [("a@example.com", "accepted"), ("b@example.com", "refused"), ("c@example.com", "accepted")];
    assert_eq!(fates(&job), expected(&all));
    let dead = letter(&program, &job).await;
    assert_eq!(
        (&dead["lastFailureCode"], &dead["originalData"]["message"]["to"]),
        (&"550".into(), &json!(["b@example.com"]))
    );
    // The address is personal: it is not in the reason.
    assert_eq!(dead["lastFailureReason"], "SMTP 550 5.1.1: *** no such user (1 of 3 recipients)");
    // The replay goes to that recipient only, and then the dead letter is removed.
    let id = job["id"].as_str().unwrap();
    let replay = program.post(&format!("/v1/dead-letters/{id}/replay"), &Value::Null).await;
    assert_eq!(replay.status, 202, "{}", replay.text());
    let job = program.finished(replay.json()["jobId"].as_str().unwrap()).await;
    assert_eq!((&job["status"], server.accepted().len()), (&"completed".into(), 3), "{job}");
    assert_eq!(server.accepted()[2], ["b@example.com"]);
    assert_eq!(program.get(&format!("/v1/dead-letters/{id}")).await.status, 404);
}

/// Otherwise a key that cannot see the message could have it sent to its own address.
#[tokio::test]
async fn recipients_are_changed_only_by_a_key_that_is_shown_the_whole_message() {
    let server = SmtpServer::start().await;
    let key = |role: &str| {
        format!("[[auth.keys]]\nname = {role:?}\nrole = {role:?}\nkey = \"0123456789abcdef-{role}\"\n")
    };
    let lane = lane(&server.url(), "mask = [\"header.x-customer\"]", "");
    let program = start(&format!("{lane}{}{}", key("operator"), key("admin"))).await;
    let ask = async |role: &str, path: &str, body: &Value| {
        let bearer = format!("Bearer 0123456789abcdef-{role}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        program.send("POST", path, &headers, &body.to_string()).await
    };
    let bury = async |headers: Value| {
        server.script(json!({ "rcpt a@example.com": ["550 no"] })).await;
        let mut mail = message(&["a@example.com"]);
        mail["message"]["headers"] = headers;
        let job = ask("admin", "/v1/lanes/mail/jobs", &mail).await.json();
        let id = job["jobId"].as_str().unwrap().to_owned();
        program.logged("Job failed permanently", &[("jobId", id.as_str())]).await;
        format!("/v1/dead-letters/{id}/replay")
    };
    let elsewhere = json!({ "message": { "to": ["other@example.com"] } });
    let hidden = bury(json!({ "X-Customer": "7" })).await;
    let refused = ask("operator", &hidden, &elsewhere).await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["field"]), (422, &json!("message.to")));
    let subject = json!({ "message": { "subject": "Again" } });
    assert_eq!(ask("operator", &hidden, &subject).await.status, 202, "the recipients stay the same");
    server.wait_for("accepted", 1).await;
    let shown = bury(json!({ "X-Id": "7" })).await;
    assert_eq!(ask("operator", &shown, &elsewhere).await.status, 202, "nothing is hidden");
    server.wait_for("accepted", 2).await;
    let hidden = bury(json!({ "X-Customer": "7" })).await;
    assert_eq!(ask("admin", &hidden, &elsewhere).await.status, 202, "admins see everything");
    server.wait_for("accepted", 3).await;
    assert_eq!(server.accepted(), [["a@example.com"], ["other@example.com"], ["other@example.com"]]);
}

#[tokio::test]
async fn recipients_left_after_the_last_attempt_are_in_the_letter_too() {
    let server = SmtpServer::start().await;
    let retry = "retry = { attempts = 2, base = \"20ms\", cap = \"20ms\" }";
    let program = start(&lane(&server.url(), retry, "")).await;
    server
        .script(json!({ "rcpt b@example.com": ["550 no"], "rcpt c@example.com": ["450 busy", "..."] }))
        .await;
    let job = sent(&program, &["a@example.com", "b@example.com", "c@example.com"]).await;
    let dead = letter(&program, &job).await;
    assert_eq!(dead["originalData"]["message"]["to"], json!(["b@example.com", "c@example.com"]));
    assert_eq!((&dead["lastFailureCode"], &dead["failedAttempts"]), (&"450".into(), &2.into()));
    let all = [("a@example.com", "accepted"), ("b@example.com", "refused"), ("c@example.com", "deferred")];
    assert_eq!(fates(&job), expected(&all));
}

#[tokio::test]
async fn the_next_upstream_gets_the_recipients_that_the_first_refused_for_now() {
    let (first, second) = (SmtpServer::start().await, SmtpServer::start().await);
    let rules = format!(
        "[lanes.mail]\nchain = [\"one\", \"two\"]\n[upstreams.one]\nkind = \"smtp\"\nurl = \"{}\"\n[upstreams.two]\nkind = \"smtp\"\nurl = \"{}\"\n",
        first.url(),
        second.url()
    );
    let program = start(&rules).await;
    first
        .script(
            json!({ "rcpt b@example.com": ["421 4.7.0 closing"], "rcpt c@example.com": ["452 full", "..."] }),
        )
        .await;
    // A closing server gives no reply for the following recipients.
    let job = sent(&program, &["b@example.com", "c@example.com"]).await;
    assert_eq!(
        (&job["status"], &job["attempts"], &job["upstream"]),
        (&"completed".into(), &1.into(), &"two".into())
    );
    assert_eq!(
        (first.accepted().len(), second.accepted()),
        (0, vec![vec!["b@example.com".to_owned(), "c@example.com".into()]])
    );
    let job = sent(&program, &["a@example.com", "c@example.com"]).await;
    assert_eq!(job["status"], "completed");
    assert_eq!((first.accepted(), second.accepted().len()), (vec![vec!["a@example.com".to_owned()]], 2));
    assert_eq!(second.accepted()[1], ["c@example.com"]);
}

#[tokio::test]
async fn an_upstream_may_mean_codes_differently_also_enhanced_ones() {
    let server = SmtpServer::start().await;
    let codes = "retryable = [\"5.7.1\"]\npermanent = [\"450\"]";
    let program = start(&lane(&server.url(), "", codes)).await;
    server
        .script(
            json!({ "rcpt a@example.com": ["550 5.7.1 greylisted"], "rcpt b@example.com": ["450 4.1.1 no"] }),
        )
        .await;
    let job = sent(&program, &["a@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"completed".into(), &2.into()), "{job}");
    let job = sent(&program, &["b@example.com"]).await;
    assert_eq!((&job["status"], &job["attempts"]), (&"failed".into(), &1.into()), "{job}");
}

#[tokio::test]
async fn refused_recipients_are_no_failure_of_the_server() {
    let server = SmtpServer::start().await;
    let rules = "breaker = { failures = 2, open_for = \"1m\" }\nmax_connections = 1";
    let program = start(&lane(&server.url(), "", rules)).await;
    let busy = vec!["450 4.2.1 busy"; 3];
    server.script(json!({ "rcpt b@example.com": ["550 no", "..."], "rcpt d@example.com": busy })).await;
    for _ in 0..3 {
        assert_eq!(sent(&program, &["b@example.com"]).await["status"], "failed");
    }
    assert_eq!(sent(&program, &["d@example.com", "b@example.com"]).await["attempts"], 4);
    server.script(json!({ "data": ["554 no"] })).await;
    // Refused as a whole, after all recipients were accepted.
    let job = sent(&program, &["a@example.com"]).await;
    assert_eq!((&job["status"], &job["lastFailure"]["code"]), (&"failed".into(), &"554".into()), "{job}");
    let breaker = program.get("/v1/breakers/smtp").await.json();
    assert_eq!((&breaker["state"], &breaker["failures"]), (&"closed".into(), &0.into()), "{breaker}");
    let waits = program.enqueue("mail", &message(&["c@example.com"])).await;
    program.finished(&waits).await;
    assert_eq!(server.events("connect").len(), 1, "a connection is used again after a refusal");
}
