//! Every job ends in exactly one way, and the counts add up.

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::{Value, json};

use super::super::program::Program;
use super::{config, job};

/// The sum of these totals.
fn sum(totals: &Value, names: &[&str]) -> u64 {
    names.iter().map(|name| totals[*name].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn every_job_ends_in_one_way_and_the_counts_add_up() {
    let by_path = |seen: &eclusa::fake::ReceivedRequest| match seen.path.as_str() {
        "/1" => Answer::status(400),
        _ => Answer::status(200),
    };
    let upstream = FakeUpstream::start(Behaviour::by(by_path)).await.unwrap();
    let program = Program::start(&config(&upstream, "capacity = 4", "max_concurrent = 1"), &[]).await;
    program.pause("work").await;
    let with = |number: usize, more: Value| {
        let mut job = job(number);
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    let completed = program.enqueue("work", &job(0)).await;
    let failed = program.enqueue("work", &with(1, json!({ "priority": "high" }))).await;
    let expired = program.enqueue("work", &with(2, json!({ "ttl": "100ms" }))).await;
    let cancelled = program.enqueue("work", &with(3, json!({ "priority": "high" }))).await;
    program.logged("Job dropped", &[("jobId", &expired)]).await;
    assert_eq!(program.send("DELETE", &format!("/v1/jobs/{cancelled}"), &[], "").await.status, 200);
    let preempted = program.enqueue("work", &with(4, json!({ "priority": "low" }))).await;
    let delayed = program.enqueue("work", &with(5, json!({ "delay": "1h", "priority": "high" }))).await;
    let urgent = program.enqueue("work", &with(6, json!({ "priority": "high" }))).await;
    let refused = program.post("/v1/lanes/work/jobs", &with(7, json!({ "priority": "low" }))).await;
    assert_eq!(refused.status, 503);
    program.resume("work").await;
    for (id, status) in [
        (&completed, "completed"),
        (&failed, "failed"),
        (&expired, "dropped"),
        (&cancelled, "cancelled"),
        (&preempted, "dropped"),
        (&urgent, "completed"),
    ] {
        let job = program.finished(id).await;
        assert_eq!(job["status"], status);
        let last = job["timeline"].as_array().unwrap().last().unwrap()["event"].clone();
        assert_eq!(last, status, "{job}");
    }
    assert_eq!(program.get(&format!("/v1/jobs/{delayed}")).await.json()["status"], "pending");

    let lane = program.get("/v1/lanes/work").await.json();
    let totals = &lane["totals"];
    let ends = sum(totals, &["completed", "coalesced", "failed", "cancelled", "expired", "preempted"]);
    let waiting = lane["pending"].as_u64().unwrap() + lane["processing"].as_u64().unwrap();
    assert_eq!(lane["queued"], json!({ "high": 0, "normal": 0, "low": 0 }));
    assert_eq!(totals["accepted"], ends + waiting);
    assert_eq!((&totals["accepted"], &totals["refused"], waiting), (&json!(7), &json!(1), 1));
    let counted = |status: &'static str| {
        let program = &program;
        async move { program.metric("proxy_jobs_total", &[("lane", "work"), ("status", status)]).await }
    };
    assert_eq!((counted("processed").await, counted("failed").await), (2, 1));
    assert_eq!((counted("dropped").await, counted("cancelled").await), (3, 1));
}

/// A job that is cancelled during its call releases its slot when the call ends, even if the chain would continue.
#[tokio::test]
async fn a_cancelled_job_of_a_chain_gives_its_slot_back() {
    let latch = Latch::default();
    let answers = [Answer::status(503).after(&latch)];
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let config = format!(
        "[workers]\nlease = \"10m\"\n[lanes.work]\nchain = [\"up\", \"down\"]\n\
         [upstreams.up]\nurl = \"{}\"\nmax_concurrent = 1\n\
         [upstreams.down]\nurl = \"http://127.0.0.1:9\"\nmax_concurrent = 1\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    let first = program.enqueue("work", &job(1)).await;
    upstream.wait_for(1).await;
    assert_eq!(program.send("DELETE", &format!("/v1/jobs/{first}"), &[], "").await.status, 200);
    latch.open();
    let second = program.enqueue("work", &job(2)).await;
    assert_eq!(program.ended(&second).await["status"], "completed");
    upstream.wait_for(2).await;
}
