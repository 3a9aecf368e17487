//! Upstreams that behave badly: the caller learns what happened, and nothing else is affected.

use eclusa::fake::{Answer, FakeUpstream};

use super::super::http_upstream::free_port;
use super::super::program::Program;
use super::{assert_problem, start, start_with_timeout};

const WAIT: [(&str, &str); 1] = [("prefer", "wait=60")];

#[tokio::test]
async fn an_upstream_with_an_invalid_response_is_reported_as_such() {
    for (answer, status, word, code) in [
        (Answer::hang(), 504, "upstream-timeout", "timeout"),
        (Answer::status(200).body("half").then_hang(), 504, "upstream-timeout", "timeout"),
        (Answer::reset(), 502, "upstream-failed", "connection_broken"),
        (Answer::garbage(), 502, "upstream-failed", "connection_broken"),
        (Answer::truncated(), 502, "upstream-failed", "connection_broken"),
        (Answer::endless(100 << 20), 502, "upstream-failed", "response_too_large"),
    ] {
        // Only a response that never ends may time out.
        let timeout = if code == "timeout" { "300ms" } else { "60s" };
        let (program, _upstream) = start_with_timeout(answer.clone(), "", timeout).await;
        let waited = program.send("GET", "/proxy/work/a", &WAIT, "").await;
        let problem = assert_problem(&waited, status, word);
        assert_eq!(
            (&problem["jobStatus"], waited.header("eclusa-upstream")),
            (&"failed".into(), "up"),
            "{answer:?}"
        );
        let job = program.finished(waited.header("eclusa-job-id")).await;
        assert_eq!(job["lastFailure"]["code"], code, "{answer:?}: {job}");
        let errors = [("upstream", "up"), ("code", code)];
        assert_eq!(program.metric("proxy_upstream_errors_total", &errors).await, 1, "{answer:?}");
    }
}

#[tokio::test]
async fn an_unreachable_upstream_is_reported_as_such() {
    let config = format!(
        "[lanes.work]\nchain = [\"up\"]\nretry = {{ attempts = 1 }}\n[upstreams.up]\nurl = \"http://127.0.0.1:{}\"\n",
        free_port()
    );
    let program = Program::start(&config, &[]).await;
    let waited = program.send("GET", "/proxy/work/a", &WAIT, "").await;
    assert_problem(&waited, 502, "upstream-failed");
    assert_eq!(program.ended(waited.header("eclusa-job-id")).await["lastFailure"]["code"], "connect_failed");
}

/// A redirect may point anywhere, so it is passed to the caller.
#[tokio::test]
async fn a_redirect_is_passed_on_and_not_followed() {
    let elsewhere = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let answer = Answer::status(302).header("location", &elsewhere.url());
    let (program, upstream) = start(answer, "").await;
    let waited = program.send("GET", "/proxy/work/a", &WAIT, "").await;
    assert_eq!((waited.status, waited.header("location")), (302, elsewhere.url().as_str()));
    assert_eq!((upstream.requests().len(), elsewhere.requests().len()), (1, 0));
}

/// The upstream cannot set Eclusa's headers or those of the connection.
#[tokio::test]
async fn headers_of_an_upstream_cannot_speak_for_us() {
    let answer = Answer::status(200)
        .header("eclusa-attempts", "99")
        .header("keep-alive", "timeout=5")
        .header("x-own", "1");
    let (program, _upstream) = start(answer, "").await;
    let waited = program.send("GET", "/proxy/work/a", &WAIT, "").await;
    assert_eq!((waited.header("eclusa-attempts"), waited.header("x-own")), ("1", "1"));
    assert!(!waited.headers.contains_key("keep-alive"));
}
