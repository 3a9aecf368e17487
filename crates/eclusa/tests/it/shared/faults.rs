//! A Redis server that runs but does not work: frozen, busy, unstable.

use std::time::Duration;

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;
use tokio::time::Instant;

use super::{begin, lane, start};
use crate::program::{Answer as Answered, PATIENCE, Program};
use crate::redis_server::RedisServer;

/// The longest that a refusal may take, seen by the caller, once the outage is known.
const SOON: Duration = Duration::from_millis(250);
/// How long Redis may be silent before the outage is known (`store.timeout`).
const TIMEOUT: Duration = Duration::from_secs(2);

fn durable() -> RedisServer {
    RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"])
}

/// Denials of gates take no longer either, once the outage is known.
async fn denied_in_time(program: &Program) {
    for _ in 0..2 {
        let asked = Instant::now();
        let denied = [
            program.get("/proxy/straight/a").await,
            program.post("/v1/limits/spent/acquire", &json!({})).await,
        ];
        assert!(asked.elapsed() < 2 * SOON, "{:?}", asked.elapsed());
        for answer in denied {
            assert_eq!((answer.status, answer.header("retry-after").is_empty()), (429, false));
        }
    }
}

/// Intake is refused: the first caller waits until the outage is known, later ones do not wait at all. Readers do not wait
/// either.
async fn refused_in_time(program: &Program) {
    for call in 0..5 {
        let asked = Instant::now();
        let refused = program.post("/v1/lanes/work/jobs", &json!({ "request": {} })).await;
        let took = asked.elapsed();
        assert_eq!((refused.status, refused.header("retry-after").is_empty()), (503, false));
        assert!(took < if call == 0 { TIMEOUT + SOON } else { SOON }, "{took:?}");
    }
    for (path, status) in [("/readyz", 503), ("/livez", 200), ("/metrics", 200)] {
        let asked = Instant::now();
        assert_eq!(program.get(path).await.status, status, "{path}");
        assert!(asked.elapsed() < SOON, "{path} {:?}", asked.elapsed());
    }
}

#[tokio::test]
async fn a_frozen_redis_is_refused_in_time_and_work_resumes_when_it_thaws() {
    let mut redis = durable();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let more = "[lanes.forgetful]\nchain = [\"up\"]\nkeep = { max = 0 }\n\
                [lanes.straight]\nmode = \"direct\"\nchain = [\"spent\"]\n\
                [upstreams.spent]\nurl = \"http://127.0.0.1:9\"\nrate = \"1/h\"\nburst = 1\n";
    let program = start(&redis, &format!("{more}{}", lane(&upstream.url(), "", ""))).await;
    assert_eq!(program.post("/v1/limits/spent/acquire", &json!({})).await.status, 200);
    program.pause("work").await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    redis.pause();
    refused_in_time(&program).await;
    denied_in_time(&program).await;
    let asked = Instant::now();
    let refused = program.send("GET", "/proxy/forgetful/a", &[("prefer", "wait=30")], "").await;
    assert!(refused.status == 503 && asked.elapsed() < SOON, "{} {:?}", refused.status, asked.elapsed());
    assert_eq!((program.get("/readyz").await.status, program.get("/livez").await.status), (503, 200));
    redis.resume();
    program.until("/readyz", |answer| answer.status == 200).await;
    program.resume("work").await;
    assert_eq!(program.ended(&job).await["status"], "completed");
}

/// Also for a process that asks another one, and for the first call that a gate denies.
#[tokio::test]
async fn a_frozen_redis_costs_the_first_caller_of_each_process_the_timeout() {
    let mut redis = durable();
    let more = "[lanes.straight]\nmode = \"direct\"\nchain = [\"spent\"]\n\
                [upstreams.spent]\nurl = \"http://127.0.0.1:9\"\nrate = \"1/h\"\nburst = 1\n";
    let rules = format!("{more}{}", lane("http://127.0.0.1:9", "", ""));
    let owner = start(&redis, &rules).await;
    assert_eq!(owner.post("/v1/limits/spent/acquire", &json!({})).await.status, 200);
    let asker = start(&redis, &rules).await;
    let two = |answer: &Answered| answer.json()["instances"].as_array().unwrap().len() == 2;
    tokio::join!(owner.until("/v1/health", two), asker.until("/v1/health", two));
    redis.pause();
    let first_denied = async |program: &Program| {
        let asked = Instant::now();
        let denied = program.post("/v1/limits/spent/acquire", &json!({})).await;
        assert_eq!((denied.status, denied.header("retry-after").is_empty()), (429, false));
        assert!(asked.elapsed() < TIMEOUT + SOON, "{:?}", asked.elapsed());
    };
    tokio::join!(first_denied(&owner), first_denied(&asker));
    for program in [&owner, &asker] {
        denied_in_time(program).await;
        refused_in_time(program).await;
    }
}

/// A server that refuses with a reason is asked again later. A refused job is not accepted, but may be stored later.
#[tokio::test]
async fn a_server_that_is_a_replica_for_a_while_takes_nothing_in_meanwhile() {
    let redis = durable();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&redis, &lane(&upstream.url(), "", "")).await;
    redis.command(&["REPLICAOF", "127.0.0.1", "9"]);
    let refused = program.post("/v1/lanes/work/jobs", &json!({ "request": { "path": "/unknown" } })).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    for words in ["Not confirmed", "read only replica"] {
        assert!(refused.text().contains(words), "{}", refused.text());
    }
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    program.until("/readyz", |answer| answer.status == 200).await;
    let job = program.enqueue("work", &json!({ "request": { "path": "/accepted" } })).await;
    assert_eq!(program.ended(&job).await["status"], "completed");
    let calls = |path: &str| upstream.requests().iter().filter(|seen| seen.path == path).count();
    assert_eq!(calls("/accepted"), 1);
    assert!(calls("/unknown") <= 1);
}

#[tokio::test]
async fn a_server_that_is_busy_with_somebody_s_script_takes_nothing_in_meanwhile() {
    let redis = RedisServer::with(&["--busy-reply-threshold", "50"]);
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&redis, &lane(&upstream.url(), "", "")).await;
    let url = redis.url();
    let busy = std::thread::spawn(move || {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut connection)
    });
    let is_busy = |answer: &Answered| answer.text().to_lowercase().contains("busy");
    program.until("/readyz", is_busy).await;
    refused_in_time(&program).await;
    redis.command(&["SCRIPT", "KILL"]);
    busy.join().unwrap().unwrap_err();
    program.until("/readyz", |answer| answer.status == 200).await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    assert_eq!(program.ended(&job).await["status"], "completed");
}

#[tokio::test]
async fn a_stopped_server_refuses_in_time() {
    let mut redis = durable();
    let program = start(&redis, &lane("http://127.0.0.1:9", "", "")).await;
    redis.stop();
    refused_in_time(&program).await;
}

#[tokio::test]
async fn a_process_that_starts_with_a_frozen_server_waits_for_it() {
    let mut redis = durable();
    redis.pause();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = begin(&redis, "all", &lane(&upstream.url(), "", "")).await;
    refused_in_time(&program).await;
    redis.resume();
    program.until("/readyz", |answer| answer.status == 200).await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    assert_eq!(program.ended(&job).await["status"], "completed");
}

/// Jobs that are accepted before and after the fault.
const LOAD: usize = 20;

/// Accepted jobs are done, refused ones are not, and nothing is done twice.
async fn survives(redis: &mut RedisServer, trouble: impl AsyncFn(&mut RedisServer)) {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = lane(&upstream.url(), "", "");
    let (first, second) = tokio::join!(start(redis, &rules), start(redis, &rules));
    let stop = tokio_util::sync::CancellationToken::new();
    let count = tokio::sync::watch::Sender::new(0);
    let more_accepted = async || {
        let (mut counted, before) = (count.subscribe(), *count.borrow());
        let more = counted.wait_for(|count| *count >= before + LOAD);
        let more = tokio::time::timeout(PATIENCE, more).await;
        drop(more.unwrap_or_else(|_| panic!("nothing is accepted")).unwrap());
    };
    let load = async |program: &Program| {
        let mut accepted = Vec::new();
        for number in 0.. {
            if stop.is_cancelled() {
                break;
            }
            let path = format!("/{}/{number}", program.url().rsplit(':').next().unwrap());
            let answer = program.post("/v1/lanes/work/jobs", &json!({ "request": { "path": path } })).await;
            match answer.status {
                202 => {
                    accepted.push(path);
                    count.send_modify(|count| *count += 1);
                }
                503 => {}
                other => panic!("{other}: {}", answer.text()),
            }
        }
        accepted
    };
    let troubled = async {
        more_accepted().await;
        trouble(redis).await;
        first.until("/readyz", |answer| answer.status == 200).await;
        more_accepted().await;
        stop.cancel();
    };
    let (one, other, ()) = tokio::join!(load(&first), load(&second), troubled);
    let accepted: std::collections::BTreeSet<_> = one.into_iter().chain(other).collect();
    let idle = |answer: &Answered| {
        let lane = answer.json();
        lane["queued"]["normal"] == 0 && lane["pending"] == 0 && lane["processing"] == 0
    };
    first.until("/v1/lanes/work", idle).await;
    let called: Vec<_> = upstream.requests().into_iter().map(|seen| seen.path).collect();
    let once: std::collections::BTreeSet<_> = called.iter().cloned().collect();
    assert_eq!(called.len(), once.len(), "something was called twice");
    let lost: Vec<_> = accepted.difference(&once).collect();
    assert!(!accepted.is_empty() && lost.is_empty(), "{} accepted, lost: {lost:?}", accepted.len());
}

#[tokio::test]
async fn under_load_a_server_comes_and_goes() {
    survives(&mut durable(), async |redis| {
        for _ in 0..3 {
            redis.stop();
            tokio::time::sleep(Duration::from_millis(400)).await;
            redis.start_again();
            tokio::time::sleep(Duration::from_millis(600)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn under_load_a_server_freezes_now_and_then() {
    survives(&mut durable(), async |redis| {
        for _ in 0..3 {
            redis.pause();
            tokio::time::sleep(Duration::from_millis(700)).await;
            redis.resume();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
    .await;
}
