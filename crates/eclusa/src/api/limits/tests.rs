//! Waiting, under virtual time: the store's clock is the runtime's, so times are exact.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::response::IntoResponse;
use eclusa_core::gate::CallResult;
use eclusa_core::{LeaseId, Name, Outcome, Settlement, Store};
use futures_util::FutureExt;
use http::header::RETRY_AFTER;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use super::ask::{WantedCall, grant};
use super::{Acquired, LimitsState};
use crate::api::problem::Problem;
use crate::api::state::Api;
use crate::clock::VirtualClock;
use crate::config::Config;
use crate::peers::ProcessRole;
use crate::policy::Takes;
use crate::process;

/// One upstream, `up`, with the given rules.
struct Fixture {
    api: Api,
    began: Instant,
}

impl Fixture {
    fn new(rules: &str) -> Self {
        Self::on("memory:", rules)
    }

    fn on(store: &str, rules: &str) -> Self {
        let text =
            format!("[store]\nurl = \"{store}\"\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n{rules}\n");
        let config = Config::parse("eclusa.toml", &text, &|_: &str| None).unwrap();
        let began = Instant::now();
        Self {
            api: process::open(config, ProcessRole::All, Arc::new(VirtualClock(began))).unwrap().api,
            began,
        }
    }

    async fn limits(&self) -> LimitsState {
        let mut request = http::Request::new(()).into_parts().0;
        LimitsState::from_request_parts(&mut request, &self.api).await.ok().unwrap()
    }

    async fn ask(&self, wait_ms: u64) -> Result<Acquired, Problem> {
        let (upstream, takes) = (up(), Takes::default());
        let call = WantedCall { upstream: &upstream, takes: &takes, counts: true };
        let granted = grant(&self.limits().await, call, Duration::from_millis(wait_ms)).await;
        granted.map(super::ask::Grant::accept)
    }

    /// Returns the result with its time in milliseconds since the start; `Err` is the reason of the refusal.
    async fn asked(&self, wait_ms: u64) -> (u128, Result<(), String>) {
        let answer = self.ask(wait_ms).await;
        let reason = |problem: Problem| problem.into_json()["reason"].as_str().unwrap_or("none").to_owned();
        (self.began.elapsed().as_millis(), answer.map(drop).map_err(reason))
    }

    async fn lease(&self) -> LeaseId {
        let id = self.ask(0).await.unwrap().lease_id;
        id.strip_prefix("up:").unwrap().parse().unwrap()
    }

    /// Posts an empty body to a path of the API and returns the status.
    async fn post(&self, path: String) -> u16 {
        let request = http::Request::post(path).body(axum::body::Body::empty()).unwrap();
        crate::api::router(&self.api, ProcessRole::All).oneshot(request).await.unwrap().status().as_u16()
    }

    async fn in_flight(&self) -> u32 {
        self.api.0.store.upstreams().await.unwrap()[0].in_flight
    }

    /// Settles a call after 300 ms through the store, as another process does: no wake-up here.
    async fn settle_elsewhere(&self, lease: LeaseId) {
        sleep(Duration::from_millis(300)).await;
        let (report, outcome) = (CallResult::Success.into(), Outcome::Release);
        let settlement = Settlement { lease, report, outcome, answer: None, unsent: None };
        self.api.0.store.settle(vec![settlement]).await.unwrap();
    }

    async fn record(&self, result: CallResult) {
        self.api.0.store.record(up(), result).await.unwrap();
    }
}

fn up() -> Name {
    Name::new("up").unwrap()
}

fn refused(reason: &str) -> Result<(), String> {
    Err(reason.into())
}

async fn all<T>(asked: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    futures_util::future::join_all(asked).await
}

#[tokio::test(start_paused = true)]
async fn ten_of_fifteen_simultaneous_requests_are_admitted() {
    let fixture = Fixture::new("rate = \"10/s\"\nburst = 10");
    let answers = all((0..15).map(|_| fixture.asked(0))).await;
    assert!(answers.iter().all(|(at, _)| *at == 0), "{answers:?}");
    assert_eq!(answers.iter().filter(|(_, answer)| answer.is_ok()).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_are_admitted_in_order_as_tokens_refill() {
    let fixture = Fixture::new("rate = \"10/s\"\nburst = 2");
    let answers = all((0..6).map(|_| fixture.asked(1_000))).await;
    assert_eq!(answers, [0, 0, 100, 200, 300, 400].map(|at| (at, Ok(()))));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_cannot_succeed_is_refused_at_once() {
    let fixture = Fixture::new("rate = \"1/min\"\nburst = 1");
    fixture.lease().await;
    assert_eq!(fixture.asked(59_999).await, (0, refused("rate_limit")));
    let problem = fixture.ask(5_000).await.unwrap_err().into_response();
    assert_eq!(problem.headers()[RETRY_AFTER], "60");
    assert_eq!(fixture.asked(60_000).await, (60_000, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_queued_caller_waits_until_its_own_deadline_and_does_not_overtake() {
    let fixture = Fixture::new("rate = \"1/min\"\nburst = 1");
    fixture.lease().await;
    let answers = all([60_000, 5_000].map(|wait| fixture.asked(wait))).await;
    assert_eq!(answers, [(60_000, Ok(())), (5_000, refused("rate_limit"))]);
}

/// The slot would be free after ten seconds anyway, but its call may end before.
#[tokio::test(start_paused = true)]
async fn a_released_slot_is_granted_at_once() {
    let fixture = Fixture::new("max_concurrent = 1");
    let lease = fixture.lease().await;
    let settle = async {
        sleep(Duration::from_millis(300)).await;
        fixture.api.0.decider.try_end_call(&up(), lease, CallResult::Success.into()).await.unwrap();
    };
    assert_eq!(tokio::join!(fixture.asked(5_000), settle).0, (300, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_slot_released_elsewhere_is_found_by_polling() {
    let fixture = Fixture::new("max_concurrent = 1");
    let lease = fixture.lease().await;
    assert_eq!(tokio::join!(fixture.asked(5_000), fixture.settle_elsewhere(lease)).0, (1_000, Ok(())));
}

/// The second arrives when the slot is free and the first has not noticed yet.
#[tokio::test(start_paused = true)]
async fn a_later_caller_does_not_overtake() {
    let fixture = Fixture::new("max_concurrent = 1");
    let lease = fixture.lease().await;
    let later = async {
        sleep(Duration::from_millis(500)).await;
        fixture.asked(1_000).await
    };
    let (first, later, ()) = tokio::join!(fixture.asked(5_000), later, fixture.settle_elsewhere(lease));
    assert_eq!((first, later), ((1_000, Ok(())), (1_500, refused("concurrency"))));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_never_released_is_refused_until_its_lease_expires() {
    let fixture = Fixture::new("max_concurrent = 1");
    fixture.lease().await;
    assert_eq!(fixture.asked(5_500).await, (5_500, refused("concurrency")));
    assert_eq!(fixture.asked(5_000).await, (10_000, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn an_extended_lease_lasts_its_full_duration_from_then() {
    let fixture = Fixture::new("max_concurrent = 1");
    let lease = fixture.lease().await;
    sleep(Duration::from_secs(6)).await;
    assert_eq!(fixture.post(format!("/v1/limits/leases/up:{lease}/extend")).await, 200);
    assert_eq!(fixture.asked(30_000).await, (16_000, Ok(())));
    assert_eq!(fixture.post(format!("/v1/limits/leases/up:{lease}/extend")).await, 404);
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_refuses_at_once_and_a_half_open_one_is_waited_for() {
    let fixture = Fixture::new("breaker = { failures = 1, open_for = \"30s\" }");
    fixture.record(CallResult::Failed).await;
    assert_eq!(fixture.asked(29_000).await, (0, refused("circuit_open")));
    sleep(Duration::from_secs(30)).await;
    let probe = fixture.lease().await;
    let settle = async {
        sleep(Duration::from_secs(2)).await;
        fixture.api.0.decider.try_end_call(&up(), probe, CallResult::Success.into()).await.unwrap();
    };
    assert_eq!(tokio::join!(fixture.asked(5_000), settle).0, (32_000, Ok(())));
}

/// A worker that never settles may report to the breaker instead: that settles its probe.
#[tokio::test(start_paused = true)]
async fn a_report_to_the_breaker_settles_a_probe() {
    let fixture = Fixture::new("breaker = { failures = 1, open_for = \"30s\" }");
    fixture.record(CallResult::Failed).await;
    sleep(Duration::from_secs(30)).await;
    fixture.lease().await;
    assert_eq!(fixture.asked(0).await.1, refused("circuit_open"));
    fixture.record(CallResult::Success).await;
    assert_eq!(fixture.asked(0).await.1, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_disconnects_while_waiting_holds_no_lease_and_no_place() {
    let fixture = Fixture::new("max_concurrent = 1");
    let lease = fixture.lease().await;
    let gone = async {
        let waits = tokio::time::timeout(Duration::from_millis(100), fixture.ask(60_000));
        assert!(waits.await.is_err());
    };
    let settle = async {
        sleep(Duration::from_millis(300)).await;
        fixture.api.0.decider.try_end_call(&up(), lease, CallResult::Success.into()).await.unwrap();
    };
    assert_eq!(tokio::join!(gone, fixture.asked(5_000), settle).1, (300, Ok(())));
    assert_eq!(fixture.in_flight().await, 1);
}

/// The store has been asked and will grant, but the caller has disconnected.
#[tokio::test(start_paused = true)]
async fn a_grant_to_a_disconnected_caller_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().display());
    let fixture = Fixture::on(&store, "rate = \"1/min\"\nburst = 1");
    assert!(fixture.ask(0).now_or_never().is_none(), "the journal is being written");
    let view = fixture.api.0.store.upstreams().await.unwrap().remove(0);
    assert_eq!((view.in_flight, view.starts_last_minute), (0, 1), "it was granted and given back");
    assert_eq!(fixture.asked(0).await, (0, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_is_refused_when_the_process_stops() {
    let fixture = Fixture::new("max_concurrent = 1");
    fixture.lease().await;
    let stop = async {
        sleep(Duration::from_millis(100)).await;
        fixture.api.0.life.stopping.cancel();
    };
    let (first, behind, ()) = tokio::join!(fixture.ask(60_000), fixture.ask(60_000), stop);
    for problem in [first, behind] {
        assert_eq!(problem.unwrap_err().into_json()["type"], "urn:eclusa:problem:stopping");
    }
    assert_eq!(fixture.began.elapsed(), Duration::from_millis(100));
}
