//! Wrong input to the decision API.

use serde_json::{Value, json};

use super::{acquire, ends, lease, settle, start};
use crate::program::{Answer, Program};

#[track_caller]
fn assert_problem(answer: &Answer, status: u16, word: &str, detail: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    let problem = answer.json();
    assert_eq!(problem["type"], format!("urn:eclusa:problem:{word}"), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
}

#[tokio::test]
async fn an_unknown_upstream_is_not_found() {
    let program = start("").await;
    for path in ["/v1/limits/nobody/acquire", "/v1/breakers/nobody/try-recover"] {
        assert_problem(&program.post(path, &json!({})).await, 404, "not-found", "the config has up");
    }
    let answer = program.post("/v1/breakers/up/try-recover", &Value::Null).await;
    assert_problem(&answer, 404, "not-found", "has no breaker");
}

#[tokio::test]
async fn a_refused_report_changes_nothing() {
    let program = start("cooldown = [\"1h\"]").await;
    let answer = program.post("/v1/breakers/up/failure", &Value::Null).await;
    assert_problem(&answer, 404, "not-found", "has no breaker");
    let upstream = program.get("/v1/upstreams/up").await.json();
    assert_eq!((&upstream["gates"][0]["open"], &upstream["errorsLastMinute"]), (&json!(true), &json!(0)));
}

#[tokio::test]
async fn an_upstream_without_a_breaker_can_be_reset() {
    let program = start("cooldown = [\"1h\"]").await;
    ends(&program, &lease(&program).await, &json!(503)).await;
    let cooldown = async || program.get("/v1/upstreams/up").await.json()["gates"][0].clone();
    assert_eq!((&cooldown().await["reason"], &cooldown().await["open"]), (&json!("cooldown"), &json!(false)));
    let reset = program.post("/v1/breakers/up/reset", &Value::Null).await;
    assert_eq!((reset.status, &reset.json()["state"]), (200, &json!("closed")), "{}", reset.text());
    assert_eq!(cooldown().await["open"], true);
    program.logged("Breaker reset", &[("audit", "reset"), ("upstream", "up")]).await;
}

#[tokio::test]
async fn a_wish_that_cannot_be_understood_is_refused() {
    let program = start("rate = \"1/h\"\nburst = 1").await;
    let answer = program.send("POST", "/v1/limits/up/acquire", &[], "{\"wait\":").await;
    assert_problem(&answer, 400, "bad-request", "JSON");
    for (wish, detail) in [
        (json!({ "wait": "soon" }), "wait"),
        (json!({ "wait": -1 }), "has no unit"),
        (json!({ "wait": 1.5 }), "has no unit"),
        (json!({ "wait": true }), "wait"),
        (json!({ "patience": "5s" }), "patience: is unknown; known are `hold`, `request`, `scope`, `wait`"),
        (json!({ "scope": 7 }), "scope: must be text"),
        (json!({ "request": { "verb": "GET" } }), "request.verb: is unknown"),
        (json!("5s"), "body: must be an object"),
        (json!(5), "body: must be an object"),
    ] {
        assert_problem(&acquire(&program, "up", &wish).await, 422, "invalid", detail);
    }
    lease(&program).await;
}

#[tokio::test]
async fn a_settlement_that_cannot_be_understood_is_refused_and_the_lease_stays() {
    let program = start("").await;
    let held = lease(&program).await;
    let path = format!("/v1/limits/leases/{held}/settle");
    assert_problem(&program.send("POST", &path, &[], "").await, 400, "bad-request", "JSON");
    for (body, detail) in [
        (json!({}), "status"),
        (json!({ "status": "bad" }), "one of timeout, connection_error, not_sent"),
        (json!({ "status": "200" }), "must be an HTTP status"),
        (json!({ "status": 200.5 }), "must be an HTTP status"),
        (json!({ "status": 99 }), "from 100 to 599"),
        (json!({ "status": 600 }), "from 100 to 599"),
        (json!({ "status": 70_000 }), "must be an HTTP status"),
        (json!({ "status": 200, "cost": 3 }), "cost: is unknown"),
        (json!({ "status": 429, "retryAfter": "soon" }), "retryAfter"),
        (json!({ "status": 429, "retryAfter": "1\n2" }), "retryAfter"),
        (json!({ "status": 429, "retryAfter": 120 }), "retryAfter: must be text"),
        (json!({ "status": "timeout", "retryAfter": "120" }), "is not allowed without a response"),
    ] {
        assert_problem(&settle(&program, &held, &body).await, 422, "invalid", detail);
    }
    super::ends(&program, &held, &json!(204)).await;
}

#[tokio::test]
async fn a_lease_that_is_none_is_not_found() {
    let program = start("").await;
    let held = lease(&program).await;
    let (upstream, id) = held.split_once(':').unwrap();
    let (number, nonce) = id.rsplit_once('-').unwrap();
    let others = [
        "x".to_owned(),
        id.to_owned(),
        format!("{upstream}:"),
        format!("{upstream}:{number}"),
        format!("nobody:{id}"),
        format!("{upstream}:{number}0-{nonce}"),
        format!("{upstream}:{number}-ffffffff"),
    ];
    for other in others {
        let answer = settle(&program, &other, &json!({ "status": 200 })).await;
        assert_problem(&answer, 404, "not-found", "");
        let answer = program.post(&format!("/v1/limits/leases/{other}/extend"), &Value::Null).await;
        assert_problem(&answer, 404, "not-found", "");
    }
    super::ends(&program, &held, &json!(200)).await;
}

/// Producers may make calls and report them, but not inspect or reset breakers. A key for some lanes applies to their
/// upstreams.
#[tokio::test]
async fn a_role_may_do_its_own_and_no_more() {
    let key = |name: &str, role: &str, more: &str| {
        format!(
            "[[auth.keys]]\nname = \"{name}\"\nrole = \"{role}\"\nkey = \"{name}-0123456789abcdef\"\n{more}\n"
        )
    };
    let config = key("worker", "producer", "")
        + &key("bound", "producer", "lanes = [\"work\"]")
        + &key("viewer", "viewer", "")
        + &key("operator", "operator", "")
        + "[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\nbreaker = {}\n\
           [upstreams.far]\nurl = \"http://127.0.0.1:9\"\n";
    let program = Program::start(&config, &[]).await;
    let send = async |name: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {name}-0123456789abcdef");
        program.send("POST", path, &[("authorization", &bearer)], body).await
    };
    for (name, status) in [("worker", 200), ("bound", 200), ("operator", 200), ("viewer", 403)] {
        for path in ["/v1/limits/up/acquire", "/v1/breakers/up/try-recover", "/v1/breakers/up/success"] {
            assert_eq!(send(name, path, "").await.status, status, "{name} {path}");
        }
    }
    assert_eq!(send("worker", "/v1/breakers/up/reset", "").await.status, 403);
    assert_eq!(send("bound", "/v1/limits/far/acquire", "").await.status, 403);
    let far = send("worker", "/v1/limits/far/acquire", "").await.json();
    let far = format!("/v1/limits/leases/{}", far["leaseId"].as_str().unwrap());
    for (name, status) in [("viewer", 403), ("bound", 403), ("worker", 200)] {
        assert_eq!(send(name, &format!("{far}/extend"), "").await.status, status, "{name}");
        assert_eq!(send(name, &format!("{far}/settle"), "{\"status\":200}").await.status, status, "{name}");
    }
}

/// Starts a program with the keys `free`, `lane` and `tenant`, the last two bounded, and an upstream that two lanes share.
async fn with_bounded_keys(shared: &str) -> Program {
    let key = |name: &str, more: &str| {
        format!(
            "[[auth.keys]]\nname = \"{name}\"\nrole = \"operator\"\nkey = \"{name}-0123456789abcdef\"\n{more}\n"
        )
    };
    let config = key("free", "")
        + &key("lane", "lanes = [\"work\"]")
        + &key("tenant", "tenants = [\"acme\"]")
        + "[lanes.work]\nchain = [\"shared\", \"own\"]\n[lanes.other]\nchain = [\"shared\"]\n\
           [upstreams.own]\nurl = \"http://127.0.0.1:9\"\nbreaker = { failures = 2 }\n\
           [upstreams.shared]\nurl = \"http://127.0.0.1:9\"\n"
        + shared;
    Program::start(&config, &[]).await
}

/// Sends a request with the key of this name.
async fn send_as(program: &Program, name: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {name}-0123456789abcdef");
    program.send("POST", path, &[("authorization", &bearer)], &body.to_string()).await
}

/// A breaker is shared by all lanes and tenants of its upstream. A key bound to some of them settles its own leases, but what
/// it reports opens and closes nothing for the others.
#[tokio::test]
async fn a_settle_by_a_bounded_key_changes_no_shared_gate() {
    let shared = "breaker = { failures = 2 }\ncooldown = [\"1h\"]\nmax_concurrent = 1\n";
    let program = with_bounded_keys(shared).await;
    let send = async |name: &str, path: &str, body: &Value| send_as(&program, name, path, body).await;
    let call = async |name: &str, upstream: &str, end: Value| {
        let granted = send(name, &format!("/v1/limits/{upstream}/acquire"), &json!({})).await;
        assert_eq!(granted.status, 200, "{name} {upstream}: {}", granted.text());
        let lease = granted.json()["leaseId"].as_str().unwrap().to_owned();
        let settled = send(name, &format!("/v1/limits/leases/{lease}/settle"), &end).await;
        assert_eq!((settled.status, settled.json()), (200, json!({ "settled": true })));
    };
    let failures = async |upstream: &str| {
        let bearer = "Bearer free-0123456789abcdef";
        let path = format!("/v1/breakers/{upstream}");
        program.send("GET", &path, &[("authorization", bearer)], "").await.json()["failures"].clone()
    };
    let ends = [json!(500), json!("timeout"), json!("connection_error"), json!("not_sent"), json!(429)];
    for (name, status) in
        ["lane", "tenant"].into_iter().flat_map(|name| ends.iter().map(move |end| (name, end)))
    {
        call(name, "shared", json!({ "status": status })).await;
        assert_eq!(failures("shared").await, 0, "{name} {status}");
    }
    // Nor does a `Retry-After` close the upstream for the others.
    call("lane", "shared", json!({ "status": 429, "retryAfter": "600" })).await;
    // One failure that counts also starts the cooldown, so that no more calls pass.
    call("free", "shared", json!({ "status": 500 })).await;
    assert_eq!(failures("shared").await, 1);
    // What only the lanes of a key use is for the key to report on, unless it is for some tenants only.
    call("lane", "own", json!({ "status": 500 })).await;
    assert_eq!(failures("own").await, 1);
    call("tenant", "own", json!({ "status": 200 })).await;
    assert_eq!(failures("own").await, 1, "a success does not reset it");
    call("lane", "own", json!({ "status": 200 })).await;
    assert_eq!(failures("own").await, 0);
}

/// The result of a bounded key's call decides nothing, so as a probe it would keep the breaker half open for everybody, for
/// as long as the key extends its lease.
#[tokio::test]
async fn a_bounded_key_cannot_take_the_probe_of_a_shared_breaker() {
    let program = with_bounded_keys("breaker = { failures = 1, open_for = \"1ms\" }\n").await;
    let acquire = async |name: &str| send_as(&program, name, "/v1/limits/shared/acquire", &json!({})).await;
    let settle = async |granted: &Answer, status: u16| {
        let path = format!("/v1/limits/leases/{}/settle", granted.json()["leaseId"].as_str().unwrap());
        assert_eq!(send_as(&program, "free", &path, &json!({ "status": status })).await.status, 200);
    };
    settle(&acquire("free").await, 500).await;
    let refused = async || {
        for name in ["lane", "tenant"] {
            let denied = acquire(name).await;
            assert_eq!((denied.status, &denied.json()["reason"]), (429, &json!("circuit_open")), "{name}");
        }
    };
    let bearer = ("authorization", "Bearer free-0123456789abcdef");
    while program.send("GET", "/v1/breakers/shared", &[bearer], "").await.json()["state"] != "half_open" {}
    refused().await;
    let probe = acquire("free").await;
    assert_eq!(probe.status, 200, "{}", probe.text());
    refused().await;
    settle(&probe, 200).await;
    for name in ["lane", "tenant"] {
        assert_eq!(acquire(name).await.status, 200, "{name}");
    }
}
