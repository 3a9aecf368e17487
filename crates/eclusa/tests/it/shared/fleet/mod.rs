//! Three processes on one Redis under load, with an upstream that counts: whatever dies, nothing acknowledged is lost, and
//! nothing runs twice but what a killed process was running.
//!
//! The short forms run with all other tests; `ECLUSA_LONG=1` (`make test-all`) runs the full counts.

mod owner;
mod returning;
mod rules;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use eclusa::fake::{Answer, FakeUpstream};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::program::{Answer as Told, PATIENCE, Program};
use crate::redis_server::RedisServer;

const TERM: &str = "eclusa:{main}:term";

/// How often something is done, in the short form and in the full one.
fn times(short: usize, full: usize) -> usize {
    if std::env::var_os("ECLUSA_LONG").is_some() { full } else { short }
}

/// Processes on one Redis, each with a name that the upstream sees.
struct Fleet {
    redis: RedisServer,
    upstream: FakeUpstream,
    programs: BTreeMap<String, Program>,
    /// Processes that were killed.
    killed: BTreeSet<String>,
    started: usize,
}

impl Fleet {
    async fn start(redis: RedisServer, size: usize) -> Self {
        let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
        let mut fleet =
            Self { redis, upstream, programs: BTreeMap::new(), killed: BTreeSet::new(), started: 0 };
        for _ in 0..size {
            fleet.add().await;
        }
        fleet
    }

    /// One process more, once it is ready.
    async fn add(&mut self) -> String {
        self.started += 1;
        let name = format!("p{}", self.started);
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\nterm = \"500ms\"\n\
             [workers]\nlease = \"3s\"\n[lanes.work]\nchain = [\"up\"]\ncapacity = 100000\n\
             [upstreams.up]\nurl = \"{}\"\nheaders = {{ X-Process = \"{name}\" }}\n",
            self.redis.url(),
            self.upstream.url()
        );
        let program = Program::start(&config, &[]).await;
        program.until("/readyz", |answer| answer.status == 200).await;
        self.programs.insert(name.clone(), program);
        name
    }

    /// The process that decides.
    async fn owner(&self) -> String {
        let find = async {
            loop {
                let epoch = self.redis.command(&["HGET", TERM, "epoch"]);
                let owns = |program: &Program| {
                    program.log().iter().any(|line| {
                        line["message"] == "This process decides now"
                            && line["epoch"].as_u64() == epoch.parse().ok()
                    })
                };
                if let Some((name, _)) = self.programs.iter().find(|(_, program)| owns(program)) {
                    return name.clone();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, find).await.unwrap()
    }

    async fn kill(&mut self, name: &str) {
        self.killed.insert(name.to_owned());
        self.programs.remove(name).unwrap().kill().await;
    }

    /// Everything that was acknowledged was called, and nothing twice but what a killed process was running.
    async fn check(&self, accepted: &BTreeSet<String>) {
        let idle = |answer: &Told| {
            let lane = answer.json();
            lane["queued"]["normal"] == 0 && lane["pending"] == 0 && lane["processing"] == 0
        };
        let program = self.programs.values().next().unwrap();
        program.until("/v1/lanes/work", |answer| answer.status == 200 && idle(answer)).await;
        let mut calls: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for seen in self.upstream.requests() {
            let by = seen.headers["x-process"].to_str().unwrap().to_owned();
            calls.entry(seen.path).or_default().push(by);
        }
        let lost: Vec<_> = accepted.iter().filter(|path| !calls.contains_key(*path)).collect();
        assert!(!accepted.is_empty() && lost.is_empty(), "{} accepted, lost: {lost:?}", accepted.len());
        for (path, by) in &calls {
            let extra = &by[..by.len() - 1];
            let distinct: BTreeSet<_> = extra.iter().collect();
            let excused = extra.iter().all(|by| self.killed.contains(by)) && distinct.len() == extra.len();
            assert!(excused, "{path} was called by {by:?}, and killed were {:?}", self.killed);
        }
    }
}

/// Jobs that are put in all the time, at every process that lives.
struct Load {
    urls: Arc<Mutex<Vec<String>>>,
    accepted: Arc<Mutex<Vec<(Instant, String)>>>,
    stop: CancellationToken,
    producers: JoinSet<()>,
}

impl Load {
    fn on(fleet: &Fleet) -> Self {
        let mut load = Self {
            urls: Arc::default(),
            accepted: Arc::default(),
            stop: CancellationToken::new(),
            producers: JoinSet::new(),
        };
        load.follow(fleet);
        for producer in 0..3 {
            let (urls, accepted, stop) = (load.urls.clone(), load.accepted.clone(), load.stop.clone());
            load.producers.spawn(async move {
                let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
                for number in 0.. {
                    if stop.is_cancelled() {
                        return;
                    }
                    let path = format!("/{producer}/{number}");
                    let url = {
                        let urls = urls.lock().unwrap();
                        urls[number % urls.len()].clone()
                    };
                    let job = json!({ "request": { "path": path } }).to_string();
                    let request = http::Request::post(format!("{url}/v1/lanes/work/jobs"));
                    let request = client.request(request.body(Full::from(job)).unwrap());
                    // One that is killed does not answer, one that is paused not for long.
                    let answer = tokio::time::timeout(Duration::from_secs(5), request).await;
                    if let Ok(Ok(answer)) = answer
                        && answer.status() == 202
                    {
                        accepted.lock().unwrap().push((Instant::now(), path));
                    } else {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
            });
        }
        load
    }

    /// The processes that are there now are asked from now on.
    fn follow(&mut self, fleet: &Fleet) {
        *self.urls.lock().unwrap() = fleet.programs.values().map(Program::url).collect();
    }

    /// How long it took from `since` until so many more jobs were accepted.
    async fn resumes(&self, since: Instant, more: usize) -> Duration {
        let resumed = async {
            loop {
                let at =
                    self.accepted.lock().unwrap().iter().filter(|(at, _)| *at > since).nth(more).cloned();
                if let Some((at, _)) = at {
                    return at - since;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, resumed).await.unwrap()
    }

    /// Ends it; what was accepted.
    async fn end(mut self) -> BTreeSet<String> {
        self.stop.cancel();
        while self.producers.join_next().await.is_some() {}
        let accepted = self.accepted.lock().unwrap();
        accepted.iter().map(|(_, path)| path.clone()).collect()
    }
}
