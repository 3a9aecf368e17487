//! Callbacks when a job ends.

use base64::Engine as _;
use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch, ReceivedRequest};
use ring::hmac;
use serde_json::{Value, json};

use super::program::Program;
use super::redis_server::RedisServer;

const SECRET: &str = "callback-secret-0123456789";

fn config(upstream: &FakeUpstream, hosts: &str, lane: &str) -> String {
    format!(
        "[callbacks]\nhosts = [{hosts}]\nsecret = \"{SECRET}\"\n[lanes.work]\nchain = [\"up\"]\n\
         retry = {{ attempts = 1 }}\n{lane}\n[upstreams.up]\nurl = \"{}\"\n",
        upstream.url()
    )
}

fn header<'a>(seen: &'a ReceivedRequest, name: &str) -> &'a str {
    seen.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// The job in a callback, after checking its signature.
fn reported(seen: &ReceivedRequest) -> Value {
    let signed = [header(seen, "webhook-id"), ".", header(seen, "webhook-timestamp"), "."].concat();
    let message = [signed.as_bytes(), &seen.body].concat();
    let signature = header(seen, "webhook-signature").strip_prefix("v1,").unwrap();
    let signature = base64::prelude::BASE64_STANDARD.decode(signature).unwrap();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), &message, &signature).unwrap();
    serde_json::from_slice(&seen.body).unwrap()
}

fn job(listener: &FakeUpstream, path: &str) -> Value {
    json!({ "request": { "path": path }, "callbackUrl": format!("{}/done?of=1", listener.url()) })
}

#[tokio::test]
async fn the_end_is_reported_signed_and_retried_until_received() {
    let upstream = FakeUpstream::start(Behaviour::by(|seen| match seen.path.as_str() {
        "/broken" => Answer::status(400).body("no"),
        _ => Answer::status(200).body("image"),
    }));
    let upstream = upstream.await.unwrap();
    let deaf = [Answer::status(302).header("location", "/elsewhere"), Answer::status(500)];
    let listener = FakeUpstream::start(Behaviour::script(deaf).then(Answer::status(204))).await.unwrap();
    // The waits between attempts are the real ones: the test sees only the first two.
    let program = Program::start(&config(&upstream, "\"127.0.0.1\"", ""), &[]).await;
    let id = program.enqueue("work", &job(&listener, "/a")).await;
    listener.wait_for(3).await;
    let heard = listener.requests();
    assert!(
        heard.iter().all(|seen| seen.path == "/done" && seen.method == "POST"),
        "no redirect is followed"
    );
    let ids: Vec<_> = heard.iter().map(|seen| header(seen, "webhook-id")).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "a repeated message is the same message");
    let mut shown = program.get(&format!("/v1/jobs/{id}")).await.json();
    shown.as_object_mut().unwrap().remove("request").expect("only `GET /v1/jobs/{id}` shows the request");
    assert_eq!(reported(&heard[2]), shown);
    assert_eq!(reported(&heard[0])["result"]["body"], "image");

    let failed = program.enqueue("work", &job(&listener, "/broken")).await;
    listener.wait_for(4).await;
    let last = reported(&listener.requests()[3]);
    assert_eq!((&last["jobId"], &last["status"]), (&json!(failed), &json!("failed")));
}

#[tokio::test]
async fn a_callback_host_that_is_gone_leaves_a_dead_letter() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let listener = FakeUpstream::start(Answer::status(410)).await.unwrap();
    let program = Program::start(&config(&upstream, "\"127.0.0.1\"", ""), &[]).await;
    let id = program.enqueue("work", &job(&listener, "/a")).await;
    let letters = "/v1/dead-letters?lane=_callbacks";
    let all = program.until(letters, |answer| answer.json()["deadLetters"][0] != Value::Null).await.json();
    let letter = &all["deadLetters"][0];
    assert_eq!(letter["lastFailureCode"], "410");
    let letter = program.get(&format!("/v1/dead-letters/{}", letter["jobId"].as_str().unwrap())).await.json();
    assert_eq!(letter["originalData"]["job"]["jobId"], json!(id));
    assert_eq!(letter["originalData"]["callbackUrl"], json!(format!("{}/done", listener.url())));
}

#[tokio::test]
async fn addresses_that_are_not_allowed_are_refused() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&config(&upstream, "\"app.example.com\"", ""), &[]).await;
    let wrong = program.post("/v1/lanes/work/jobs", &job(&upstream, "/a")).await;
    let errors = &wrong.json()["errors"];
    assert_eq!((wrong.status, &errors[0]["field"]), (422, &json!("callbackUrl")), "{}", wrong.text());
    assert!(errors[0]["problem"].as_str().unwrap().contains("`hosts`"));
    let own = program.post("/v1/lanes/_callbacks/jobs", &json!({ "request": {} })).await;
    assert_eq!(own.status, 409, "{}", own.text());

    let none = config(&upstream, "", "");
    let (_, none) = none.split_once("[lanes.work]").unwrap();
    let program = Program::start(&format!("[lanes.work]{none}"), &[]).await;
    let wrong = program.post("/v1/lanes/work/jobs", &job(&upstream, "/a")).await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.text().contains("no `[callbacks]`"), "{}", wrong.text());
}

/// The name is allowed, but it resolves to this machine.
#[tokio::test]
async fn a_name_that_leads_to_a_private_address_is_not_called() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let listener = FakeUpstream::start(Answer::status(204)).await.unwrap();
    let program = Program::start(&config(&upstream, "\"localhost\"", ""), &[]).await;
    let url = listener.url().replace("127.0.0.1", "localhost");
    let ask = json!({ "request": { "path": "/a" }, "callbackUrl": url });
    program.enqueue("work", &ask).await;
    let retried = program.logged("Job failed, scheduling retry", &[]).await;
    assert!(retried.to_string().contains("only private addresses"), "{retried}");
    assert_eq!(listener.requests().len(), 0);
}

#[tokio::test]
async fn a_callback_survives_the_kill_of_the_process() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let latch = Latch::default();
    let listener = FakeUpstream::start(Answer::status(204).after(&latch)).await.unwrap();
    let config = config(&upstream, "\"127.0.0.1\"", "keep = { max = 0 }") + "[workers]\nlease = \"1s\"\n";
    let program = Program::start(&config, &[]).await;
    let id = program.enqueue("work", &job(&listener, "/a")).await;
    listener.wait_for(1).await;
    let dir = program.kill().await;
    latch.open();
    let _again = Program::start_in(dir, &config, &[]).await;
    listener.wait_for(2).await;
    assert_eq!(reported(&listener.requests()[1])["jobId"], json!(id));
}

#[tokio::test]
async fn one_process_takes_the_job_in_and_another_calls_back() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let listener = FakeUpstream::start(Answer::status(204)).await.unwrap();
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\nterm = \"500ms\"\n{}",
        redis.url(),
        config(&upstream, "\"127.0.0.1\"", "")
    );
    let api = Program::start_as("api", &config).await;
    api.until("/readyz", |answer| answer.status == 200).await;
    let _worker = Program::start_as("worker", &config).await;
    let id = api.enqueue("work", &job(&listener, "/a")).await;
    listener.wait_for(1).await;
    assert_eq!(reported(&listener.requests()[0])["jobId"], json!(id));
}
