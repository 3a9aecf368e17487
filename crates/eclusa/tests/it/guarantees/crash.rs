//! An accepted job survives the kill of the process, and runs at least once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::program::{PATIENCE, Program};
use super::{again, enqueue, job, totals, with_short_leases};

const PRODUCERS: usize = 8;
const ROUNDS: usize = 3;
const MOST_BEFORE_THE_KILL: usize = 300;

/// Jobs that were acknowledged, by the path of their request, and a signal for each.
#[derive(Default)]
struct Acknowledged {
    count: AtomicUsize,
    reported: Notify,
}

/// Enqueues until the process is gone; returns the acknowledged jobs.
async fn produce(url: String, first: usize, acknowledged: Arc<Acknowledged>) -> Vec<(String, String)> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut jobs = Vec::new();
    for number in (first..).step_by(PRODUCERS) {
        let request = http::Request::post(format!("{url}/v1/lanes/work/jobs"));
        let request = request.body(Full::<Bytes>::from(job(number).to_string())).unwrap();
        let Ok(answer) = client.request(request).await else { break };
        let status = answer.status().as_u16();
        let Ok(body) = answer.into_body().collect().await else { break };
        let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        assert_eq!(status, 202, "{body}");
        jobs.push((format!("/{number}"), body["jobId"].as_str().unwrap().to_owned()));
        acknowledged.count.fetch_add(1, Ordering::SeqCst);
        acknowledged.reported.notify_one();
    }
    jobs
}

/// Kills the program after a number of acknowledgements, during the next ones.
async fn killed_under_load(
    program: Program,
    first: usize,
    after: usize,
) -> (Arc<tempfile::TempDir>, Vec<(String, String)>) {
    let acknowledged = Arc::new(Acknowledged::default());
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|number| tokio::spawn(produce(program.url(), first + number, acknowledged.clone())))
        .collect();
    let reached = async {
        while acknowledged.count.load(Ordering::SeqCst) < after {
            acknowledged.reported.notified().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
    let dir = program.kill().await;
    let mut jobs = Vec::new();
    for producer in producers {
        jobs.extend(producer.await.unwrap());
    }
    (dir, jobs)
}

/// The time of each kill comes from a seed, the same on every run unless `ECLUSA_SEED` sets another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_job_ends_once_however_often_the_process_is_killed() {
    let seed = std::env::var("ECLUSA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_101);
    eprintln!("ECLUSA_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let mut program = Program::start(&with_short_leases(&upstream, "keep = { max = 100000 }", ""), &[]).await;
    let mut jobs = BTreeMap::new();
    for round in 0..ROUNDS {
        let after = random.usize(1..=MOST_BEFORE_THE_KILL);
        let (dir, acknowledged) = killed_under_load(program, round * 1_000_000, after).await;
        assert!(acknowledged.len() >= after);
        jobs.extend(acknowledged);
        program = again(dir).await;
    }
    for (path, id) in &jobs {
        let job = program.ended(id).await;
        assert_eq!(job["status"], "completed", "{path}: {job}");
        let events = job["timeline"].as_array().unwrap().iter();
        assert_eq!(events.filter(|event| event["event"] == "completed").count(), 1, "{path}: {job}");
    }
    let seen: std::collections::BTreeSet<String> = super::paths(&upstream).into_iter().collect();
    let missing: Vec<_> = jobs.keys().filter(|path| !seen.contains(*path)).collect();
    assert!(missing.is_empty(), "never sent: {missing:?}");
    // Jobs whose acknowledgement was cut off may have been accepted; they end like all others.
    let totals = drained(&program).await;
    assert!(totals["accepted"].as_u64().unwrap() >= jobs.len() as u64);
    assert_eq!(totals["accepted"], totals["completed"]);
}

/// The lane's totals once it is empty: a last job with the lowest priority has ended.
async fn drained(program: &Program) -> Value {
    let last = json!({ "priority": "low", "request": { "path": "/last" } });
    let last = program.enqueue("work", &last).await;
    program.ended(&last).await;
    let page = program.get("/v1/jobs?lane=work&status=processing").await.json();
    for job in page["jobs"].as_array().unwrap() {
        program.ended(job["jobId"].as_str().unwrap()).await;
    }
    totals(program).await
}

/// A call whose process was killed is made again with the same key, so that the upstream can recognise it.
#[tokio::test]
async fn a_call_cut_off_by_a_kill_is_made_again() {
    let upstream = FakeUpstream::start(Behaviour::script([Answer::hang()])).await.unwrap();
    let program = Program::start(&with_short_leases(&upstream, "", ""), &[]).await;
    let id = enqueue(&program, 1).await.remove(0);
    upstream.wait_for(1).await;
    let program = again(program.kill().await).await;
    let job = program.finished(&id).await;
    assert_eq!(job["status"], "completed");
    let events: Vec<&str> =
        job["timeline"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["accepted", "started", "taken_up", "started", "completed"]);
    let requests = upstream.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].headers["idempotency-key"], requests[1].headers["idempotency-key"]);
}

/// With `on_ambiguous = "stop"` it is not made again.
#[tokio::test]
async fn a_call_cut_off_by_a_kill_is_not_made_again_where_the_lane_forbids_it() {
    let upstream = FakeUpstream::start(Behaviour::script([Answer::hang()])).await.unwrap();
    let lane = "retry = { on_ambiguous = \"stop\" }";
    let program = Program::start(&with_short_leases(&upstream, lane, ""), &[]).await;
    let id = enqueue(&program, 1).await.remove(0);
    upstream.wait_for(1).await;
    let program = again(program.kill().await).await;
    assert_eq!(program.finished(&id).await["status"], "failed");
    assert_eq!(upstream.requests().len(), 1);
}
