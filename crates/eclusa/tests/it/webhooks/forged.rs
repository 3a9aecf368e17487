//! Webhooks that are rejected.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;

use super::{config, job, now, post, provider, recorded, server, signed, signed_at, taken_in};
use crate::program::Program;

#[tokio::test]
async fn forged_old_and_unknown_ones_change_nothing() {
    let (replicate, fal) = tokio::join!(provider(), provider());
    let config = server(&config(&replicate, &fal, "", "", ""))
        .replace("public_url", "max_body = \"1KiB\"\npublic_url");
    let program = Program::start(&config, &[]).await;
    let id = program.enqueue("generate", &job()).await;
    taken_in(&program, &id).await;
    let path = format!("/v1/webhooks/replicate/{id}");
    let body = json!({ "id": "ext-1", "status": "succeeded" }).to_string();
    let now = now();
    let status = async |path: &str, headers: &[(&str, String)], body: &str| {
        let answer = post(&program, path, headers, body).await;
        (answer.status, answer.json()["type"].as_str().unwrap_or_default().to_owned())
    };
    let unauthorized = (401, "urn:eclusa:problem:unauthorized".to_owned());
    assert_eq!(status(&path, &[], &body).await, unauthorized, "not signed");
    assert_eq!(status(&path, &signed("m", "other"), &body).await, unauthorized, "forged");
    assert_eq!(status(&path, &signed_at("m", &body, now - 400), &body).await, unauthorized, "too old");
    assert_eq!(status(&path, &signed_at("m", &body, now + 400), &body).await, unauthorized, "not yet");
    let elsewhere = "/v1/webhooks/replicate/0192f3a4-0000-7000-8000-000000000001";
    assert_eq!(status(elsewhere, &signed("m", &body), &body).await.0, 404, "no such job");
    assert_eq!(status(elsewhere, &[], &body).await.0, 401, "nobody learns which jobs there are");
    assert_eq!(status(&format!("/v1/webhooks/nobody/{id}"), &signed("m", &body), &body).await.0, 404);
    let large = format!("{{\"status\":\"{}\"}}", "x".repeat(2048));
    assert_eq!(status(&path, &signed("m", &large), &large).await.0, 413);
    assert_eq!(program.get(&format!("/v1/jobs/{id}")).await.json()["status"], json!("processing"));
    let answer = post(&program, &path, &signed("m", &body), &body).await;
    assert_eq!((answer.status, answer.json()), recorded(&id, "completed", true));
    let again = post(&program, &path, &signed("m", &body), &body).await;
    assert_eq!((again.status, again.json()), recorded(&id, "completed", false), "replayed");
}

#[tokio::test]
async fn a_token_in_the_address_is_good_for_its_job_and_needs_no_key() {
    let upstream = FakeUpstream::start(Answer::status(200).body(r#"{"id": 7}"#)).await.unwrap();
    let config = format!(
        r#"
[server]
listen = "127.0.0.1:0"
public_url = "https://gw.example/base"
[[auth.keys]]
name = "app"
role = "admin"
key = "0123456789abcdef"
[lanes.generate]
chain = ["fal"]
[upstreams.fal]
url = "{}"
request = {{ path = "/run?hook={{webhook_url}}" }}
async = {{ id = "body:/id", webhook = {{ verify = "token", secret = "a common secret!" }} }}
"#,
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    let key = [("authorization", "Bearer 0123456789abcdef")];
    let enqueue = async || {
        let answer = program.send("POST", "/v1/lanes/generate/jobs", &key, "{\"params\":{}}").await;
        answer.json()["jobId"].as_str().unwrap().to_owned()
    };
    let (first, second) = (enqueue().await, enqueue().await);
    upstream.wait_for(2).await;
    let hook = |at: usize| -> String {
        let query = upstream.requests()[at].query.clone().unwrap();
        let hook = percent_encoding::percent_decode_str(&query).decode_utf8().unwrap().into_owned();
        hook.strip_prefix("hook=https://gw.example/base").unwrap().to_owned()
    };
    let (hooks, other) = ([hook(0), hook(1)], [second.clone(), first.clone()]);
    for (hook, other) in hooks.iter().zip(other) {
        let token = hook.split_once("?token=").unwrap().1;
        let stolen = format!("/v1/webhooks/fal/{other}?token={token}");
        let own = hook.contains(&other);
        let expected = if own { 200 } else { 401 };
        assert_eq!(post(&program, &stolen, &[], "{}").await.status, expected, "{stolen}");
    }
    let bare = hooks[0].split_once('?').unwrap().0;
    assert_eq!(post(&program, bare, &[], "{}").await.status, 401);
    let reported = post(&program, &hooks[0], &[], r#"{"image": 1}"#).await;
    assert_eq!(reported.status, 200, "{}", reported.text());
    let id = reported.json()["jobId"].as_str().unwrap().to_owned();
    let wait = program.send("GET", &format!("/v1/jobs/{id}/wait?timeout=60"), &key, "").await.json();
    assert_eq!((&wait["status"], &wait["result"]["body"]), (&json!("completed"), &json!({ "image": 1 })));
    let log = format!("{:?}", program.log());
    let secrets = ["a common secret!", hooks[1].split_once("?token=").unwrap().1];
    assert!(secrets.iter().all(|secret| !log.contains(secret)), "a secret is in the log");
}
