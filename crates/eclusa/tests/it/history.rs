//! `GET /v1/history`: what happened in each minute, and what of it survives a restart.

use std::sync::Arc;
use std::time::Duration;

use eclusa::fake::{Answer, FakeUpstream};
use eclusa::store::{Ack, EmbeddedStore, RedisSettings, RedisStore};
use eclusa_conformance::ManualClock;
use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    Chain, Clock, Dispatch, HistoryOf, HistoryQuery, HistoryView, JobId, LaneSpec, Name, NewJob, Outcome,
    Report, Settlement, Span, Spec, Store, UpstreamSpec,
};
use serde_json::{Value, json};

use super::program::{Program, millis};
use super::redis_server::RedisServer;

/// `work` and `now` are answered, `broken` is not.
fn rules(good: &FakeUpstream, bad: &FakeUpstream) -> String {
    format!(
        "[lanes.work]\nchain = [\"good\"]\n[lanes.broken]\nchain = [\"bad\"]\nretry = {{ attempts = 1 }}\n\
         [lanes.now]\nmode = \"direct\"\nchain = [\"good\"]\n\
         [upstreams.good]\nurl = \"{}\"\n[upstreams.bad]\nurl = \"{}\"\nbreaker = {{ failures = 1, open_for = \"1h\" }}\n",
        good.url(),
        bad.url()
    )
}

async fn history(program: &Program, query: &str) -> Value {
    let answer = program.get(&format!("/v1/history?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// The sum over all points: the minute may end while the test runs.
fn sum(history: &Value, field: &str) -> u64 {
    history["points"].as_array().unwrap().iter().map(|point| point[field].as_u64().unwrap()).sum()
}

fn jobs(history: &Value) -> [u64; 5] {
    ["accepted", "started", "completed", "failed", "dropped"].map(|field| sum(history, field))
}

#[tokio::test]
async fn the_history_shows_what_happened_and_a_kill_loses_no_job_of_it() {
    let (good, bad) = (
        FakeUpstream::start(Answer::status(200)).await.unwrap(),
        FakeUpstream::start(Answer::status(503)).await.unwrap(),
    );
    let config = rules(&good, &bad);
    let program = Program::start(&config, &[]).await;
    for lane in ["work", "work", "work", "broken"] {
        let job = program.enqueue(lane, &json!({ "request": { "path": "/a" } })).await;
        program.finished(&job).await;
    }
    for _ in 0..2 {
        assert_eq!(program.get("/proxy/now/a").await.status, 200);
    }

    let work = history(&program, "lane=work&minutes=5").await;
    assert_eq!((&work["stepSec"], work["points"].as_array().unwrap().len()), (&json!(60), 5));
    assert_eq!(jobs(&work), [3, 3, 3, 0, 0]);
    let points = work["points"].as_array().unwrap();
    let times: Vec<_> = points.iter().map(|point| millis(&point["at"])).collect();
    assert!(times.windows(2).all(|two| two[1] - two[0] == 60_000) && times[0] % 60_000 == 0, "{work}");
    assert!(points[4]["partial"] == true && points[..4].iter().all(|point| point.get("partial").is_none()));
    assert_eq!((&points[4]["waiting"], &points[4]["processing"]), (&json!(0), &json!(0)));
    assert!(points.iter().any(|point| point["waitMs"]["p95"].is_u64()), "{work}");
    assert!(work.get("transitions").is_none());
    assert_eq!(jobs(&history(&program, "lane=broken").await), [1, 1, 0, 1, 0]);
    // The end of a direct request is reported after its answer.
    program.until("/v1/history?lane=now&minutes=5", |answer| sum(&answer.json(), "completed") == 2).await;
    let all = history(&program, "minutes=5").await;
    assert_eq!(jobs(&all), [6, 6, 5, 1, 0]);
    assert!(all["points"].as_array().unwrap().iter().any(|point| point["waitMs"]["p50"].is_u64()));

    let good = history(&program, "upstream=good").await;
    assert_eq!((good["points"].as_array().unwrap().len(), sum(&good, "calls")), (60, 5));
    let ok = |point: &Value| point["statuses"]["200"].as_u64().unwrap_or_default();
    assert_eq!(good["points"].as_array().unwrap().iter().map(ok).sum::<u64>(), 5);
    assert_eq!((sum(&good, "errors"), &good["transitions"]), (0, &json!([])));
    let bad = history(&program, "upstream=bad&minutes=1440").await;
    assert_eq!((sum(&bad, "calls"), sum(&bad, "errors")), (1, 1));
    let opened = &bad["transitions"][0];
    assert_eq!(
        (&opened["gate"], &opened["event"], &opened["upstream"]),
        (&json!("breaker"), &json!("open"), &json!("bad"))
    );
    assert_eq!(millis(&opened["until"]) - millis(&opened["at"]), 3_600_000);

    let dir = program.kill().await;
    let program = Program::start_in(dir, &config, &[]).await;
    assert_eq!(jobs(&history(&program, "lane=work").await), [3, 3, 3, 0, 0]);
    assert_eq!(jobs(&history(&program, "lane=broken").await), [1, 1, 0, 1, 0]);
    assert_eq!(history(&program, "upstream=bad").await["transitions"], bad["transitions"]);
    let job = program.enqueue("work", &json!({ "request": { "path": "/a" } })).await;
    program.finished(&job).await;
    assert_eq!(jobs(&history(&program, "lane=work").await), [4, 4, 4, 0, 0], "it goes on");
}

#[tokio::test]
async fn a_wrong_question_about_the_history_says_what_is_wrong() {
    let (good, bad) = (
        FakeUpstream::start(Answer::status(200)).await.unwrap(),
        FakeUpstream::start(Answer::status(503)).await.unwrap(),
    );
    let program = Program::start(&rules(&good, &bad), &[]).await;
    for (query, status, says) in [
        ("lane=none", 404, "There is no lane `none`"),
        ("upstream=none", 404, "There is no upstream `none`"),
        ("lane=work&upstream=good", 422, "cannot be combined with `lane`"),
        ("minutes=0", 422, "must be 1 to 1440"),
        ("minutes=1441", 422, "must be 1 to 1440"),
        ("minutes=soon", 422, "must be a whole number"),
        ("hours=1", 422, "hours"),
    ] {
        let answer = program.get(&format!("/v1/history?{query}")).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
        assert!(answer.text().contains(says), "{query}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_bounded_key_sees_the_history_of_its_lanes_only() {
    let (good, bad) = (
        FakeUpstream::start(Answer::status(200)).await.unwrap(),
        FakeUpstream::start(Answer::status(503)).await.unwrap(),
    );
    let key = |name: &str, role: &str, more: &str| {
        let secret = name.repeat(16);
        format!("[[auth.keys]]\nname = \"{name}\"\nrole = \"{role}\"\nkey = \"{secret}\"\n{more}\n")
    };
    let keys = [
        key("aa", "admin", ""),
        key("ww", "viewer", "lanes = [\"work\"]"),
        key("bb", "viewer", "lanes = [\"work\", \"broken\"]"),
        key("pp", "producer", ""),
    ];
    let program = Program::start(&format!("{}{}", rules(&good, &bad), keys.concat()), &[]).await;
    let ask = async |name: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {}", name.repeat(16));
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        program.send(method, path, &headers, body).await
    };
    for lane in ["work", "work", "broken"] {
        let job = json!({ "request": { "path": "/a" } }).to_string();
        let put = ask("aa", "POST", &format!("/v1/lanes/{lane}/jobs"), &job).await.json();
        let path = format!("/v1/jobs/{}/wait?timeout=60", put["jobId"].as_str().unwrap());
        assert_eq!(ask("aa", "GET", &path, "").await.status, 200);
    }
    let seen = async |name: &str| ask(name, "GET", "/v1/history", "").await.json();
    let waits =
        |history: &Value| history["points"].as_array().unwrap().iter().any(|one| !one["waitMs"].is_null());
    let (all, work, both) = (seen("aa").await, seen("ww").await, seen("bb").await);
    assert_eq!((sum(&all, "accepted"), sum(&work, "accepted"), sum(&both, "accepted")), (3, 2, 3));
    assert!(waits(&all) && waits(&work) && !waits(&both), "percentiles cannot be added up");
    for (path, status) in [
        ("/v1/history?lane=work", 200),
        ("/v1/history?lane=broken", 403),
        ("/v1/history?upstream=good", 200),
        ("/v1/history?upstream=bad", 403),
    ] {
        assert_eq!(ask("ww", "GET", path, "").await.status, status, "{path}");
    }
    assert_eq!(ask("pp", "GET", "/v1/history", "").await.status, 403);
    assert_eq!(program.get("/v1/history").await.status, 401);
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spec() -> Spec {
    let lane = LaneSpec::new(name("work"), Chain::new(vec![name("up")]).unwrap());
    Spec::new(vec![lane], vec![UpstreamSpec::new(name("up"), GateSpecs::default())]).unwrap()
}

/// Counts something in each of three minutes, then compares what is known before and after a restart.
async fn check<S: Store>(clock: &ManualClock, open: impl Fn() -> S) {
    let store = open();
    for id in 0..3_u64 {
        let job = NewJob::new(JobId(u128::from(id)), name("work"), "acme", *b"x");
        store.enqueue(vec![job]).await.unwrap();
        clock.advance(Span::from_secs(5));
        let (lane, lease, nonce) = (name("work"), Span::from_secs(10), id + 1);
        let ask = Dispatch { lane, max: 1, lease, nonce, wait: Span::ZERO, denied: None };
        let lease = store.dispatch(ask).await.unwrap().grants[0].lease;
        let took = Some(Span::from_millis(100));
        let report = Report { status: Some(201), took, ..Report::from(CallResult::Success) };
        let settlement = Settlement { lease, report, outcome: Outcome::Done, answer: None, unsent: None };
        store.settle(vec![settlement]).await.unwrap();
        clock.advance(Span::from_secs(55));
    }
    store.sweep().await.unwrap();
    let all = async |store: &S| {
        let mut all = Vec::new();
        for of in [HistoryOf::AllLanes, HistoryOf::Lanes(vec![name("work")]), HistoryOf::Upstream(name("up"))]
        {
            all.push(store.history(HistoryQuery { of, minutes: 6 }).await.unwrap());
        }
        all
    };
    let before = all(&store).await;
    let [HistoryView::Lanes { points: lanes, .. }, _, HistoryView::Upstream { points: calls, .. }] =
        &before[..]
    else {
        panic!("{before:?}")
    };
    assert_eq!(lanes.iter().filter(|point| point.wait.is_some()).count(), 3, "{lanes:?}");
    assert_eq!(
        calls.iter().filter(|point| point.calls == 1 && point.latency.is_some()).count(),
        3,
        "{calls:?}"
    );
    drop(store);
    assert_eq!(all(&open()).await, before);
}

#[tokio::test]
async fn finished_minutes_survive_a_restart_on_disk() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::default()));
    check(&clock, || EmbeddedStore::open(dir.path(), Ack::Write, &spec(), clock.clone()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_minutes_survive_a_takeover_on_redis() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::default()));
    let settings = RedisSettings {
        term: Duration::from_millis(20),
        clock: Some(clock.clone() as Arc<dyn Clock>),
        ..RedisSettings::default()
    };
    check(&clock, || RedisStore::open(&server.url(), &settings, &spec()).unwrap()).await;
}
