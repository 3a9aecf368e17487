//! Shared limits of the sources, sentence by sentence, on its own example.

use futures_util::future::join_all;
use serde_json::json;

use super::{acquire, breaker, report};
use crate::program::{Program, eclusa, example};

async fn start(env: &[(&str, &str)]) -> Program {
    Program::start_example("shared-limits.toml", env).await
}

#[tokio::test]
async fn the_example_is_valid() {
    let output = eclusa().arg("check").arg(example("shared-limits.toml")).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("0 lanes and 2 upstreams"), "{text}");
}

/// Fifty failures of one worker, and another one sees it: the portal is degraded for 120 s.
#[tokio::test]
async fn consecutive_failures_open_the_breaker_for_all_processes() {
    let program = start(&[]).await;
    for (portal, failures) in [("pncp", 50), ("pcp", 30)] {
        join_all((1..failures).map(|_| report(&program, portal, "failure"))).await;
        let shown = breaker(&program, portal).await;
        assert_eq!((&shown["failures"], &shown["degraded"]), (&json!(failures - 1), &json!(false)));
        assert_eq!(acquire(&program, portal, &json!({})).await.status, 200);
        report(&program, portal, "failure").await;
        let shown = breaker(&program, portal).await;
        assert_eq!((&shown["failures"], &shown["state"]), (&json!(failures), &json!("open")));
        assert_eq!(report(&program, portal, "try-recover").await, shown, "it is too early");
        let health = program.get("/v1/health").await.json();
        assert_eq!(health["circuitBreakers"][portal]["degradedUntil"], shown["degradedUntil"]);
        let answer = acquire(&program, portal, &json!({ "wait": "5s" })).await;
        assert_eq!((answer.status, &answer.json()["reason"]), (429, &json!("circuit_open")));
        let after: u32 = answer.header("retry-after").parse().unwrap();
        assert!((60..=120).contains(&after), "{after}");
    }
}

#[tokio::test]
async fn ten_failures_at_once_are_ten() {
    let program = start(&[]).await;
    join_all((0..10).map(|_| report(&program, "pncp", "failure"))).await;
    assert_eq!(breaker(&program, "pncp").await["failures"], 10);
    let health = program.get("/v1/health").await.json();
    let expected = json!({ "failures": 10, "degraded": false, "degradedUntil": null });
    assert_eq!(health["circuitBreakers"]["pncp"], expected);
}

#[tokio::test]
async fn a_success_resets_it() {
    let program = start(&[("PNCP_CIRCUIT_BREAKER_THRESHOLD", "10")]).await;
    for verb in ["failure"; 10] {
        report(&program, "pncp", verb).await;
    }
    assert_eq!(breaker(&program, "pncp").await["degraded"], true);
    let expected =
        json!({ "name": "pncp", "failures": 0, "degraded": false, "degradedUntil": null, "state": "closed" });
    assert_eq!(report(&program, "pncp", "success").await, expected);
    assert_eq!(breaker(&program, "pncp").await, expected);
}

/// The window is one second here, and must really pass.
#[tokio::test]
async fn it_is_not_degraded_any_more_when_its_time_is_over_and_then_recovers() {
    let program =
        start(&[("PCP_CIRCUIT_BREAKER_THRESHOLD", "2"), ("PCP_CIRCUIT_BREAKER_COOLDOWN", "1")]).await;
    report(&program, "pcp", "failure").await;
    assert_eq!(report(&program, "pcp", "try-recover").await["failures"], 1, "a closed one goes on counting");
    report(&program, "pcp", "failure").await;
    // The waiting caller is admitted as the probe when the window is over.
    let probe = acquire(&program, "pcp", &json!({ "wait": "30s" })).await;
    assert_eq!(probe.status, 200, "{}", probe.text());
    let over = breaker(&program, "pcp").await;
    assert_eq!((&over["state"], &over["degraded"]), (&json!("half_open"), &json!(false)));
    let recovered = report(&program, "pcp", "try-recover").await;
    assert_eq!((&recovered["state"], &recovered["failures"]), (&json!("closed"), &json!(0)));
    for _ in 0..2 {
        assert_eq!(acquire(&program, "pcp", &json!({})).await.status, 200);
    }
}

/// Ten at once, then ten per second: the fifteen are through half a second later.
#[tokio::test]
async fn a_caller_over_the_limit_waits_instead_of_failing() {
    let program = start(&[]).await;
    let wish = json!({ "wait": "30s" });
    let answers = join_all((0..15).map(|_| acquire(&program, "pncp", &wish))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    let limiters = program.get("/v1/health").await.json()["rateLimiters"].take();
    assert_eq!(limiters["pncp"]["requestsLastMinute"], 15, "{limiters}");
    assert_eq!(limiters["pcp"], json!({ "tokensAvailable": 10.0, "requestsLastMinute": 0 }));
}
