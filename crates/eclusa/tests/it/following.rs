//! A job's history: as `jobs get` shows it, and as it happens, by server-sent events.

use eclusa::fake::{Answer, FakeUpstream, Latch};
use serde_json::{Value, json};

use super::cli::run_at;
use super::program::Program;
use super::redis_server::RedisServer;

/// The events of a stream: number, name and data.
pub(crate) fn events(text: &str) -> Vec<(u64, String, Value)> {
    let field = |block: &str, name: &str| {
        let found = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
        found.unwrap_or_else(|| panic!("no {name} in {block}")).to_owned()
    };
    let blocks = text.split("\n\n").filter(|block| block.lines().any(|line| line.starts_with("data")));
    let event = |block| {
        let data = serde_json::from_str(&field(block, "data")).unwrap();
        (field(block, "id").parse().unwrap(), field(block, "event"), data)
    };
    blocks.map(event).collect()
}

fn names(events: &[(u64, String, Value)]) -> Vec<(u64, &str)> {
    events.iter().map(|(number, name, _)| (*number, name.as_str())).collect()
}

/// One upstream that is rate limited, and one that answers when the latch opens.
async fn two_providers(latch: &Latch) -> (FakeUpstream, FakeUpstream, String) {
    let replicate = FakeUpstream::start(Answer::status(429)).await.unwrap();
    let fal = FakeUpstream::start(Answer::status(200).body("image").after(latch)).await.unwrap();
    let rules = format!(
        "[lanes.work]\nchain = [\"replicate\", \"fal\"]\n[upstreams.replicate]\nurl = \"{}\"\n\
         [upstreams.fal]\nurl = \"{}\"\n",
        replicate.url(),
        fal.url()
    );
    (replicate, fal, rules)
}

#[tokio::test]
async fn a_job_is_followed_along_its_chain_to_its_end() {
    let latch = Latch::default();
    let (_replicate, fal, rules) = two_providers(&latch).await;
    let program = Program::start(&rules, &[]).await;
    let id = program.enqueue("work", &json!({ "request": { "path": "/a" } })).await;
    let path = format!("/v1/jobs/{id}/events");
    let open = async {
        fal.wait_for(1).await;
        while program.metric("eclusa_waits", &[]).await == 0 {}
        latch.open();
    };
    let (stream, ()) = tokio::join!(program.get(&path), open);
    assert_eq!((stream.status, stream.header("content-type")), (200, "text/event-stream"));
    let reported = events(stream.text());
    let all = [(1, "accepted"), (2, "started"), (3, "failed"), (4, "started"), (5, "completed")];
    assert_eq!(names(&reported), all);
    let statuses: Vec<_> = reported.iter().map(|(_, _, data)| data["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["queued", "processing", "processing", "processing", "completed"]);
    let failed = &reported[2].2;
    assert_eq!(
        (&failed["upstream"], &failed["code"], &failed["detail"]),
        (&json!("replicate"), &json!("429"), &json!("replicate: 429 Too Many Requests"))
    );
    let mut shown = program.get(&format!("/v1/jobs/{id}")).await.json();
    shown.as_object_mut().unwrap().remove("request").expect("only `GET /v1/jobs/{id}` shows the request");
    assert_eq!(reported[4].2["job"], shown);

    let rest = program.send("GET", &path, &[("last-event-id", "3")], "").await;
    assert_eq!(names(&events(rest.text())), all[3..]);
    assert_eq!(program.send("GET", &path, &[("last-event-id", "5")], "").await.status, 204);

    let shown = run_at(&program.url(), &["jobs", "get", &id]).await.ok();
    assert!(shown.contains("replicate ✗ 429 → fal ✓"), "{shown}");
    assert!(shown.contains("failed     replicate: 429 Too Many Requests"), "{shown}");
}

#[tokio::test]
async fn requests_that_cannot_be_followed_are_refused() {
    let program = Program::start(&two_providers(&Latch::default()).await.2, &[]).await;
    let unknown = "/v1/jobs/01a1e20c-835f-7f54-a1de-93085b88f45f/events";
    assert_eq!(program.get(unknown).await.status, 404);
    let wrong = program.send("GET", unknown, &[("last-event-id", "last")], "").await;
    assert_eq!((wrong.status, &wrong.json()["errors"][0]["field"]), (422, &json!("Last-Event-ID")));
}

/// At a process that is not the owner, and in a lane that keeps nothing.
#[tokio::test]
async fn a_job_is_followed_from_another_process_than_the_one_that_decides() {
    let redis = RedisServer::start();
    let latch = Latch::default();
    let (_replicate, fal, rules) = two_providers(&latch).await;
    let rules = rules.replace("[upstreams.replicate]", "keep = { max = 0 }\n[upstreams.replicate]");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\nterm = \"500ms\"\n{rules}",
        redis.url()
    );
    let worker = Program::start_as("worker", &config).await;
    worker.until("/readyz", |answer| answer.status == 200).await;
    let api = Program::start_as("api", &config).await;
    api.until("/readyz", |answer| answer.status == 200).await;
    let owner = &api.get("/v1/health").await.json()["owner"]["id"];
    assert_eq!(*owner, worker.get("/v1/health").await.json()["owner"]["id"], "they agree on the owner");
    let id = api.enqueue("work", &json!({ "request": { "path": "/a" } })).await;
    let open = async {
        fal.wait_for(1).await;
        while worker.metric("eclusa_waits", &[]).await < 2 {
            tokio::task::yield_now().await;
        }
        latch.open();
    };
    let path = format!("/v1/jobs/{id}/events");
    let (stream, ()) = tokio::join!(api.get(&path), open);
    let reported = events(stream.text());
    assert_eq!(reported.last().map(|(number, name, _)| (*number, name.as_str())), Some((5, "completed")));
    assert_eq!(reported[4].2["job"]["result"]["body"], "image");
    assert_eq!(api.get(&path).await.status, 404, "nothing of it is kept");
}
