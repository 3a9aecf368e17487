//! SIGHUP: a changed config takes effect at run time, completely or not at all.

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::{Value, json};

use super::program::Program;
use super::redis_server::RedisServer;

/// Lanes with these rules, all to one upstream.
fn lanes(upstream: &FakeUpstream, lanes: &[(&str, &str)]) -> String {
    let lanes: Vec<_> =
        lanes.iter().map(|(name, rules)| format!("[lanes.{name}]\nchain = [\"up\"]\n{rules}\n")).collect();
    format!("{}[upstreams.up]\nurl = \"{}\"\n", lanes.concat(), upstream.url())
}

fn job() -> Value {
    json!({ "request": { "path": "/" } })
}

async fn a_lane_is_added_changed_and_removed(store: &str) {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = |of: &[(&str, &str)]| format!("{store}\n{}", lanes(&upstream, of));
    let program = Program::start(&config(&[("old", ""), ("stays", "")]), &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program.pause("old").await;
    let waiting = program.enqueue("old", &job()).await;
    assert_eq!(program.why(&waiting).await, "paused");

    program.reload(&config(&[("stays", "capacity = 1"), ("new", "")]));
    let changes = "lanes added: new; lanes removed: old; lanes changed: stays (capacity)";
    program.logged("The config was reloaded", &[("changes", changes)]).await;
    for lane in ["new", "stays"] {
        let id = program.enqueue(lane, &job()).await;
        assert_eq!(program.ended(&id).await["status"], "completed", "{lane}");
    }
    program.pause("stays").await;
    program.enqueue("stays", &job()).await;
    assert_eq!(program.post("/v1/lanes/stays/jobs", &job()).await.status, 503, "it holds one job now");
    assert_eq!(program.post("/v1/lanes/old/jobs", &job()).await.status, 404);
    assert_eq!(program.why(&waiting).await, "rules_gone");

    program.reload(&config(&[("old", ""), ("stays", "")]));
    program
        .logged(
            "The config was reloaded",
            &[("changes", "lanes added: old; lanes removed: new; lanes changed: stays (capacity)")],
        )
        .await;
    assert_eq!(program.why(&waiting).await, "paused", "its lane is as it was");
    program.resume("old").await;
    assert_eq!(program.ended(&waiting).await["status"], "completed");
}

#[tokio::test]
async fn a_lane_is_added_changed_and_removed_in_a_directory() {
    a_lane_is_added_changed_and_removed("").await;
}

#[tokio::test]
async fn a_lane_is_added_changed_and_removed_on_redis() {
    let redis = RedisServer::start();
    a_lane_is_added_changed_and_removed(&format!("[store]\nurl = \"{}\"", redis.url())).await;
}

#[tokio::test]
async fn a_config_that_cannot_be_put_in_force_changes_nothing_and_says_why() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&lanes(&upstream, &[("work", "")]), &[]).await;

    program.reload("[lane.new]");
    let line = program.logged("The config is invalid", &[]).await;
    assert!(line["errors"].as_str().unwrap().contains("did you mean `lanes`?"), "{line}");

    let server = "[server]\nlisten = \"127.0.0.1:0\"\nmax_connections = 7\n[workers]\nconcurrency = 3\n";
    program.reload(&format!("{server}{}", lanes(&upstream, &[("new", "")])));
    let line = program.logged("The config was not reloaded", &[]).await;
    let said = "`server.max_connections`, `workers.concurrency` can only be changed by a restart";
    assert_eq!(line["error"], said);

    assert_eq!(program.post("/v1/lanes/new/jobs", &job()).await.status, 404);
    let id = program.enqueue("work", &job()).await;
    assert_eq!(program.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn warnings_about_the_new_config_are_logged() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = |ttl| lanes(&upstream, &[("work", ttl)]) + "breaker = { open_for = \"30s\" }\n";
    let program = Program::start(&config("ttl = \"1m\""), &[]).await;
    program.reload(&config("ttl = \"10s\""));
    program.logged("The config was reloaded", &[("changes", "lanes changed: work (ttl)")]).await;
    let warning = "`lanes.work.ttl` is 10s, but `upstreams.up.breaker` stays open for 30s";
    program.logged(warning, &[("key", "lanes.work.ttl"), ("level", "warn")]).await;
}

#[tokio::test]
async fn a_job_that_runs_ends_though_its_lane_and_its_upstream_are_removed() {
    let latch = Latch::default();
    let first = FakeUpstream::start(Behaviour::script([Answer::status(201).after(&latch)])).await.unwrap();
    let second = FakeUpstream::start(Answer::status(202)).await.unwrap();
    let program = Program::start(&lanes(&first, &[("old", ""), ("work", "")]), &[]).await;
    let runs = program.enqueue("old", &job()).await;
    first.wait_for(1).await;
    program.reload(&lanes(&second, &[("work", "")]));
    program
        .logged("The config was reloaded", &[("changes", "lanes removed: old; upstreams changed: up (url)")])
        .await;
    latch.open();
    assert_eq!(program.ended(&runs).await["result"]["status"], 201);
    let next = program.enqueue("work", &job()).await;
    assert_eq!(program.ended(&next).await["result"]["status"], 202, "new calls go to the new address");
}

/// Accepted jobs are sent, although new requests bypass the queue.
async fn a_lane_becomes_direct(store: &str) {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = |rules| format!("{store}\n{}", lanes(&upstream, &[("work", rules)]));
    let program = Program::start(&config(""), &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program.pause("work").await;
    let waiting = program.enqueue("work", &job()).await;

    program.reload(&config("mode = \"direct\""));
    program.logged("The config was reloaded", &[("changes", "lanes changed: work (mode)")]).await;
    assert_eq!(program.post("/v1/lanes/work/jobs", &job()).await.status, 409, "it takes no more jobs");
    program.resume("work").await;
    assert_eq!(program.ended(&waiting).await["status"], "completed");
    assert_eq!(program.get("/proxy/work/").await.status, 200);
}

#[tokio::test]
async fn jobs_of_a_lane_that_becomes_direct_are_sent_from_a_directory() {
    a_lane_becomes_direct("").await;
}

#[tokio::test]
async fn jobs_of_a_lane_that_becomes_direct_are_sent_from_redis() {
    let redis = RedisServer::start();
    a_lane_becomes_direct(&format!("[store]\nurl = \"{}\"", redis.url())).await;
}
