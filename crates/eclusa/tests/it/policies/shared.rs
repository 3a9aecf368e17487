//! Two processes on one Redis, one asking the other: calls of either count for both.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;

use super::super::limits::acquire;
use super::super::program::Program;
use super::super::redis_server::RedisServer;
use super::{COMPANY, DICT, PERSON, balance, is_nowhere, lookup, settles_to};

async fn start(redis: &RedisServer, url: &str) -> Program {
    let config = format!(
        "[store]\nurl = \"{}\"\n[workers]\nlease = \"10m\"\n[lanes.fast]\nmode = \"direct\"\nchain = [\"dict\"]\n\
         [upstreams.dict]\nurl = \"{url}\"\n{DICT}\n",
        redis.url()
    );
    let program = Program::start(&config, &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program
}

/// The owner, and a process that asks it.
async fn two(redis: &RedisServer, url: &str) -> (Program, Program) {
    let owner = start(redis, url).await;
    let asker = start(redis, url).await;
    let instances = asker.get("/v1/health").await.json();
    let of_first = owner.get("/v1/health").await.json()["owner"]["id"].clone();
    assert!(of_first.is_string() && instances["owner"]["id"] == of_first, "{instances}");
    (owner, asker)
}

#[tokio::test]
async fn a_scanner_is_stopped_wherever_it_asks() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let (owner, asker) = two(&redis, &upstream.url()).await;
    for (guess, program) in [&owner, &asker, &asker, &owner, &asker].into_iter().enumerate() {
        assert_eq!(lookup(program, PERSON, &format!("E{guess}")).await.status, 404, "{guess}");
    }
    for program in [&asker, &owner] {
        settles_to(program, "USER", PERSON, 0).await;
        settles_to(program, "PSP", "", 5_000 - 5 * 3).await;
        let denied = lookup(program, PERSON, "E5").await;
        assert_eq!((denied.status, &denied.json()["violated-policies"]), (429, &json!(["USER"])));
        let wait: u32 = denied.header("retry-after").parse().unwrap();
        assert!((86_000..=86_400).contains(&wait), "20 tokens a day: {wait}");
        assert!(denied.header("ratelimit").starts_with("\"USER\";r=0;t="), "{}", denied.header("ratelimit"));
        assert_eq!(denied.header("ratelimit-policy"), "\"USER\";q=100;w=432000");
        is_nowhere(program, PERSON);
    }
    assert_eq!(lookup(&asker, COMPANY, "E6").await.status, 404, "others are not");
    assert_eq!(upstream.requests().len(), 6);
}

#[tokio::test]
async fn tokens_held_by_one_process_cannot_be_taken_by_another() {
    let redis = RedisServer::start();
    let (owner, asker) = two(&redis, "http://127.0.0.1:9").await;
    let call =
        json!({ "request": { "path": "/entries/a", "headers": { "PI-PayerId": PERSON } }, "hold": 60 });
    let held = acquire(&asker, "dict", &call).await;
    assert_eq!(held.status, 200, "{}", held.text());
    for program in [&owner, &asker] {
        assert_eq!(balance(program, "USER", PERSON).await, 40);
        assert_eq!(acquire(program, "dict", &call).await.status, 429);
    }
    let path = format!("/v1/limits/leases/{}/settle", held.json()["leaseId"].as_str().unwrap());
    assert_eq!(owner.post(&path, &json!({ "status": 404 })).await.status, 200, "settled elsewhere");
    for program in [&owner, &asker] {
        assert_eq!(balance(program, "USER", PERSON).await, 80);
    }
}

#[tokio::test]
async fn a_payment_counts_once_whichever_process_hears_of_it() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let (owner, asker) = two(&redis, &upstream.url()).await;
    lookup(&owner, COMPANY, "E1").await;
    settles_to(&asker, "USER", COMPANY, 980).await;
    settles_to(&asker, "PSP", "", 4_997).await;
    let event = json!({ "event": "payment", "correlationId": "E1" });
    for (program, credited, repeated) in [(&asker, 3.0, false), (&owner, 0.0, true), (&asker, 0.0, true)] {
        let reported = program.post("/v1/policies/credits", &event).await;
        assert_eq!(
            (reported.status, reported.json()),
            (200, json!({ "credited": credited, "repeated": repeated }))
        );
    }
    for program in [&owner, &asker] {
        assert_eq!(balance(program, "USER", COMPANY).await, 982);
        assert_eq!(balance(program, "PSP", "").await, 4_998);
    }
    let unknown = json!({ "event": "payment", "correlationId": "E2" });
    assert_eq!(asker.post("/v1/policies/credits", &unknown).await.status, 404);
}
