//! "protegida por um circuit breaker": it opens, lets one probe through, and closes or opens again.

use eclusa::fake::{Answer, Behaviour, Latch};
use serde_json::{Value, json};

use super::super::program::{end, millis, starts};
use super::{Proxy, cpf, score};

/// State, openings, half-openings, closings.
async fn circuit(proxy: &Proxy) -> [u64; 4] {
    [
        proxy.of_bureau("proxy_circuit_state").await,
        proxy.of_bureau("proxy_circuit_open_total").await,
        proxy.of_bureau("proxy_circuit_half_open_total").await,
        proxy.of_bureau("proxy_circuit_close_total").await,
    ]
}

async fn breaker(proxy: &Proxy) -> Value {
    proxy.program.get("/v1/breakers/bureau").await.json()
}

/// A proxy whose breaker has just opened for `window` after these two failures, with a job that waits for it.
async fn opened(failures: [Answer; 2], then: Option<Answer>, window: &str, timeout: &str) -> (Proxy, String) {
    let answers = failures.into_iter().chain(then);
    let env = [
        ("BREAKER_FAILURE_THRESHOLD", "2"),
        ("BREAKER_OPEN_WINDOW_MS", window),
        ("REQUEST_TIMEOUT_MS", timeout),
    ];
    let proxy = Proxy::start(Behaviour::script(answers), &env).await;
    assert_eq!(circuit(&proxy).await, [0, 0, 0, 0]);
    for number in 0..2 {
        assert_eq!(breaker(&proxy).await["failures"], number);
        let job = proxy.take_in(&cpf(number), &[]).await;
        assert_eq!(proxy.program.finished(&job).await["status"], "failed");
    }
    let waiting = proxy.take_in(&cpf(10), &[]).await;
    (proxy, waiting)
}

fn failures() -> [Answer; 2] {
    [Answer::status(500), Answer::reset()]
}

/// `BREAKER_FAILURE_THRESHOLD` consecutive failures open it; then nothing is sent.
#[tokio::test]
async fn failures_in_a_row_open_the_breaker() {
    let (proxy, waiting) = opened([Answer::status(500), Answer::hang()], None, "600000", "1000").await;
    assert_eq!(circuit(&proxy).await, [1, 1, 0, 0]);
    let breaker = breaker(&proxy).await;
    assert_eq!((&breaker["state"], &breaker["degraded"]), (&json!("open"), &json!(true)));
    assert_eq!(proxy.program.why(&waiting).await, "circuit_open");
    assert_eq!(proxy.program.get("/v1/health").await.json()["status"], "degraded");
    assert_eq!(proxy.bureau.requests().len(), 2);
}

/// A success in between resets the count.
#[tokio::test]
async fn failures_that_are_not_in_a_row_do_not_open_it() {
    let answers = [Answer::status(500), score("1"), Answer::status(500), score("2")];
    let proxy = Proxy::start(Behaviour::script(answers), &[("BREAKER_FAILURE_THRESHOLD", "2")]).await;
    for (number, failures) in (0..).zip([1, 0, 1, 0]) {
        let job = proxy.take_in(&cpf(number), &[]).await;
        proxy.program.finished(&job).await;
        assert_eq!(breaker(&proxy).await["failures"], failures);
    }
    assert_eq!(circuit(&proxy).await, [0, 0, 0, 0]);
}

/// After `BREAKER_OPEN_WINDOW_MS` exactly one probe is sent; its success closes the breaker and the rest follows.
#[tokio::test]
async fn one_probe_that_succeeds_closes_it() {
    let latch = Latch::default();
    let (proxy, probe) = opened(failures(), Some(score("1").after(&latch)), "400", "60000").await;
    let until = breaker(&proxy).await["degradedUntil"].clone();
    let rest = proxy.take_in(&cpf(11), &[]).await;
    proxy.bureau.wait_for(3).await;
    assert_eq!(circuit(&proxy).await, [2, 1, 1, 0]);
    assert_eq!(breaker(&proxy).await["state"], "half_open");
    assert_eq!(proxy.program.why(&rest).await, "circuit_open");
    latch.open();
    let probed = proxy.program.finished(&probe).await;
    assert_eq!(probed["status"], "completed");
    // The window may have been over before the request.
    if let Value::String(_) = until {
        assert!(starts(&probed)[0] >= millis(&until), "{probed} before {until}");
    }
    let rest = proxy.program.finished(&rest).await;
    assert_eq!(rest["status"], "completed");
    assert!(starts(&rest)[0] >= end(&probed), "{rest} before {probed}");
    assert_eq!(circuit(&proxy).await, [0, 1, 1, 1]);
    assert_eq!(proxy.bureau.requests().len(), 4);
}

/// A probe that fails opens it for another window.
#[tokio::test]
async fn a_probe_that_fails_opens_it_again() {
    let (proxy, probe) = opened(failures(), Some(Answer::status(502)), "300", "60000").await;
    let probed = proxy.program.finished(&probe).await;
    assert_eq!((&probed["status"], &probed["lastFailure"]["code"]), (&json!("failed"), &json!("502")));
    assert_eq!(proxy.of_bureau("proxy_circuit_open_total").await, 2);
    let next = proxy.take_in(&cpf(11), &[]).await;
    let next = proxy.program.finished(&next).await;
    assert_eq!(next["status"], "completed");
    assert!(starts(&next)[0] >= end(&probed) + 300, "{next} after {probed}");
    assert_eq!(circuit(&proxy).await, [0, 2, 2, 1]);
}
