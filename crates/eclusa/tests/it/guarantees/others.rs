//! A hanging upstream does not affect others.

use eclusa::fake::{Answer, FakeUpstream, Latch};
use serde_json::json;

use super::super::program::Program;

/// Two lanes to two upstreams, one of which hangs, and few workers.
async fn beside_one_that_hangs(hanging: &FakeUpstream, well: &FakeUpstream) -> Program {
    let config = format!(
        "[workers]\nconcurrency = 4\n\
         [lanes.stuck]\nchain = [\"stuck\"]\n[upstreams.stuck]\nurl = \"{}\"\ntimeout = \"10m\"\n\
         [lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"{}\"\n",
        hanging.url(),
        well.url()
    );
    Program::start(&config, &[]).await
}

/// However many jobs hang, jobs of other lanes get a worker.
#[tokio::test]
async fn jobs_of_other_lanes_run_while_an_upstream_hangs() {
    let latch = Latch::default();
    let hanging = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let well = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = beside_one_that_hangs(&hanging, &well).await;
    let mut stuck = Vec::new();
    for number in 0..8 {
        stuck.push(program.enqueue("stuck", &super::job(number)).await);
    }
    hanging.wait_for(3).await;
    for number in 0..8 {
        let id = program.enqueue("work", &super::job(number)).await;
        assert_eq!(program.ended(&id).await["status"], "completed");
    }
    assert_eq!(program.get("/v1/lanes/stuck").await.json()["totals"]["completed"], 0);
    latch.open();
    for id in &stuck {
        assert_eq!(program.ended(id).await["status"], "completed");
    }
}

/// One process never runs more than `workers.concurrency` jobs.
#[tokio::test]
async fn no_more_jobs_run_than_there_are_workers() {
    let latch = Latch::default();
    let hanging = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let program = beside_one_that_hangs(&hanging, &hanging).await;
    for number in 0..6 {
        program.enqueue("stuck", &super::job(number)).await;
        program.enqueue("work", &super::job(number)).await;
    }
    hanging.wait_for(4).await;
    let lanes = program.get("/v1/lanes").await.json();
    let processing: u64 =
        lanes.as_array().unwrap().iter().map(|lane| lane["processing"].as_u64().unwrap()).sum();
    assert_eq!(processing, 4, "{}", json!(lanes));
    assert_eq!(hanging.requests().len(), 4);
    latch.open();
}
