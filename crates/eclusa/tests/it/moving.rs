//! The examples of the migration guides, run as on their pages.

use std::path::Path;

use eclusa::fake::{Answer, Behaviour, FakeUpstream, ReceivedRequest};
use serde_json::{Value, json};

use crate::mail::SmtpServer;
use crate::program::Program;

/// The config of a page, on a free port and with its store in memory.
async fn start(name: &str, env: &[(&str, &str)]) -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let env = [env, &[("REDIS_URL", "memory:")]].concat();
    Program::start(&text.replace("127.0.0.1:8080", "127.0.0.1:0"), &env).await
}

/// Numbers its answers, as the fake upstream of the pages does.
async fn stand_in(port: u16) -> FakeUpstream {
    let calls = std::sync::atomic::AtomicU64::new(1);
    let answer = move |seen: &ReceivedRequest| {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let body = json!({ "call": call, "path": seen.path, "port": port });
        Answer::status(200).header("content-type", "application/json").body(body.to_string())
    };
    FakeUpstream::start(Behaviour::by(answer)).await.unwrap()
}

#[tokio::test]
async fn the_rate_of_a_celery_task_is_kept_over_all_jobs() {
    let bureau = stand_in(9000).await;
    let program = start("move-from-celery.toml", &[("UPSTREAM_URL", &bureau.url())]).await;
    let job = |cpf: &str| json!({ "id": format!("enrich-{cpf}"), "request": { "path": "/score", "query": format!("cpf={cpf}") } });
    let first = program.enqueue("enrich", &job("52998224725")).await;
    let second = program.enqueue("enrich", &job("11144477735")).await;
    let again = program.post("/v1/lanes/enrich/jobs", &job("52998224725")).await.json();
    assert_eq!(again["jobId"], first, "the same task id");
    let ended = program.finished(&first).await;
    assert_eq!((&ended["status"], &ended["result"]["body"]["call"]), (&json!("completed"), &json!(1)));
    assert_eq!(program.why(&second).await, "rate_limit");
    assert_eq!(bureau.requests().len(), 1);
}

#[tokio::test]
async fn a_request_beyond_the_limit_of_one_deployment_goes_to_the_next() {
    let (first, second) = (stand_in(9001).await, stand_in(9002).await);
    let env = [
        ("FIRST_URL", &*first.url()),
        ("SECOND_URL", &*second.url()),
        ("FIRST_KEY", "a"),
        ("SECOND_KEY", "b"),
        ("FIRST_RPM", "2"),
    ];
    let program = Program::start_example("llm.toml", &env).await;
    let ask = json!({ "model": "m", "max_tokens": 300, "messages": [] });
    let mut ports = Vec::new();
    for _ in 0..3 {
        let answer = program.post("/proxy/chat/v1/chat/completions", &ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        ports.push(answer.json()["port"].clone());
    }
    assert_eq!(ports, [9001, 9001, 9002]);
}

#[tokio::test]
async fn acquired_calls_and_calls_through_the_lane_count_against_one_limit() {
    let portal = stand_in(9000).await;
    let program = start("move-from-redis-limiter.toml", &[("UPSTREAM_URL", &portal.url())]).await;
    for _ in 0..3 {
        assert_eq!(program.get("/proxy/portal/bids").await.status, 200);
    }
    let acquire = async || program.post("/v1/limits/portal/acquire", &json!({})).await;
    let mut leases: Vec<Value> = Vec::new();
    for _ in 0..2 {
        let answer = acquire().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        leases.push(answer.json()["leaseId"].clone());
    }
    for lease in &leases {
        let settle = format!("/v1/limits/leases/{}/settle", lease.as_str().unwrap());
        assert_eq!(program.post(&settle, &json!({ "status": 200 })).await.status, 200);
    }
    for refused in [acquire().await, program.get("/proxy/portal/bids").await] {
        assert_eq!((refused.status, &refused.json()["reason"]), (429, &json!("window")));
        assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|secs| (1..=60).contains(&secs)));
    }
    assert_eq!(portal.requests().len(), 3);
}

#[tokio::test]
async fn a_bullmq_job_id_is_sent_once_and_tenants_take_turns() {
    let smtp = SmtpServer::start().await;
    let program = start("move-from-bullmq.toml", &[("SMTP_URL", &smtp.url())]).await;
    let job = |id: &str, tenant: &str| {
        let to = format!("{id}@example.com");
        let message = json!({ "from": "shop@example.com", "to": to, "subject": "Hi", "text": "Hello" });
        json!({ "id": id, "tenant": tenant, "message": message })
    };
    program.pause("email").await;
    let first = program.enqueue("email", &job("outbox-1", "acme")).await;
    let again = program.post("/v1/lanes/email/jobs", &job("outbox-1", "acme")).await.json();
    assert_eq!(again["jobId"], first, "the same jobId");
    let other = program.enqueue("email", &job("outbox-2", "bolt")).await;
    program.resume("email").await;
    for id in [first, other] {
        assert_eq!(program.finished(&id).await["status"], "completed");
    }
    assert_eq!(smtp.accepted().len(), 2);
}
