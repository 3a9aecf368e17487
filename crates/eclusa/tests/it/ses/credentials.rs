//! Where the credentials come from.

use std::sync::Arc;

use eclusa::fake::{Answer, Behaviour, FakeUpstream, ReceivedRequest};
use serde_json::json;
use tempfile::TempDir;

use super::server::{Account, ENV, KEY_ID, SECRET, Ses};
use super::{ONCE, config, sent};
use crate::program::Program;

fn account(id: &str, secret: &str, token: Option<&str>) -> Account {
    let (id, secret, token) = (id.to_owned(), secret.to_owned(), token.map(str::to_owned));
    Account { id, secret, token, ..Account::in_region("us-east-1") }
}

fn write(dir: &TempDir, id: &str, secret: &str) {
    let text = format!(
        "[other]\naws_access_key_id = X\n\n[mail]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n"
    );
    // As rotation tools do it: never a partial file.
    std::fs::write(dir.path().join("next"), text).unwrap();
    std::fs::rename(dir.path().join("next"), dir.path().join("aws.ini")).unwrap();
}

#[tokio::test]
async fn a_file_is_read_again_when_it_changes() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    write(&dir, "AKIDFIRST", "first");
    let ses = Ses::start(account("AKIDFIRST", "first", None), []).await;
    let more = "credentials_file = \"aws.ini\"\nprofile = \"mail\"";
    let config = config(ONCE, &[("ses", "us-east-1", &ses, more)]);
    let program = Program::start_in(dir.clone(), &config, &[]).await;
    assert_eq!(sent(&program).await["status"], "completed");

    // The old key expires at the moment the new one becomes valid; no mail is lost.
    write(&dir, "AKIDSECOND", "second");
    ses.knows(account("AKIDSECOND", "second", None));
    assert_eq!(sent(&program).await["status"], "completed");

    // An invalid file changes nothing.
    std::fs::write(dir.path().join("aws.ini"), "[mail]\n").unwrap();
    assert_eq!(sent(&program).await["status"], "completed");
    let log = format!("{:?}", program.log());
    assert!(!log.contains("AKIDSECOND") && !log.contains("\"second\""), "{log}");
}

#[tokio::test]
async fn the_environment_may_hold_a_session_token() {
    let ses = Ses::start(account(KEY_ID, SECRET, Some("session-token")), []).await;
    let config = config(ONCE, &[("ses", "us-east-1", &ses, "")]);
    let [id, secret] = ENV;
    let program = Program::start(&config, &[id, secret, ("AWS_SESSION_TOKEN", "session-token")]).await;
    assert_eq!(sent(&program).await["status"], "completed");
    assert!(!format!("{:?}", program.log()).contains("session-token"));
}

fn given(n: usize, seconds: i64) -> Answer {
    let now = i64::try_from(eclusa_core::Clock::now(&eclusa::SystemClock).as_millis()).unwrap();
    let expiration = jiff::Timestamp::from_millisecond(now + seconds * 1000).unwrap().to_string();
    let body = json!({
        "Code": "Success", "AccessKeyId": format!("AKID{n}"), "SecretAccessKey": format!("secret-{n}"),
        "Token": format!("token-{n}"), "Expiration": expiration,
    });
    Answer::status(200).body(body.to_string())
}

/// Credentials are requested once, and again when AWS rejects them.
#[tokio::test]
async fn a_container_gives_credentials() {
    let given_by = |seen: &ReceivedRequest| match (
        seen.path.as_str(),
        seen.headers["authorization"].to_str().unwrap(),
    ) {
        ("/v1/credentials", "container-token") => None,
        other => Some(Answer::status(401).body(format!("{other:?}"))),
    };
    let count = std::sync::atomic::AtomicUsize::new(1);
    let rule = move |seen: &ReceivedRequest| {
        given_by(seen)
            .unwrap_or_else(|| given(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed), 3600))
    };
    let service = FakeUpstream::start(Behaviour::by(rule)).await.unwrap();
    let ses = Ses::start(account("AKID1", "secret-1", Some("token-1")), []).await;
    let url = format!("{}/v1/credentials", service.url());
    let env = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-token"),
    ];
    let program = Program::start(&config(ONCE, &[("ses", "us-east-1", &ses, "")]), &env).await;
    for _ in 0..2 {
        assert_eq!(sent(&program).await["status"], "completed");
    }
    assert_eq!(service.requests().len(), 1);

    ses.knows(account("AKID2", "secret-2", Some("token-2")));
    assert_eq!(sent(&program).await["status"], "completed");
    assert_eq!(service.requests().len(), 2);
    let log = format!("{:?}", program.log());
    assert!(!log.contains("container-token") && !log.contains("secret-"), "{log}");
}

/// `IMDSv2`: a token is requested first.
#[tokio::test]
async fn an_instance_gives_the_credentials_of_its_role() {
    let rule = |seen: &ReceivedRequest| {
        let token = seen.headers.get("x-aws-ec2-metadata-token").is_some_and(|token| token == "imds-token");
        let ttl = seen.headers.contains_key("x-aws-ec2-metadata-token-ttl-seconds");
        match (seen.method.as_str(), seen.path.as_str()) {
            ("PUT", "/latest/api/token") if ttl => Answer::status(200).body("imds-token"),
            ("GET", "/latest/meta-data/iam/security-credentials/") if token => {
                Answer::status(200).body("mailer\n")
            }
            ("GET", "/latest/meta-data/iam/security-credentials/mailer") if token => given(1, 60),
            _ => Answer::status(401),
        }
    };
    let service = FakeUpstream::start(Behaviour::by(rule)).await.unwrap();
    let ses = Ses::start(account("AKID1", "secret-1", Some("token-1")), []).await;
    let config = config(ONCE, &[("ses", "us-east-1", &ses, "credentials = \"instance\"")]);
    let url = service.url();
    let program = Program::start(&config, &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.as_str())]).await;
    assert_eq!(sent(&program).await["status"], "completed");
}

/// Mail waits for credentials and is not lost without them.
#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    let service =
        FakeUpstream::start(Behaviour::script([Answer::status(500), given(1, 3600)])).await.unwrap();
    let ses = Ses::start(account("AKID1", "secret-1", Some("token-1")), []).await;
    let url = format!("{}/v1/credentials", service.url());
    let retry = "retry = { attempts = 2, base = \"1500ms\", cap = \"1500ms\", jitter = 0.0 }";
    let program = Program::start(
        &config(retry, &[("ses", "us-east-1", &ses, "")]),
        &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str())],
    )
    .await;
    let job = sent(&program).await;
    assert_eq!((&job["status"], &job["attempts"]), (&json!("completed"), &json!(2)), "{job}");
    assert!(job["lastFailure"]["reason"].as_str().unwrap().starts_with("no credentials: "), "{job}");
    assert_eq!(ses.http.requests().len(), 1);
}

/// Problems that are known at startup are reported then.
#[tokio::test]
async fn missing_credentials_are_a_mistake_in_the_config() {
    let ses = Ses::start(Account::in_region("us-east-1"), []).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("empty.ini"), "[default]\naws_access_key_id = AKIDHALF\n").unwrap();
    let [id, secret] = ENV;
    for (more, env, said) in [
        ("", &[][..], "has no AWS credentials: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` are not set"),
        ("", &[id], "`AWS_ACCESS_KEY_ID` is set, `AWS_SECRET_ACCESS_KEY` is not"),
        ("", &[secret], "`AWS_SECRET_ACCESS_KEY` is set, `AWS_ACCESS_KEY_ID` is not"),
        ("credentials_file = \"none.ini\"", &[], "names a file that cannot be read"),
        ("credentials_file = \"empty.ini\"", &[], "has no `aws_secret_access_key` in profile `default`"),
        ("credentials_file = \"empty.ini\"\nprofile = \"mail\"", &[], "has no profile `mail`"),
    ] {
        let config = config(ONCE, &[("ses", "us-east-1", &ses, more)]);
        let (code, reported) = Program::refused(&dir, &config, env).await;
        assert_eq!(code, Some(6), "{reported}");
        assert!(reported.contains(said) && reported.contains("upstreams.ses"), "{reported}");
        assert!(!reported.contains(SECRET) && !reported.contains("AKIDHALF"), "{reported}");
    }
}
