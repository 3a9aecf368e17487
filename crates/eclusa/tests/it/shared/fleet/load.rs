//! Continuous load on all live processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use eclusa::fake::{Answer, FakeUpstream};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Fleet;
use super::upstream::{METERED, NARROW, SCARCE};
use crate::program::{PATIENCE, Program};

/// The lanes of successive jobs, again and again.
const LANES: [&str; 10] = [SCARCE, METERED, NARROW, "work", "work", "work", METERED, NARROW, "work", "work"];
/// Concurrent producers, each sequential.
const PRODUCERS: u64 = 3;
/// A killed or paused process does not answer; after this long another one is asked.
const UNANSWERED: Duration = Duration::from_secs(5);

/// Jobs that were acknowledged: what they call, and their ids.
pub(super) type Accepted = BTreeMap<String, String>;

/// See the module.
pub(super) struct Load {
    /// The processes that get jobs.
    urls: watch::Sender<Vec<String>>,
    accepted: Arc<Mutex<Vec<Job>>>,
    /// Answers other than that a job was accepted.
    refusals: Arc<AtomicU64>,
    stop: CancellationToken,
    producers: JoinSet<()>,
}

#[derive(Clone)]
struct Job {
    at: Instant,
    path: String,
    id: String,
}

impl Load {
    pub(super) fn on(fleet: &Fleet) -> Self {
        Self::at(fleet.programs.values().map(Program::url).collect())
    }

    fn at(urls: Vec<String>) -> Self {
        let mut load = Self {
            urls: watch::Sender::new(urls),
            accepted: Arc::default(),
            refusals: Arc::default(),
            stop: CancellationToken::new(),
            producers: JoinSet::new(),
        };
        for producer in 0..PRODUCERS {
            let (mut urls, accepted, refusals, stop) =
                (load.urls.subscribe(), load.accepted.clone(), load.refusals.clone(), load.stop.clone());
            load.producers.spawn(async move {
                let client = Client::builder(TokioExecutor::new()).build_http();
                for number in 0.. {
                    if stop.is_cancelled() {
                        return;
                    }
                    let url = {
                        let urls = urls.borrow();
                        urls[number % urls.len()].clone()
                    };
                    let lane = LANES[number % LANES.len()];
                    let path = format!("/{lane}/{producer}/{number}");
                    let asked = tokio::select! {
                        id = put(&client, &url, lane, &path, &refusals) => id,
                        () = tokio::time::sleep(UNANSWERED) => None,
                        // Otherwise all producers might wait for a paused process and none would ask the others.
                        _ = urls.wait_for(|urls| !urls.contains(&url)) => None,
                    };
                    match asked {
                        Some(id) => accepted.lock().unwrap().push(Job { at: Instant::now(), path, id }),
                        _ => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                }
            });
        }
        load
    }

    /// Sets the processes that get jobs from now on.
    pub(super) fn follow(&self, fleet: &Fleet) {
        self.urls.send_replace(fleet.programs.values().map(Program::url).collect());
    }

    /// Sends no more jobs to this process, and does not wait for its pending answers.
    pub(super) fn exclude(&self, url: &str) {
        self.urls.send_modify(|urls| urls.retain(|one| one != url));
    }

    /// How long it took from `since` until `count` more jobs were accepted.
    pub(super) async fn resumes(&self, since: Instant, more: usize) -> Duration {
        let resumed = async {
            loop {
                let at = {
                    let accepted = self.accepted.lock().unwrap();
                    // They are in order, and those after `since` are the last.
                    let before = accepted.partition_point(|job| job.at <= since);
                    accepted.get(before + more).map(|job| job.at)
                };
                if let Some(at) = at {
                    return at - since;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, resumed).await.unwrap()
    }

    /// How many jobs were refused.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Stops the load; returns the accepted jobs.
    pub(super) async fn end(mut self) -> Accepted {
        self.stop.cancel();
        while self.producers.join_next().await.is_some() {}
        let accepted = self.accepted.lock().unwrap();
        accepted.iter().map(|job| (job.path.clone(), job.id.clone())).collect()
    }
}

/// Enqueues a job that calls `path`; returns its id if it was accepted.
async fn put(
    client: &Client<HttpConnector, Full<Bytes>>,
    url: &str,
    lane: &str,
    path: &str,
    refusals: &AtomicU64,
) -> Option<String> {
    let job = json!({ "request": { "path": path } }).to_string();
    let request = http::Request::post(format!("{url}/v1/lanes/{lane}/jobs")).body(Full::from(job)).unwrap();
    let answer = client.request(request).await.ok()?;
    if answer.status() != 202 {
        refusals.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let accepted: Value =
        serde_json::from_slice(&answer.into_body().collect().await.ok()?.to_bytes()).unwrap();
    Some(accepted["jobId"].as_str().unwrap().to_owned())
}

/// Producers that are answered at the same time would ask the same process next, so a paused one could block all of them.
#[tokio::test]
async fn a_paused_process_does_not_keep_the_load_from_the_others() {
    let paused = FakeUpstream::start(Answer::hang()).await.unwrap();
    let accepts = Answer::status(202).body(json!({ "jobId": "1" }).to_string());
    let other = FakeUpstream::start(accepts).await.unwrap();
    let load = Load::at(vec![paused.url(), other.url()]);
    paused.wait_for(PRODUCERS).await;
    let stopped = Instant::now();
    load.exclude(&paused.url());
    assert!(load.resumes(stopped, 3).await < UNANSWERED / 2);
}
