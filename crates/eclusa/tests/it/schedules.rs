//! Schedules: jobs that are enqueued at their times, each once, however many processes there are.

use std::collections::BTreeMap;

use eclusa::fake::{Answer, FakeUpstream};

use crate::program::Program;
use crate::redis_server::RedisServer;

/// Every second.
fn rules(upstream: &FakeUpstream) -> String {
    format!(
        "[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"{}\"\n\
         [schedules.tick]\ncron = \"* * * * * *\"\ntz = \"America/Sao_Paulo\"\nlane = \"work\"\n\
         job = {{ tenant = \"clock\", params = {{ a = 1 }}, request = {{ path = \"/run\", body = {{ n = 7 }} }} }}\n",
        upstream.url()
    )
}

/// The scheduled times of the received requests, each with its count.
fn moments(upstream: &FakeUpstream) -> BTreeMap<String, usize> {
    let mut moments = BTreeMap::new();
    for seen in upstream.requests() {
        let key = seen.headers["idempotency-key"].to_str().unwrap().to_owned();
        *moments.entry(key).or_default() += 1;
    }
    moments
}

#[tokio::test]
async fn the_job_of_a_schedule_is_enqueued_at_each_of_its_moments() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&format!("[store]\nurl = \"memory:\"\n{}", rules(&upstream)), &[]).await;
    upstream.wait_for(3).await;
    let seen = &upstream.requests()[0];
    assert_eq!((seen.path.as_str(), &seen.body[..]), ("/run", &br#"{"n":7}"#[..]));
    let moments = moments(&upstream);
    assert!(moments.values().all(|times| *times == 1), "{moments:?}");
    let (first, _) = moments.first_key_value().unwrap();
    assert!(first.starts_with("schedule:tick:20") && first.contains(".000Z"), "{first}");
    let job = program.get(&format!("/v1/jobs/{first}")).await.json();
    assert_eq!((&job["tenant"], &job["params"]["a"]), (&"clock".into(), &1.into()));
    program.logged("Schedule begins", &[("schedule", "tick")]).await;
}

#[tokio::test]
async fn a_moment_is_done_once_however_many_processes_there_are() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\nterm = \"500ms\"\n{}",
        redis.url(),
        rules(&upstream)
    );
    let first = Program::start(&config, &[]).await;
    let second = Program::start(&config, &[]).await;
    upstream.wait_for(3).await;
    // The remaining process continues.
    drop(first.kill().await);
    let before = upstream.requests().len() as u64;
    upstream.wait_for(before + 3).await;
    let moments = moments(&upstream);
    assert!(moments.values().all(|times| *times == 1), "{moments:?}");
    drop(second);
}
