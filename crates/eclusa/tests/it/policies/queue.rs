//! Queue lanes: a line waits for its own bucket and does not block the others.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::{Value, json};

use super::{COMPANY, DICT, PERSON, is_nowhere, settles_to, start};

fn job(payer: &str) -> Value {
    json!({ "request": { "path": "/entries/a@b.c", "headers": { "PI-PayerId": payer } } })
}

#[tokio::test]
async fn jobs_are_charged_by_their_answers_and_wait_for_their_own_bucket() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    for _ in 0..5 {
        let id = program.enqueue("slow", &job(PERSON)).await;
        program.ended(&id).await;
    }
    settles_to(&program, "USER", PERSON, 0).await;
    let waiting = program.enqueue("slow", &job(PERSON)).await;
    let passing = program.enqueue("slow", &job(COMPANY)).await;
    program.ended(&passing).await;
    assert_eq!(program.why(&waiting).await, "rate_limit");
    let why = program.get(&format!("/v1/jobs/{waiting}/why")).await.json();
    let balance = program.get(&format!("/v1/policies/USER?scope={PERSON}")).await.json();
    assert_eq!((&why["policy"], &why["scope"]), (&json!("USER"), &balance["scope"]));
    let shut = |gate: &&Value| gate["open"] == false;
    let gate = why["gates"].as_array().unwrap().iter().find(shut).unwrap();
    assert_eq!(
        (&gate["upstream"], &gate["policy"], &gate["scope"]),
        (&why["upstream"], &why["policy"], &why["scope"])
    );
    assert!(why["until"].is_string() && gate["until"] == why["until"], "{why}");
    settles_to(&program, "USER", COMPANY, 980).await;
    assert_eq!(upstream.requests().len(), 6);
    is_nowhere(&program, PERSON);
}

#[tokio::test]
async fn a_request_without_the_scope_value_is_refused_at_intake() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    let answer = program.post("/v1/lanes/slow/jobs", &json!({ "request": { "path": "/entries/a" } })).await;
    assert_eq!(
        (answer.status, answer.json()["errors"][0]["field"].as_str()),
        (422, Some("header.pi-payerid"))
    );
    let batch = json!([{ "request": { "path": "/entries/a" } }, job(PERSON)]);
    let answers = program.post("/v1/lanes/slow/jobs/batch", &batch).await.json();
    assert_eq!((&answers[0]["status"], &answers[1]["status"]), (&json!(422), &json!("queued")));
}

/// The tokens of a job are stored with it, and so is the key of its hash.
#[tokio::test]
async fn a_restart_keeps_balances_and_the_buckets_of_waiting_jobs() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let config = |url: &str| {
        format!(
            "[store]\nurl = \"embedded:./data\"\n[lanes.slow]\nchain = [\"dict\"]\nretry = {{ attempts = 1 }}\n\
             [upstreams.dict]\nurl = \"{url}\"\n{DICT}\n"
        )
    };
    let program = super::Program::start(&config(&upstream.url()), &[]).await;
    for _ in 0..5 {
        let id = program.enqueue("slow", &job(PERSON)).await;
        program.ended(&id).await;
    }
    let waiting = program.enqueue("slow", &job(PERSON)).await;
    let (_, dir) = program.stop().await;
    let program = super::Program::start_in(dir, &config(&upstream.url()), &[]).await;
    settles_to(&program, "USER", PERSON, 0).await;
    assert_eq!(program.why(&waiting).await, "rate_limit");
}
