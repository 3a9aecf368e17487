//! Processes on one Redis that share jobs but not the gates of direct calls (`shared_gates = false`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eclusa::fake::{Answer, FakeUpstream};
use eclusa::store::{RedisSettings, RedisStore};
use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{Admission, Admit, Clock, Name, Span, Spec, Store, Time, UpstreamSpec};
use serde_json::{Value, json};

use super::lane;
use crate::program::Program;
use crate::redis_server::RedisServer;

const UNSHARED: &[(&str, &str)] = &[("USE_REDIS_CIRCUIT_BREAKER", "false")];

async fn start(redis: &RedisServer, rules: &str, env: &[(&str, &str)]) -> Program {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nprefix = \"\"\nurl = \"{}\"\n{rules}",
        redis.url()
    );
    let program = Program::start(&config, env).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program
}

async fn failures(program: &Program) -> Value {
    program.get("/v1/breakers/up").await.json()["failures"].clone()
}

/// The number of admitted calls.
async fn granted(program: &Program) -> usize {
    let mut granted = 0;
    while program.post("/v1/limits/up/acquire", &json!({})).await.status == 200 {
        granted += 1;
    }
    granted
}

#[tokio::test]
async fn a_variable_makes_gates_each_process_s_own_and_nothing_is_lost() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let gates = "rate = \"10/h\"\nburst = 10\nbreaker = { failures = 3, open_for = \"60s\" }";
    let rules = lane(&upstream.url(), "", gates);
    let before = start(&redis, &rules, &[]).await;
    before.pause("work").await;
    let job = before.enqueue("work", &json!({ "request": {} })).await;
    before.post("/v1/breakers/up/failure", &json!({})).await;
    assert_eq!(before.stop().await.0.code(), Some(0));

    let (a, b) = tokio::join!(start(&redis, &rules, UNSHARED), start(&redis, &rules, UNSHARED));
    for _ in 0..3 {
        a.post("/v1/breakers/up/failure", &json!({})).await;
    }
    assert_eq!((failures(&a).await, failures(&b).await), (json!(3), json!(0)));
    a.post("/v1/breakers/up/reset", &json!({})).await;
    assert_eq!((granted(&a).await, granted(&b).await), (10, 10), "each has the whole limit");
    assert_eq!(redis.command(&["GET", "circuit_breaker:up:failures"]), "1", "what is shared is left alone");
    assert_eq!(redis.command(&["EXISTS", "rate_limiter:up"]), "0");
    b.resume("work").await;
    assert_eq!(b.ended(&job).await["status"], "completed", "jobs go by the shared gates");
    assert!(redis.command(&["HGET", "rate_limiter:up", "tokens"]).starts_with('9'));
    drop((a, b));

    let after = start(&redis, &rules, &[]).await;
    assert_eq!(granted(&after).await, 9, "the job took one");
    assert_eq!(after.get(&format!("/v1/jobs/{job}")).await.json()["status"], "completed");
}

#[tokio::test]
async fn a_word_that_says_neither_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let env = [("USE_REDIS_CIRCUIT_BREAKER", "perhaps")];
    let (code, output) = Program::refused(&dir, "[store]\nurl = \"memory:\"\n", &env).await;
    assert_eq!(code, Some(6), "{output}");
    assert!(output.contains("`USE_REDIS_CIRCUIT_BREAKER`, which is neither true nor false"), "{output}");
}

#[derive(Default)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> Time {
        Time::from_millis(1_700_000_000_000 + self.0.load(Ordering::Relaxed))
    }
}

/// A process that recovers the calls of another one releases that one's slot, not its own.
#[tokio::test]
async fn the_slot_of_a_lost_call_comes_back_to_whose_it_was() {
    let redis = RedisServer::start();
    let up = Name::new("up").unwrap();
    let gates = GateSpecs::default().with_slots("max_concurrent", 1).unwrap();
    let spec = Spec::new(Vec::new(), vec![UpstreamSpec::new(up.clone(), gates)]).unwrap();
    let clock = Arc::new(SetClock::default());
    let store = || {
        let clock: Arc<dyn Clock> = clock.clone();
        let settings = RedisSettings { shared_gates: false, clock: Some(clock), ..RedisSettings::default() };
        RedisStore::open(&redis.url(), &settings, &spec).unwrap()
    };
    let (a, b) = (store(), store());
    let ask = |seconds| Admit {
        lane: None,
        tenant: None,
        chain: vec![up.clone()],
        holds: Vec::new(),
        correlation: None,
        lease: Span::from_secs(seconds),
        nonce: 0,
        after: None,
        probe: true,
    };
    let granted = async |store: &RedisStore, seconds| {
        matches!(store.admit(ask(seconds)).await.unwrap().admission, Admission::Granted { .. })
    };
    assert!(granted(&a, 1).await && !granted(&a, 1).await);
    assert!(granted(&b, 60).await);
    clock.0.store(2_000, Ordering::Relaxed);
    b.sweep().await.unwrap();
    assert!(!granted(&b, 60).await, "it has its own call under way");
    assert!(granted(&a, 1).await);
    let state = a.record(up.clone(), CallResult::Failed).await.unwrap().unwrap();
    assert_eq!((state.in_flight, b.upstreams().await.unwrap()[0].in_flight), (1, 1));
}
