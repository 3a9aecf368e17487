//! A lane that keeps no ended jobs: a waiting caller still gets the result.

use eclusa::fake::{Answer, FakeUpstream, Latch};
use serde_json::{Value, json};

use super::cli::run_at;
use super::program::Program;

const JOBS: &str = "/v1/lanes/mail/jobs";

async fn start(answer: Answer) -> (Program, FakeUpstream) {
    let upstream = FakeUpstream::start(answer).await.unwrap();
    let config = format!(
        "[lanes.mail]\nchain = [\"up\"]\nkeep = {{ max = 0 }}\nretry = {{ attempts = 1 }}\n\
         cache = {{ key = \"{{query.same}}\", ttl = \"60s\" }}\n[upstreams.up]\nurl = \"{}\"\n",
        upstream.url()
    );
    (Program::start(&config, &[]).await, upstream)
}

async fn put_and_wait(program: &Program, request: Value) -> Value {
    let body = json!({ "request": request }).to_string();
    let answer = program.send("POST", JOBS, &[("prefer", "wait=60")], &body).await;
    assert_eq!((answer.status, answer.header("preference-applied")), (200, "wait=60"), "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_proxied_request_gets_its_answer() {
    let (program, _upstream) = start(Answer::status(404).body("unknown")).await;
    let waited = program.send("GET", "/proxy/mail/a", &[("prefer", "wait=60")], "").await;
    assert_eq!((waited.status, waited.text()), (404, "unknown"));
    assert_eq!((waited.header("eclusa-upstream"), waited.header("eclusa-attempts")), ("up", "1"));
    let id = waited.header("eclusa-job-id");
    assert_eq!(program.get(&format!("/v1/jobs/{id}")).await.status, 404, "nothing of it is kept");
}

#[tokio::test]
async fn a_job_by_json_is_answered_whole() {
    let (program, _upstream) = start(Answer::status(200).body("sent")).await;
    let job = put_and_wait(&program, json!({ "path": "/a" })).await;
    assert_eq!((&job["status"], &job["result"]["body"]), (&json!("completed"), &json!("sent")));
    let events: Vec<&Value> = job["timeline"].as_array().unwrap().iter().map(|line| &line["event"]).collect();
    assert_eq!(events, ["accepted", "started", "completed"]);
}

#[tokio::test]
async fn equal_requests_get_the_one_answer() {
    let latch = Latch::default();
    let (program, upstream) = start(Answer::status(200).body("once").after(&latch)).await;
    program.pause("mail").await;
    let ask = || put_and_wait(&program, json!({ "query": "same=1" }));
    let resume = async {
        while program.get("/v1/lanes/mail").await.json()["queued"]["normal"] != 2 {}
        program.resume("mail").await;
        latch.open();
    };
    let (first, second, ()) = tokio::join!(ask(), ask(), resume);
    for job in [&first, &second] {
        assert_eq!(job["result"]["body"], "once", "{job}");
    }
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn cancelling_a_job_returns_it() {
    let (program, _upstream) = start(Answer::status(200)).await;
    let id = program.enqueue("mail", &json!({ "delay": "1h", "request": {} })).await;
    let cancelled = program.send("DELETE", &format!("/v1/jobs/{id}"), &[], "").await;
    assert_eq!((cancelled.status, &cancelled.json()["status"]), (200, &json!("cancelled")));
    assert_eq!(program.send("DELETE", &format!("/v1/jobs/{id}"), &[], "").await.status, 404);
}

#[tokio::test]
async fn send_with_wait_prints_the_answer() {
    let (program, _upstream) = start(Answer::status(200).body("sent")).await;
    let ran = run_at(&program.url(), &["send", "mail", "/a", "--wait", "30"]).await;
    let lines: Vec<&str> = ran.err.lines().collect();
    assert!(lines[0].starts_with("Job ") && lines[0].ends_with(" in mail"), "{ran:?}");
    assert_eq!(lines[1..], ["200 from up after 1 attempt"], "{ran:?}");
    assert_eq!(ran.ok(), "sent\n");
}
