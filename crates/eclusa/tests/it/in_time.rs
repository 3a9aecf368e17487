//! A lane that refuses jobs that would expire in its queue.

use eclusa::fake::{Answer, FakeUpstream, Latch};
use serde_json::json;

use super::program::{Program, millis};

#[tokio::test]
async fn a_job_that_would_expire_in_the_queue_is_refused_with_the_estimated_start() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = format!(
        "[lanes.work]\nchain = [\"up\"]\nttl = \"20s\"\nadmit = \"in_time\"\n\
         [upstreams.up]\nurl = \"{}\"\nrpm = 1\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    let first = program.enqueue("work", &json!({ "request": {} })).await;
    let ended = program.finished(&first).await;
    let refused = program.post("/v1/lanes/work/jobs", &json!({ "id": "a", "request": {} })).await;
    let problem = refused.json();
    assert_eq!((refused.status, &problem["type"]), (503, &json!("urn:eclusa:problem:not-in-time")));
    let quoted = millis(&problem["eta"]);
    assert!((60_000..=61_000).contains(&(quoted - millis(&ended["createdAt"]))), "{problem}");
    let after: u64 = refused.header("retry-after").parse().unwrap();
    assert!((38..=41).contains(&after), "{after}");
    program.logged("Job dropped", &[("reason", "not_in_time")]).await;
    let labels = [("lane", "work"), ("reason", "not_in_time"), ("priority", "normal")];
    assert_eq!(program.metric("eclusa_drops_total", &labels).await, 1);
    let patient = json!({ "id": "a", "ttl": "2m", "request": {} });
    assert_eq!(program.post("/v1/lanes/work/jobs", &patient).await.status, 202, "the id is free");
}

#[tokio::test]
async fn quoted_starts_are_compared_with_the_real_ones() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let config = format!(
        "[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"{}\"\nmax_concurrent = 1\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    program.enqueue("work", &json!({ "request": {} })).await;
    upstream.wait_for(1).await;
    let second = program.enqueue("work", &json!({ "request": {} })).await;
    latch.open();
    program.finished(&second).await;
    let count = async |side| {
        let labels = [("lane", "work"), ("side", side)];
        program.metric_if_there("eclusa_eta_error_seconds_count", &labels).await.unwrap_or_default()
    };
    assert_eq!(count("late").await + count("early").await, 2);
    assert!(count("early").await >= 1, "that a slot comes free when its lease ends is the last resort");
}
