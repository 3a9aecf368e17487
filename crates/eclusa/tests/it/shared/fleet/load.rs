//! Jobs that are put in all the time, at every process that lives.

use std::collections::BTreeMap;
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

use super::{Fleet, SCARCE};
use crate::program::{PATIENCE, Program};

/// One job in so many is for the upstream that gives only a few calls in all.
const ONE_SCARCE_IN: usize = 10;
/// How many put jobs in, each one after the other.
const PRODUCERS: u64 = 3;
/// One that is killed or paused does not answer: after this long another one is asked.
const UNANSWERED: Duration = Duration::from_secs(5);

/// Jobs that were acknowledged: what they call, and their ids.
pub(super) type Accepted = BTreeMap<String, String>;

/// See the module.
pub(super) struct Load {
    /// Which processes are asked.
    urls: watch::Sender<Vec<String>>,
    accepted: Arc<Mutex<Vec<Job>>>,
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
            stop: CancellationToken::new(),
            producers: JoinSet::new(),
        };
        for producer in 0..PRODUCERS {
            let (mut urls, accepted, stop) =
                (load.urls.subscribe(), load.accepted.clone(), load.stop.clone());
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
                    let lane = if number % ONE_SCARCE_IN == 0 { SCARCE } else { "work" };
                    let path = format!("/{lane}/{producer}/{number}");
                    let asked = tokio::select! {
                        id = put(&client, &url, lane, &path) => id,
                        () = tokio::time::sleep(UNANSWERED) => None,
                        // All producers may be waiting for the one that is paused: then nobody would ask the others.
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

    /// The processes that are there now are asked from now on.
    pub(super) fn follow(&self, fleet: &Fleet) {
        self.urls.send_replace(fleet.programs.values().map(Program::url).collect());
    }

    /// This process is asked no more, and nobody waits for what it was asked.
    pub(super) fn leave(&self, url: &str) {
        self.urls.send_modify(|urls| urls.retain(|one| one != url));
    }

    /// How long it took from `since` until so many more jobs were accepted.
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

    /// Ends it; what was accepted.
    pub(super) async fn end(mut self) -> Accepted {
        self.stop.cancel();
        while self.producers.join_next().await.is_some() {}
        let accepted = self.accepted.lock().unwrap();
        accepted.iter().map(|job| (job.path.clone(), job.id.clone())).collect()
    }
}

/// Puts in a job that calls `path`; its id if it was accepted.
async fn put(
    client: &Client<HttpConnector, Full<Bytes>>,
    url: &str,
    lane: &str,
    path: &str,
) -> Option<String> {
    let job = json!({ "request": { "path": path } }).to_string();
    let request = http::Request::post(format!("{url}/v1/lanes/{lane}/jobs")).body(Full::from(job)).unwrap();
    let answer = client.request(request).await.ok()?;
    if answer.status() != 202 {
        return None;
    }
    let told: Value = serde_json::from_slice(&answer.into_body().collect().await.ok()?.to_bytes()).unwrap();
    Some(told["jobId"].as_str().unwrap().to_owned())
}

/// Producers that are answered at the same time ask the same process next, so one that is paused can have all of them wait.
#[tokio::test]
async fn a_paused_process_does_not_keep_the_load_from_the_others() {
    let paused = FakeUpstream::start(Answer::hang()).await.unwrap();
    let accepts = Answer::status(202).body(json!({ "jobId": "1" }).to_string());
    let other = FakeUpstream::start(accepts).await.unwrap();
    let load = Load::at(vec![paused.url(), other.url()]);
    paused.wait_for(PRODUCERS).await;
    let stopped = Instant::now();
    load.leave(&paused.url());
    assert!(load.resumes(stopped, 3).await < UNANSWERED / 2);
}
