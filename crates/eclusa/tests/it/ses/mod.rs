//! Mail by the API of Amazon SES, through the real program, to a server that verifies every signature.

mod credentials;
pub(super) mod server;

use std::time::Duration;

use eclusa::fake::Answer;
use serde_json::{Value, json};

use self::server::{Account, ENV, SECRET, Ses, accepted, error};
use super::mail::SmtpServer;
use super::program::Program;

/// A lane with this chain; `lane` and `upstreams` are additional keys.
fn config(lane: &str, upstreams: &[(&str, &str, &Ses, &str)]) -> String {
    let names: Vec<String> = upstreams.iter().map(|(name, ..)| format!("{name:?}")).collect();
    let chain = names.join(", ");
    let head = format!("[server]\nlisten = \"127.0.0.1:0\"\n[lanes.email]\nchain = [{chain}]\n{lane}\n");
    let upstream = |(name, region, ses, more): &(&str, &str, &Ses, &str)| {
        let url = ses.http.url();
        format!("[upstreams.{name}]\nkind = \"ses\"\nregion = {region:?}\nurl = {url:?}\n{more}\n")
    };
    let upstreams: Vec<String> = upstreams.iter().map(upstream).collect();
    head + &upstreams.concat()
}

fn mail() -> Value {
    let message = json!({
        "from": "Loja <loja@example.com>",
        "to": ["ana@example.org", "Bia <bia@example.org>"],
        "bcc": "audit@example.com",
        "subject": "Pedido nº 7",
        "text": "Olá",
    });
    json!({ "tenant": "acme", "message": message })
}

/// Enqueues a mail and waits until it has ended.
async fn sent(program: &Program) -> Value {
    let id = program.enqueue("email", &mail()).await;
    program.ended(&id).await
}

const ONCE: &str = "retry = { attempts = 1 }";
const TWICE: &str = "retry = { attempts = 2, base = \"10ms\", cap = \"10ms\" }";

#[tokio::test]
async fn a_mail_is_signed_and_sent_to_all_its_recipients() {
    let ses = Ses::start(Account::in_region("us-east-1"), [accepted("0100-first")]).await;
    let more = "configuration_set = \"tracking\"";
    let program = Program::start(&config(ONCE, &[("ses", "us-east-1", &ses, more)]), &ENV).await;
    let job = sent(&program).await;
    assert_eq!((&job["status"], &job["upstream"]), (&json!("completed"), &json!("ses")), "{job}");
    assert!(job["result"]["body"].to_string().contains("0100-first"), "{job}");

    assert_eq!(ses.recipients(), [["ana@example.org", "bia@example.org", "audit@example.com"]]);
    let body = &ses.bodies()[0];
    assert_eq!(body["FromEmailAddress"], "loja@example.com");
    assert_eq!(body["ConfigurationSetName"], "tracking");
    let mail = ses.mail();
    assert!(mail.contains("To: ana@example.org, ") && !mail.contains("audit@example.com"), "{mail}");
    assert!(!format!("{job}{:?}", program.log()).contains(SECRET));
}

/// The error's name is the code of the failure, in any of SES's notations, and determines whether it is retried.
#[tokio::test]
async fn errors_are_known_by_name() {
    let url = "MessageRejected:http://internal.amazon.com/coral/com.amazonaws.services.simpleemailv2/";
    let body = |body: Value| Answer::status(400).body(body.to_string());
    for (answer, code, calls) in [
        (
            error(400, "MessageRejected", "Email address is not verified: ana@example.org"),
            "MessageRejected",
            1,
        ),
        (error(400, url, "no"), "MessageRejected", 1),
        (
            body(json!({ "__type": "com.amazonaws.ses#AccountSuspendedException" })),
            "AccountSuspendedException",
            1,
        ),
        (body(json!({ "code": "MailFromDomainNotVerified" })), "MailFromDomainNotVerified", 1),
        (error(404, "NotFoundException", "no configuration set"), "NotFoundException", 1),
        (error(403, "AccessDeniedException", "no"), "AccessDeniedException", 1),
        // About the account, not the mail. Another signature would not help, so each attempt signs once.
        (error(403, "SignatureDoesNotMatch", "no"), "SignatureDoesNotMatch", 2),
        (error(403, "UnrecognizedClientException", "no"), "UnrecognizedClientException", 2),
        (error(403, "InvalidClientTokenId", "no"), "InvalidClientTokenId", 2),
        (error(400, "SendingPausedException", "paused"), "SendingPausedException", 2),
        (error(400, "LimitExceededException", "too many"), "LimitExceededException", 2),
        (error(429, "TooManyRequestsException", "slow down"), "TooManyRequestsException", 2),
        (error(400, "Throttling", "Maximum sending rate exceeded."), "Throttling", 2),
        (error(503, "ServiceUnavailable", "later"), "ServiceUnavailable", 2),
        (error(500, "InternalFailure", "oops"), "InternalFailure", 2),
        // Not from SES, but from a proxy in front of it.
        (Answer::status(502).body("<html>"), "502", 2),
    ] {
        let ses = Ses::start(Account::in_region("us-east-1"), [answer.clone(), answer]).await;
        let program = Program::start(&config(TWICE, &[("ses", "us-east-1", &ses, "")]), &ENV).await;
        let job = sent(&program).await;
        assert_eq!((&job["status"], &job["lastFailure"]["code"]), (&json!("failed"), &json!(code)), "{job}");
        assert_eq!(ses.http.requests().len(), calls, "{code}");
        let letter =
            program.get(&format!("/v1/dead-letters/{}", job["jobId"].as_str().unwrap())).await.json();
        assert_eq!(letter["lastFailureCode"], code);
        // SES's messages may name people.
        assert!(!letter["lastFailureReason"].as_str().unwrap().contains("ana@"), "{letter}");
    }
}

#[tokio::test]
async fn the_lists_of_an_upstream_name_errors_in_either_spelling() {
    let suspended = error(400, "AccountSuspendedException", "no");
    let ses = Ses::start(Account::in_region("us-east-1"), [suspended]).await;
    let more = "retryable = [\"AccountSuspended\"]";
    let program = Program::start(&config(TWICE, &[("ses", "us-east-1", &ses, more)]), &ENV).await;
    assert_eq!(sent(&program).await["status"], "completed");
    assert_eq!(ses.http.requests().len(), 2);
}

/// A mail that one region refuses moves to the next one in the same attempt, signed for that region.
#[tokio::test]
async fn a_second_region_is_the_fallback() {
    let paused = error(400, "SendingPausedException", "paused");
    let us = Ses::start(Account::in_region("us-east-1"), [paused]).await;
    let eu = Ses::start(Account::in_region("eu-west-1"), []).await;
    let both = [("ses", "us-east-1", &us, ""), ("ses-eu", "eu-west-1", &eu, "")];
    let program = Program::start(&config(ONCE, &both), &ENV).await;
    let job = sent(&program).await;
    let expected = (&json!("completed"), &json!("ses-eu"), &json!(1));
    assert_eq!((&job["status"], &job["upstream"], &job["attempts"]), expected, "{job}");
    assert_eq!((us.http.requests().len(), eu.http.requests().len()), (1, 1));
}

/// The quota refills all day, so the region is tried again after ten minutes; until then all mail goes to the other.
#[tokio::test]
async fn a_used_up_daily_quota_closes_the_region_for_ten_minutes() {
    let quota = error(400, "ThrottlingException", "Daily message quota exceeded.");
    let us = Ses::start(Account::in_region("us-east-1"), [quota]).await;
    let eu = Ses::start(Account::in_region("eu-west-1"), []).await;
    let both = [("ses", "us-east-1", &us, ""), ("ses-eu", "eu-west-1", &eu, "")];
    let program = Program::start(&config(ONCE, &both), &ENV).await;
    for _ in 0..2 {
        assert_eq!(sent(&program).await["upstream"], "ses-eu");
    }
    assert_eq!((us.http.requests().len(), eu.http.requests().len()), (1, 2));
    let upstream = program.get("/v1/upstreams/ses").await.json();
    let mut gates = upstream["gates"].as_array().unwrap().iter();
    let shut = gates.find(|gate| gate["reason"] == "upstream_retry_after").expect("it is closed");
    let until: jiff::Timestamp = shut["until"].as_str().unwrap().parse().unwrap();
    let now = eclusa_core::Clock::now(&eclusa::SystemClock).as_millis();
    let wait = until.as_millisecond() - i64::try_from(now).unwrap();
    assert!((540_000..=600_000).contains(&wait), "{wait} ms");
}

/// Throttling is a 429 to the gates: it slows the pace down, and does not open the breaker.
#[tokio::test]
async fn throttling_counts_as_a_429_to_the_gates() {
    let throttled = error(400, "ThrottlingException", "Maximum sending rate exceeded.");
    let ses = Ses::start(Account::in_region("us-east-1"), [throttled]).await;
    let more = "breaker = { failures = 1 }\npace = { initial = \"50ms\", min = \"50ms\", max = \"60s\" }";
    let program = Program::start(&config(ONCE, &[("ses", "us-east-1", &ses, more)]), &ENV).await;
    assert_eq!(sent(&program).await["status"], "failed");
    let upstream = program.get("/v1/upstreams/ses").await.json();
    let gate = |reason: &str| {
        let mut gates = upstream["gates"].as_array().unwrap().iter();
        gates.find(|gate| gate["reason"] == reason).cloned().expect("there is such a gate")
    };
    assert_eq!(gate("circuit_open")["open"], true, "the breaker admits: {upstream}");
    // In milliseconds.
    assert_eq!(gate("pace")["level"], 100, "{upstream}");
}

/// An unanswered request may have been delivered.
#[tokio::test]
async fn a_request_without_an_answer_is_ambiguous() {
    for (answer, code) in [(Answer::hang(), "timeout"), (Answer::reset(), "connection_broken")] {
        for (rule, calls, status) in [("stop", 1, "failed"), ("retry", 2, "completed")] {
            let ses = Ses::start(Account::in_region("us-east-1"), [answer.clone()]).await;
            let lane = format!(
                "retry = {{ attempts = 2, base = \"10ms\", cap = \"10ms\", on_ambiguous = {rule:?} }}"
            );
            let upstream = ("ses", "us-east-1", &ses, "timeout = \"1s\"");
            let program = Program::start(&config(&lane, &[upstream]), &ENV).await;
            let job = sent(&program).await;
            assert_eq!(
                (&job["status"], &job["lastFailure"]["code"]),
                (&json!(status), &json!(code)),
                "{job}"
            );
            assert_eq!(ses.http.requests().len(), calls, "{rule} {code}");
        }
    }
}

/// A machine with a wrong clock signs by the clock of AWS, which every answer reports.
#[tokio::test]
async fn a_wrong_clock_is_corrected_by_the_answer() {
    let ahead = Duration::from_hours(1);
    let ses = Ses::start(Account { ahead, ..Account::in_region("us-east-1") }, []).await;
    let program = Program::start(&config(ONCE, &[("ses", "us-east-1", &ses, "")]), &ENV).await;
    for calls in [2, 3] {
        assert_eq!(sent(&program).await["status"], "completed");
        assert_eq!(ses.http.requests().len(), calls);
    }
}

/// Requests that were in flight when the first one learned the clock are signed again too.
#[tokio::test]
async fn a_wrong_clock_fails_none_of_many_mails_at_once() {
    let ahead = Duration::from_hours(1);
    let ses = Ses::start(Account { ahead, ..Account::in_region("us-east-1") }, []).await;
    let program = Program::start(&config(ONCE, &[("ses", "us-east-1", &ses, "")]), &ENV).await;
    let mails: Vec<_> = (0..20).map(|_| sent(&program)).collect();
    for job in futures_util::future::join_all(mails).await {
        assert_eq!(job["status"], "completed", "{job}");
    }
}

/// SES accepts a message for all recipients or none, SMTP for some: the next upstream sends to the remaining ones.
#[tokio::test]
async fn ses_and_smtp_stand_in_for_each_other() {
    let throttled = error(400, "ThrottlingException", "Maximum sending rate exceeded.");
    let ses = Ses::start(Account::in_region("us-east-1"), [throttled]).await;
    let smtp = SmtpServer::start().await;
    let chain = |chain: &str| {
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[lanes.email]\nchain = {chain}\n{ONCE}\n[upstreams.ses]\nkind = \"ses\"\n\
             region = \"us-east-1\"\nurl = \"{}\"\n[upstreams.smtp]\nkind = \"smtp\"\nurl = \"{}\"\n",
            ses.http.url(),
            smtp.url()
        )
    };
    let program = Program::start(&chain("[\"ses\", \"smtp\"]"), &ENV).await;
    let job = sent(&program).await;
    assert_eq!((&job["status"], &job["upstream"]), (&json!("completed"), &json!("smtp")), "{job}");
    assert_eq!(smtp.accepted(), [["ana@example.org", "bia@example.org", "audit@example.com"]]);
    drop(program);

    smtp.script(
        json!({ "rcpt bia@example.org": ["450 4.2.1 busy"], "rcpt audit@example.com": ["550 5.1.1 no"] }),
    )
    .await;
    let program = Program::start(&chain("[\"smtp\", \"ses\"]"), &ENV).await;
    let job = sent(&program).await;
    assert_eq!(ses.recipients()[1..], [["bia@example.org"]]);
    // The others have it, so the dead letter contains only the permanently refused recipient.
    assert_eq!((&job["status"], &job["lastFailure"]["code"]), (&json!("failed"), &json!("550")), "{job}");
    let fates = job["result"]["body"]["recipients"].as_array().unwrap();
    let fates: Vec<&str> = fates.iter().map(|fate| fate["status"].as_str().unwrap()).collect();
    assert_eq!(fates, ["accepted", "accepted", "refused"]);
}

/// A wrong `url` may answer 200 to anything, or redirect: no mail counts as sent then.
#[tokio::test]
async fn a_response_that_is_not_from_ses_did_not_accept_the_mail() {
    for answer in [Answer::status(200).body("<html>"), Answer::status(302).header("location", "/login")] {
        let ses = Ses::start(Account::in_region("us-east-1"), [answer]).await;
        let program = Program::start(&config(ONCE, &[("ses", "us-east-1", &ses, "")]), &ENV).await;
        let job = sent(&program).await;
        assert_eq!(job["status"], "failed", "{job}");
        let reason = job["lastFailure"]["reason"].as_str().unwrap();
        assert!(reason.ends_with("without a message id: is `url` the endpoint of SES?"), "{reason}");
    }
}
