//! Direct lanes with faults: in the caller's request, or in the answer.

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::json;

use super::program::Program;

async fn start(upstream: &FakeUpstream, of_lane: &str) -> Program {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nmax_body = \"128KiB\"\n\
         [lanes.fast]\nmode = \"direct\"\nchain = [\"a\"]\n{of_lane}\n\
         [upstreams.a]\nurl = \"{}\"\nbreaker = {{ failures = 1, open_for = \"1h\" }}\n",
        upstream.url()
    );
    Program::start(&config, &[]).await
}

async fn breaker(program: &Program) -> String {
    program.get("/v1/breakers/a").await.json()["state"].as_str().unwrap().to_owned()
}

/// A body of unknown length that turns out too long is the caller's error, not the upstream's failure.
#[tokio::test]
async fn a_body_that_grows_too_large_is_not_counted_against_the_upstream() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream, "").await;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
    let request = format!(
        "POST /proxy/fast/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{}0\r\n\r\n",
        chunk.repeat(3)
    );
    let answer = program.raw(request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(breaker(&program).await, "closed");
    assert_eq!(program.get("/proxy/fast/a").await.status, 200);
}

#[tokio::test]
async fn the_validation_rules_of_the_lane_apply() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream, "validate = { \"query.cpf\" = \"cpf\" }").await;
    assert_eq!(program.get("/proxy/fast/a?cpf=05227892181").await.status, 422);
    assert_eq!(program.get("/proxy/fast/a?cpf=05227892180&x=1").await.status, 422);
    assert_eq!(program.get("/proxy/fast/a?cpf=05227892180").await.status, 200);
    assert_eq!(upstream.requests().len(), 1);
}

/// Problem documents of the upstream are not rewritten.
#[tokio::test]
async fn a_problem_of_the_upstream_is_passed_on_unchanged() {
    let body = json!({ "title": "theirs" }).to_string();
    let answer = Answer::status(400).header("content-type", "application/problem+json").body(body.clone());
    let upstream = FakeUpstream::start(answer).await.unwrap();
    let program = start(&upstream, "").await;
    let answer = program.send("GET", "/proxy/fast/a", &[("accept", "application/xml")], "").await;
    assert_eq!((answer.text(), answer.header("content-type")), (body.as_str(), "application/problem+json"));
}

/// An answer that breaks off in the middle is a failure, whatever its status. The limits in its head still apply.
#[tokio::test]
async fn an_answer_that_breaks_off_counts_as_a_failure() {
    let broken =
        Answer::status(200).header("ratelimit", "\"day\";r=0;t=3600").body("the beginning").then_reset();
    let upstream = FakeUpstream::start(Behaviour::script([broken])).await.unwrap();
    let program = start(&upstream, "").await;
    let answer =
        program.raw(b"GET /proxy/fast/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let errors =
        program.metric("proxy_upstream_errors_total", &[("upstream", "a"), ("code", "connection_broken")]);
    assert_eq!(errors.await, 1);
    assert_eq!(program.metric("proxy_rate_limit_penalties_total", &[("upstream", "a")]).await, 1);
    // The lease is settled in a separate task; a stop waits for it, and the breaker's state is stored.
    let config = std::fs::read_to_string(program.dir.path().join("eclusa.toml")).unwrap();
    let (_, dir) = program.stop().await;
    let again = Program::start_in(dir, &config, &[]).await;
    assert_eq!(breaker(&again).await, "open");
    assert_eq!(again.gate("a", "upstream_retry_after").await["open"], false);
}

/// An error counts by its status even if its body breaks off: 429 does not open a breaker.
#[tokio::test]
async fn an_error_that_breaks_off_counts_as_what_it_is() {
    let broken = Answer::status(429).body("the beginning").then_reset();
    let upstream = FakeUpstream::start(Behaviour::script([broken])).await.unwrap();
    let program = start(&upstream, "").await;
    program.raw(b"GET /proxy/fast/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    for (code, count) in [("429", 1), ("connection_broken", 0)] {
        let labels = [("upstream", "a"), ("code", code)];
        assert_eq!(program.metric("proxy_upstream_errors_total", &labels).await, count, "{code}");
    }
    let config = std::fs::read_to_string(program.dir.path().join("eclusa.toml")).unwrap();
    let (_, dir) = program.stop().await;
    assert_eq!(breaker(&Program::start_in(dir, &config, &[]).await).await, "closed");
}

/// An unanswered request may have taken effect.
#[tokio::test]
async fn an_unanswered_request_moves_to_the_next_upstream_only_if_that_is_safe() {
    let [silent, well] = [Answer::reset(), Answer::status(200)].map(FakeUpstream::start);
    let (silent, well) = (silent.await.unwrap(), well.await.unwrap());
    let config = format!(
        "[lanes.fast]\nmode = \"direct\"\nchain = [\"a\", \"b\"]\n[upstreams.a]\nurl = \"{}\"\n[upstreams.b]\nurl = \"{}\"\n",
        silent.url(),
        well.url()
    );
    let program = Program::start(&config, &[]).await;
    let put = program.send("PUT", "/proxy/fast/a", &[], "twice is once").await;
    assert_eq!((put.status, put.header("eclusa-upstream")), (200, "b"));
    let post = program.send("POST", "/proxy/fast/a", &[], "twice is twice").await;
    assert_eq!((post.status, silent.requests().len(), well.requests().len()), (502, 2, 1));
}
