//! Dead letters over HTTP: edited, exported, waited for, and replayed in bulk while processes are killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::{Value, json};

use crate::program::Program;
use crate::redis_server::RedisServer;
use crate::shared::start;

/// An upstream that refuses everything until it is repaired.
struct Flaky {
    upstream: FakeUpstream,
    repaired: Arc<AtomicBool>,
}

impl Flaky {
    async fn start(refusal: u16) -> Self {
        let repaired = Arc::new(AtomicBool::new(false));
        let well = repaired.clone();
        let answer = move || Answer::status(if well.load(Ordering::Relaxed) { 200 } else { refusal });
        let upstream = FakeUpstream::start(Behaviour::by(move |_| answer())).await.unwrap();
        Self { upstream, repaired }
    }

    fn repair(&self) {
        self.repaired.store(true, Ordering::Relaxed);
    }

    fn config(&self, lane: &str) -> String {
        format!(
            "[lanes.work]\nchain = [\"up\"]\nretry = {{ attempts = 1 }}\n{lane}\n\
             [upstreams.up]\nurl = \"{}\"\nmax_concurrent = 10\n",
            self.upstream.url()
        )
    }
}

/// Makes `count` dead letters.
async fn bury(program: &Program, letters: usize) {
    for first in (0..letters).step_by(500) {
        let job = |n: usize| json!({ "tenant": "acme", "request": { "path": format!("/l/{n}") } });
        let jobs: Vec<Value> = (first..letters.min(first + 500)).map(job).collect();
        let answer = program.post("/v1/lanes/work/jobs/batch", &json!(jobs)).await;
        assert!((200..300).contains(&answer.status), "{}", answer.text());
    }
    let stats = |answer: &crate::program::Answer| answer.json()["total"] == letters;
    program.until("/v1/dead-letters/stats", stats).await;
}

async fn one_letter(program: &Program, request: Value) -> String {
    let id = program.enqueue("work", &json!({ "request": request })).await;
    assert_eq!(program.ended(&id).await["status"], "failed");
    id
}

#[tokio::test]
async fn an_edit_is_checked_like_a_new_job_and_masks_are_never_sent() {
    let flaky = Flaky::start(400).await;
    let keys = r#"
        [[auth.keys]]
        name = "ops"
        role = "operator"
        key = "0123456789abcdef-ops"
        "#;
    let lane = "mask = [\"query.cpf\", \"body./email\"]\nvalidate = { \"query.cpf\" = \"cpf\" }";
    let program = Program::start(&format!("{}{keys}", flaky.config(lane)), &[]).await;
    let bearer = [("authorization", "Bearer 0123456789abcdef-ops"), ("content-type", "application/json")];
    let ask = async |method: &str, path: &str, body: &Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        program.send(method, path, &bearer, &body).await
    };
    let request = json!({
        "path": "/a", "query": "cpf=52998224725", "headers": { "x-api-key": "secret" },
        "body": { "email": "a@b.c", "n": 1 },
    });
    let job = ask("POST", "/v1/lanes/work/jobs", &json!({ "id": "o-1", "request": request })).await.json();
    let id = job["jobId"].as_str().unwrap();
    ask("GET", &format!("/v1/jobs/{id}/wait?timeout=60"), &Value::Null).await;
    let path = format!("/v1/dead-letters/{id}");
    let replay = format!("{path}/replay");
    let shown = ask("GET", &path, &Value::Null).await.json()["originalData"].clone();
    assert_eq!(shown["request"]["body"]["email"], "***");

    let field = async |patch: Value| {
        let answer = ask("POST", &replay, &patch).await;
        assert_eq!(answer.status, 422, "{}", answer.text());
        answer.json()["errors"][0]["field"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(field(json!({ "request": { "query": "cpf=1" } })).await, "query.cpf");
    assert_eq!(field(json!({ "request": { "query": "cpf=***" } })).await, "request.query");
    assert_eq!(field(json!({ "request": { "path": "/../x" } })).await, "request.path");
    let masked = json!({ "request": { "headers": { "X-Api-Key": "***" } } });
    assert_eq!(field(masked).await, "request.headers.x-api-key", "names of headers have no case");
    let numbers = json!({ "request": { "headers": { "x-a": ["b", 7] } } });
    assert_eq!(field(numbers).await, "request.headers.x-a");
    assert_eq!(field(json!({ "tenant": "other" })).await, "tenant");
    assert_eq!(ask("GET", &path, &Value::Null).await.status, 200, "the letter stays");

    flaky.repair();
    let mut whole = shown.clone();
    whole["request"]["path"] = json!("/b");
    whole["request"]["body"]["n"] = json!(2);
    let answer = ask("POST", &replay, &whole).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let job = answer.json()["jobId"].as_str().unwrap().to_owned();
    let ended = ask("GET", &format!("/v1/jobs/{job}/wait?timeout=60"), &Value::Null).await.json();
    assert_eq!((&ended["status"], &ended["id"]), (&json!("completed"), &json!("o-1")));
    let sent = flaky.upstream.requests().pop().unwrap();
    assert_eq!((sent.path.as_str(), sent.query.as_deref()), ("/b", Some("cpf=52998224725")));
    assert_eq!(serde_json::from_slice::<Value>(&sent.body).unwrap(), json!({ "email": "a@b.c", "n": 2 }));
    assert_eq!(sent.headers["x-api-key"], "secret");
    program.logged("Dead letter replayed", &[("replayOf", id), ("by", "ops"), ("edited", "true")]).await;
    assert_eq!(ask("GET", &path, &Value::Null).await.status, 404, "it succeeded");
}

#[tokio::test]
async fn a_replay_without_changes_sends_the_same_bytes() {
    let flaky = Flaky::start(400).await;
    let program = Program::start(&flaky.config(""), &[]).await;
    let body = "{\"b\" : 1,\n  \"a\": 2}";
    let id = one_letter(&program, json!({ "method": "PUT", "path": "/a", "body": body })).await;
    flaky.repair();
    let patch = json!({ "request": { "path": "/b" } });
    let answer = program.post(&format!("/v1/dead-letters/{id}/replay"), &patch).await.json();
    program.ended(answer["jobId"].as_str().unwrap()).await;
    let [first, second] = flaky.upstream.requests().try_into().unwrap();
    assert_eq!((first.body, first.method), (second.body, second.method));
    assert_eq!(second.path, "/b");
}

#[tokio::test]
async fn an_export_has_all_pages_and_a_purge_by_age_needs_a_filter() {
    let flaky = Flaky::start(400).await;
    let program = Program::start(&flaky.config(""), &[]).await;
    bury(&program, 1_230).await;
    let export = program.get("/v1/dead-letters/export?tenant=acme&until=0s").await;
    assert_eq!(export.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> = export.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut paths: Vec<&str> =
        lines.iter().map(|line| line["originalData"]["request"]["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!((lines.len(), paths.len()), (1_230, 1_230));
    assert_eq!(program.send("DELETE", "/v1/dead-letters", &[], "").await.status, 422);
    let dry = program.send("DELETE", "/v1/dead-letters?code=4xx&dryRun=true", &[], "").await.json();
    assert_eq!(dry, json!({ "matched": 1_230, "purged": 0, "dryRun": true }));
    let purged = program.send("DELETE", "/v1/dead-letters?code=4xx", &[], "").await.json();
    assert_eq!(purged["purged"], 1_000);
    let next = format!("/v1/dead-letters?code=4xx&cursor={}", purged["cursor"].as_str().unwrap());
    let rest = program.send("DELETE", &next, &[], "").await.json();
    assert_eq!((&rest["purged"], &rest["cursor"]), (&json!(230), &Value::Null));
    assert_eq!(
        program.metric("eclusa_dead_letters_removed_total", &[("lane", "work"), ("reason", "purged")]).await,
        1_230
    );
}

#[tokio::test]
async fn an_awaited_refusal_leaves_no_letter_if_answers_is_off() {
    let flaky = Flaky::start(404).await;
    let program = Program::start(&flaky.config("dead_letters = { answers = false }"), &[]).await;
    let waited = program.send("GET", "/proxy/work/a", &[("prefer", "wait=30")], "").await;
    assert_eq!(waited.status, 404);
    let job = waited.header("eclusa-job-id").to_owned();
    assert_eq!(program.get(&format!("/v1/jobs/{job}")).await.json()["status"], "failed");
    let body = json!({ "request": { "path": "/b" } }).to_string();
    program.send("POST", "/v1/lanes/work/jobs", &[("prefer", "wait=30")], &body).await;
    let total = async || program.get("/v1/dead-letters/stats").await.json()["total"].clone();
    assert_eq!(total().await, 0);
    one_letter(&program, json!({ "path": "/c" })).await;
    assert_eq!(total().await, 1, "nobody waited for that one");
}

#[tokio::test]
async fn letters_are_sent_again_by_themselves() {
    let flaky = Flaky::start(503).await;
    let redrive = "dead_letters = { redrive = { after = \"300ms\", times = 50, codes = [\"5xx\"] } }";
    let program = Program::start(&flaky.config(redrive), &[]).await;
    bury(&program, 20).await;
    program.logged("Dead letter replayed", &[("by", "redrive")]).await;
    flaky.repair();
    program.until("/v1/dead-letters/stats", |answer| answer.json()["total"] == 0).await;
    let seen = flaky.upstream.requests().len();
    assert!(seen >= 40, "{seen}");
}

/// How often each dead letter was sent since the upstream was repaired, once all were.
async fn replayed_all(
    flaky: &Flaky,
    before: usize,
    program: &Program,
    id: &str,
    letters: usize,
) -> BTreeMap<String, u32> {
    let path = format!("/v1/dead-letters/replays/{id}");
    let done = program.until(&path, |answer| answer.json()["status"] == "done").await.json();
    let numbers = ["total", "replayed", "failed", "running", "remaining"].map(|name| done[name].clone());
    assert_eq!(numbers, [letters, letters, 0, 0, 0].map(|number| json!(number)));
    assert_eq!(program.get("/v1/dead-letters/stats").await.json()["total"], 0);
    let mut sent = BTreeMap::new();
    for seen in &flaky.upstream.requests()[before..] {
        *sent.entry(seen.path.clone()).or_default() += 1;
    }
    assert_eq!(sent.len(), letters, "every letter was sent");
    sent
}

#[tokio::test]
async fn a_bulk_replay_survives_the_kill_of_its_process() {
    const LETTERS: usize = 2_000;
    let flaky = Flaky::start(400).await;
    let config = flaky.config("");
    let program = Program::start(&config, &[]).await;
    bury(&program, LETTERS).await;
    flaky.repair();
    let before = flaky.upstream.requests().len();
    let begun = program.post("/v1/dead-letters/replay", &json!({ "filter": { "code": "400" } })).await;
    assert_eq!(begun.status, 202, "{}", begun.text());
    let id = begun.json()["replayId"].as_str().unwrap().to_owned();
    flaky.upstream.wait_for((before + LETTERS / 3) as u64).await;
    let dir = program.kill().await;
    let program = Program::start_in(dir, &config, &[]).await;
    let sent = replayed_all(&flaky, before, &program, &id, LETTERS).await;
    // Calls in flight when the process was killed may have arrived, and are made again.
    let twice = sent.values().filter(|times| **times > 1).count();
    assert!(twice <= 10 && sent.values().all(|times| *times <= 2), "{twice}");
}

#[tokio::test]
async fn a_bulk_replay_continues_at_the_next_owner() {
    const LETTERS: usize = 600;
    let redis = RedisServer::start();
    let flaky = Flaky::start(400).await;
    let config = flaky.config("");
    let owner = start(&redis, &config).await;
    let other = start(&redis, &config).await;
    bury(&owner, LETTERS).await;
    flaky.repair();
    let before = flaky.upstream.requests().len();
    let begun = other.post("/v1/dead-letters/replay", &json!({})).await;
    assert_eq!(begun.status, 202, "{}", begun.text());
    let id = begun.json()["replayId"].as_str().unwrap().to_owned();
    flaky.upstream.wait_for((before + LETTERS / 3) as u64).await;
    drop(owner.kill().await);
    let sent = replayed_all(&flaky, before, &other, &id, LETTERS).await;
    assert!(sent.values().all(|times| *times <= 2));
}
