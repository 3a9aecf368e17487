//! A generation provider that keeps its own counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use eclusa::fake::{Answer, Behaviour, FakeUpstream, ReceivedRequest};
use eclusa_core::Time;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::webhooks::signed;

/// The pause before a webhook that was not accepted is sent again.
const AGAIN: Duration = Duration::from_millis(200);

/// What a provider does with a submit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Refuses it; another provider may accept it.
    Refused,
    /// Accepts it and reports a failure later.
    FailsLater,
    /// Accepts it and reports success later.
    Succeeds,
}

/// Addresses of the live processes; webhooks go to any of them.
pub(super) type Listeners = Arc<Mutex<Vec<String>>>;

/// What a provider has seen.
#[derive(Default)]
pub(super) struct Book {
    /// The time and the job of each submit, in order.
    pub(super) submits: Vec<(Time, usize)>,
    /// Running jobs, each with its number of submits.
    working: BTreeMap<usize, usize>,
    /// The most jobs that ran at the same time.
    pub(super) most: usize,
}

impl Book {
    fn begin(&mut self, at: Time, job: usize) {
        self.submits.push((at, job));
        *self.working.entry(job).or_default() += 1;
        self.most = self.most.max(self.working.len());
    }

    fn end(&mut self, job: usize) {
        let left = self.working.get_mut(&job).unwrap();
        *left -= 1;
        if *left == 0 {
            self.working.remove(&job);
        }
    }

    /// The most submits in any minute.
    pub(super) fn most_in_a_minute(&self) -> usize {
        let times: Vec<_> = self.submits.iter().map(|(at, _)| at.as_millis()).collect();
        let in_a_minute =
            |from: usize| times[from..].iter().take_while(|at| **at < times[from] + 60_000).count();
        (0..times.len()).map(in_a_minute).max().unwrap_or(0)
    }
}

pub(super) struct Provider {
    server: FakeUpstream,
    pub(super) book: Arc<Mutex<Book>>,
}

impl Provider {
    /// A provider that answers synchronously.
    pub(super) async fn at_once(work: Duration) -> Self {
        let book = Arc::<Mutex<Book>>::default();
        let own = book.clone();
        let behaviour = Behaviour::by(move |seen| {
            let job = job_of(&body(seen));
            own.lock().unwrap().begin(seen.at, job);
            let own = own.clone();
            // It is done when it answers, or just before.
            tokio::spawn(async move {
                tokio::time::sleep(work).await;
                own.lock().unwrap().end(job);
            });
            Answer::status(200).body("{}").delay(2 * work)
        });
        Self { server: FakeUpstream::start(behaviour).await.unwrap(), book }
    }

    /// A provider that calls back after working for `time`.
    pub(super) async fn later(work: Duration, listeners: Listeners, fate: fn(usize) -> Fate) -> Self {
        let book = Arc::<Mutex<Book>>::default();
        let own = book.clone();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let behaviour = Behaviour::by(move |seen| {
            let submit = body(seen);
            let job = job_of(&submit);
            let external = format!("gen-{job}-{}", seen.at.as_millis());
            own.lock().unwrap().begin(seen.at, job);
            let fate = fate(job);
            if fate == Fate::Refused {
                own.lock().unwrap().end(job);
                return Answer::status(503);
            }
            let (own, client, listeners) = (own.clone(), client.clone(), listeners.clone());
            let path = submit["webhook"]
                .as_str()
                .unwrap()
                .strip_prefix("http://gateway.invalid")
                .unwrap()
                .to_owned();
            let status = if fate == Fate::Succeeds { "succeeded" } else { "failed" };
            let body = json!({ "id": external, "status": status, "output": job }).to_string();
            let id = external.clone();
            tokio::spawn(async move {
                tokio::time::sleep(work).await;
                own.lock().unwrap().end(job);
                call_back(&client, &listeners, &path, &id, body).await;
            });
            Answer::status(201).body(json!({ "id": external, "status": "starting" }).to_string())
        });
        Self { server: FakeUpstream::start(behaviour).await.unwrap(), book }
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }
}

fn body(seen: &ReceivedRequest) -> Value {
    serde_json::from_slice(&seen.body).unwrap()
}

fn job_of(submit: &Value) -> usize {
    submit["input"].as_u64().unwrap().try_into().unwrap()
}

/// Sends a webhook to any live process, repeatedly, until one accepts it.
async fn call_back(
    client: &Client<HttpConnector, Full<Bytes>>,
    listeners: &Listeners,
    path: &str,
    id: &str,
    body: String,
) {
    for attempt in 0.. {
        let url = {
            let listeners = listeners.lock().unwrap();
            listeners.get(attempt % listeners.len().max(1)).cloned()
        };
        if let Some(url) = url {
            let mut request = http::Request::post(format!("{url}{path}"));
            for (name, value) in signed(id, &body) {
                request = request.header(name, value);
            }
            let request = request.body(Full::new(Bytes::from(body.clone()))).unwrap();
            if client.request(request).await.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}
