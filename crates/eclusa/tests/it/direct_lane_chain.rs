//! The chain of a direct lane: when the next upstream is tried, and when that would be unsafe.

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::json;

use super::http_upstream::free_port;
use super::program::Program;

async fn start(first: &str, rules: &str, second: &FakeUpstream, of_lane: &str) -> Program {
    let config = format!(
        "[lanes.fast]\nmode = \"direct\"\nchain = [\"a\", \"b\"]\n{of_lane}\n\
         [upstreams.a]\nurl = \"{first}\"\n{rules}\n[upstreams.b]\nurl = \"{}\"\n",
        second.url()
    );
    Program::start(&config, &[]).await
}

async fn well() -> FakeUpstream {
    FakeUpstream::start(Answer::status(200).body("b")).await.unwrap()
}

async fn answered_by(program: &Program, method: &str) -> (u16, String) {
    let answer = program.send(method, "/proxy/fast/x", &[], "small").await;
    (answer.status, answer.header("eclusa-upstream").to_owned())
}

#[tokio::test]
async fn errors_that_may_pass_are_asked_of_the_next_whatever_the_method() {
    for status in [408, 425, 429, 500, 502, 503, 504] {
        let (first, second) = (FakeUpstream::start(Answer::status(status)).await.unwrap(), well().await);
        let program = start(&first.url(), "", &second, "").await;
        assert_eq!(answered_by(&program, "POST").await, (200, "b".into()), "{status}");
        let failed = [("upstream", "a"), ("code", &*status.to_string())];
        assert_eq!(program.metric("proxy_upstream_errors_total", &failed).await, 1, "{status}");
    }
}

/// The lane's limits count requests, not the upstreams that a request was sent to.
#[tokio::test]
async fn a_request_that_is_asked_of_the_next_passes_the_limits_of_the_lane_once() {
    let (first, second) = (FakeUpstream::start(Answer::status(503)).await.unwrap(), well().await);
    let limits = "rpm = 2\nrate = \"2/h\"\nburst = 2\nconcurrency = 1";
    let program = start(&first.url(), "", &second, limits).await;
    for _ in 0..2 {
        assert_eq!(answered_by(&program, "POST").await, (200, "b".into()));
        program.until("/v1/upstreams/b", |answer| answer.json()["inFlight"] == 0).await;
    }
    assert_eq!(answered_by(&program, "POST").await.0, 429);
    assert_eq!((first.requests().len(), second.requests().len()), (2, 2));
}

/// Nothing was sent, so any request may go to another upstream, and nothing is spent.
#[tokio::test]
async fn without_a_connection_the_next_is_asked_and_nothing_is_spent() {
    let second = well().await;
    let rules = "rpm = 1\nrate = \"1/h\"\nburst = 1\nbreaker = { failures = 3, open_for = \"1h\" }";
    let program = start(&format!("http://127.0.0.1:{}", free_port()), rules, &second, "").await;
    for _ in 0..3 {
        assert_eq!(answered_by(&program, "POST").await, (200, "b".into()));
    }
    let refused = [("upstream", "a"), ("code", "connect_failed")];
    assert_eq!(program.metric("proxy_upstream_errors_total", &refused).await, 3);
    let gates = program.get("/v1/upstreams/a").await.json();
    let of = |reason: &str| {
        let gates = gates["gates"].as_array().unwrap();
        gates.iter().find(|gate| gate["reason"] == reason).unwrap()["open"].clone()
    };
    assert_eq!(
        [of("window"), of("rate_limit"), of("circuit_open")],
        [json!(true), json!(true), json!(false)]
    );
}

/// An unanswered request may have taken effect.
#[tokio::test]
async fn without_an_answer_in_time_the_next_is_asked_only_where_that_does_no_harm() {
    let (silent, second) = (FakeUpstream::start(Answer::hang()).await.unwrap(), well().await);
    let program = start(&silent.url(), "timeout = \"200ms\"", &second, "").await;
    assert_eq!(answered_by(&program, "PUT").await, (200, "b".into()));
    assert_eq!(answered_by(&program, "POST").await, (504, String::new()));
    assert_eq!((silent.requests().len(), second.requests().len()), (2, 1));
}

#[tokio::test]
async fn one_that_is_busy_or_hot_is_passed_over() {
    let (latch, second) = (Latch::default(), well().await);
    let answers = [Answer::status(200).after(&latch), Answer::status(503)];
    let first = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let program = start(&first.url(), "max_concurrent = 1\ncooldown = [\"1h\"]", &second, "").await;
    let (held, ()) = tokio::join!(answered_by(&program, "POST"), async {
        first.wait_for(1).await;
        assert_eq!(answered_by(&program, "POST").await, (200, "b".into()), "it is busy");
        latch.open();
    });
    assert_eq!(held, (200, "a".into()));
    program.until("/v1/upstreams/a", |answer| answer.json()["inFlight"] == 0).await;
    for _ in 0..3 {
        assert_eq!(answered_by(&program, "POST").await, (200, "b".into()), "it failed and is hot");
    }
    assert_eq!(first.requests().len(), 2);
}

/// The lane's only slot moves from one upstream to the next.
#[tokio::test]
async fn a_request_that_moves_on_does_not_block_itself() {
    let (failing, second) = (FakeUpstream::start(Answer::status(503)).await.unwrap(), well().await);
    let program = start(&failing.url(), "", &second, "concurrency = 1").await;
    for _ in 0..20 {
        assert_eq!(answered_by(&program, "POST").await, (200, "b".into()));
        program.until("/v1/upstreams/b", |answer| answer.json()["inFlight"] == 0).await;
    }
}

/// A body without a declared length is buffered too, while it is small.
#[tokio::test]
async fn a_small_body_of_unknown_length_can_be_sent_again() {
    let (failing, second) = (FakeUpstream::start(Answer::status(503)).await.unwrap(), well().await);
    let program = start(&failing.url(), "", &second, "").await;
    let head = "POST /proxy/fast/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let answer = program.raw(format!("{head}3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("eclusa-upstream: b"), "{answer}");
    for upstream in [&failing, &second] {
        assert_eq!(&upstream.requests()[0].body[..], b"onetwo");
    }
    // A body that is too large to buffer is sent once.
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
    let answer = program.raw(format!("{head}{chunk}1\r\nx\r\n0\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("eclusa-upstream: a"), "{answer}");
    assert_eq!((failing.requests()[1].body.len(), second.requests().len()), (0x1_0001, 1));
}

/// In the DICT's own format, which its clients expect.
#[tokio::test]
async fn a_denial_is_returned_in_the_xml_of_the_dict_api() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = format!(
        "[lanes.dict]\nmode = \"direct\"\nchain = [\"a\"]\n[upstreams.a]\nurl = \"{}\"\nrpm = 1\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    assert_eq!(program.get("/proxy/dict/entries/x").await.status, 200);
    let answer = program.send("GET", "/proxy/dict/entries/x", &[("accept", "application/xml")], "").await;
    assert_eq!((answer.status, answer.header("content-type")), (429, "application/problem+xml"));
    let text = answer.text();
    let said = "<type>https://dict.pi.rsfn.net.br/api/v2/error/RateLimited</type><title>Rate limited</title><status>429</status>";
    assert!(text.contains(said), "{text}");
    assert!(
        !answer.header("retry-after").is_empty()
            && answer.header("ratelimit").starts_with("\"a-window\";r=0;t=")
    );
}
