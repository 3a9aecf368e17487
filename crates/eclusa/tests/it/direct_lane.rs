//! Direct lanes: the caller waits on the connection, bodies stream through, denied requests are refused.

use std::convert::Infallible;

use bytes::Bytes;
use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use futures_util::StreamExt;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::http_upstream::free_port;
use super::program::{PATIENCE, Program};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A direct lane `fast` over these upstreams, a queue over the first, and rules for the first. No lease expires.
async fn start(upstreams: &[&str], of_first: &str) -> Program {
    let names = ["a", "b", "c"];
    let chain: Vec<String> = names[..upstreams.len()].iter().map(|name| format!("\"{name}\"")).collect();
    let mut config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nmax_body = \"8128KiB\"\n[workers]\nlease = \"10m\"\n\
         [lanes.fast]\nmode = \"direct\"\nchain = [{}]\n[lanes.queue]\nchain = [\"a\"]\n",
        chain.join(", ")
    );
    for (name, url) in names.iter().zip(upstreams) {
        let rules = if *name == "a" { of_first } else { "" };
        config = format!("{config}[upstreams.{name}]\nurl = \"{url}\"\n{rules}\n");
    }
    Program::start(&config, &[]).await
}

fn client() -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn empty() -> Body {
    Empty::new().boxed_unsync()
}

/// A body that is sent part by part, and the sender of its parts.
fn in_parts() -> (mpsc::UnboundedSender<&'static str>, Body) {
    let (parts, come) = mpsc::unbounded_channel();
    let stream = futures_util::stream::unfold(come, async |mut come| {
        let part: &'static str = come.recv().await?;
        Some((Ok(Frame::data(Bytes::from_static(part.as_bytes()))), come))
    });
    (parts, BodyExt::boxed_unsync(StreamBody::new(stream.boxed())))
}

async fn begin(program: &Program, body: Body) -> http::Response<Incoming> {
    let request = http::Request::post(format!("{}/proxy/fast/a", program.url())).body(body).unwrap();
    tokio::time::timeout(PATIENCE, client().request(request)).await.unwrap().unwrap()
}

/// Returns once the first upstream has a free slot: a queued job has used it.
async fn slot_is_free(program: &Program) {
    let id = program.enqueue("queue", &json!({ "request": { "path": "/queued" } })).await;
    assert_eq!(program.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_request_passes_at_once_and_its_response_is_returned() {
    let answer = Answer::status(418).header("x-own", "1").body("teapot");
    let upstream = FakeUpstream::start(answer).await.unwrap();
    let program = start(&[&upstream.url()], "").await;
    let answer = program.send("PUT", "/proxy/fast/x/y?z=1", &[("x-mine", "2")], "hello").await;
    assert_eq!((answer.status, answer.text(), answer.header("x-own")), (418, "teapot", "1"));
    assert_eq!(answer.header("eclusa-upstream"), "a");
    let seen = &upstream.requests()[0];
    assert_eq!(
        (seen.method.as_str(), seen.path.as_str(), seen.query.as_deref()),
        ("PUT", "/x/y", Some("z=1"))
    );
    assert_eq!((&seen.body[..], &seen.headers["x-mine"]), (&b"hello"[..], &"2".parse().unwrap()));
}

/// The start of an answer arrives before its end.
#[tokio::test]
async fn an_answer_streams() {
    let upstream = FakeUpstream::start(Answer::status(200).body("first").then_hang()).await.unwrap();
    let program = start(&[&upstream.url()], "").await;
    let mut answer = begin(&program, empty()).await.into_body();
    let first = tokio::time::timeout(PATIENCE, answer.frame()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "first");
}

/// Far more than is ever buffered passes through.
#[tokio::test]
async fn a_large_answer_passes() {
    const SIZE: u64 = 50 << 20;
    let upstream = FakeUpstream::start(Answer::endless(SIZE)).await.unwrap();
    let program = start(&[&upstream.url()], "").await;
    let mut answer = begin(&program, empty()).await.into_body();
    let (mut size, mut parts) = (0, 0);
    while let Some(frame) = answer.frame().await {
        size += frame.unwrap().into_data().unwrap().len() as u64;
        parts += 1;
    }
    assert_eq!(size, SIZE);
    assert!(parts > 1);
}

/// The upstream receives the start of a request that is too large to buffer before the caller has sent its end.
#[tokio::test]
async fn a_request_streams() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let program = start(&[&format!("http://{}", upstream.local_addr().unwrap())], "").await;
    let (parts, body) = in_parts();
    let url = program.url();
    let calling = tokio::spawn(async move {
        client()
            .request(http::Request::post(format!("{url}/proxy/fast/a")).body(body).unwrap())
            .await
            .unwrap()
    });
    parts.send(String::leak("x".repeat(64 << 10))).unwrap();
    parts.send("the beginning").unwrap();
    let (mut connection, _) = tokio::time::timeout(PATIENCE, upstream.accept()).await.unwrap().unwrap();
    let mut seen = String::new();
    let mut read_until = async |text: &str| {
        while !seen.contains(text) {
            let mut part = [0; 4096];
            let size = tokio::time::timeout(PATIENCE, connection.read(&mut part)).await.unwrap().unwrap();
            assert!(size > 0, "{} bytes, none of them {text:?}", seen.len());
            seen.push_str(std::str::from_utf8(&part[..size]).unwrap());
        }
    };
    read_until("the beginning").await;
    parts.send("the end").unwrap();
    drop(parts);
    read_until("the end\r\n0\r\n\r\n").await;
    connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert_eq!(calling.await.unwrap().status(), 204);
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&[&upstream.url()], "").await;
    // The length is known before the first byte of the body.
    let head =
        format!("POST /proxy/fast/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 9 << 20);
    let answer = program.raw(head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(upstream.requests().is_empty());
    assert_eq!(program.send("POST", "/proxy/fast/a", &[], &"x".repeat(7 << 20)).await.status, 200);
    assert_eq!(upstream.requests()[0].body.len(), 7 << 20);
}

/// A denial: 429 with Retry-After and the limit that denied.
#[tokio::test]
async fn a_denied_permit_is_refused_with_retry_after() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&[&upstream.url()], "rpm = 1").await;
    let answer = program.get("/proxy/fast/a").await;
    assert_eq!((answer.status, answer.header("ratelimit-policy")), (200, "\"a-window\";q=1;w=60"));
    // Until the end of the call is reported, its place may be taken for as long as its lease.
    program.until("/v1/upstreams/a", |answer| answer.json()["inFlight"] == 0).await;
    let answer = program.get("/proxy/fast/a").await;
    assert_eq!((answer.status, answer.header("content-type")), (429, "application/problem+json"));
    let problem = answer.json();
    assert_eq!(
        (&problem["type"], &problem["reason"]),
        (&json!("urn:eclusa:problem:quota-exceeded"), &json!("window"))
    );
    assert_eq!(problem["violated-policies"], json!(["a-window"]));
    let after: u32 = answer.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&after));
    assert_eq!(answer.header("ratelimit"), format!("\"a-window\";r=0;t={after}"));
    assert!(answer.header("ratelimit-policy").starts_with("\"a-window\";q=1"), "{answer:?}");
    let denials = [("lane", "fast"), ("upstream", "a"), ("reason", "window")];
    assert_eq!(program.metric("eclusa_gate_denials_total", &denials).await, 1);
    assert_eq!(upstream.requests().len(), 1);
}

/// A gate of the lane is not counted as a gate of an upstream, even if they share a name.
#[tokio::test]
async fn denials_by_the_lane_are_counted_for_the_lane() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = format!(
        "[lanes.same]\nmode = \"direct\"\nchain = [\"same\"]\nrpm = 1\n[upstreams.same]\nurl = \"{}\"\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    assert_eq!(program.get("/proxy/same/a").await.status, 200);
    assert_eq!(program.get("/proxy/same/a").await.status, 429);
    let denials = [("lane", "same"), ("upstream", ""), ("reason", "window")];
    assert_eq!(program.metric("eclusa_gate_denials_total", &denials).await, 1);
}

/// A full `max_concurrent` is a denial too.
#[tokio::test]
async fn a_slot_is_taken_until_the_answer_has_passed() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Behaviour::script([Answer::status(200).body("done").after(&latch)]))
        .await
        .unwrap();
    let program = start(&[&upstream.url()], "max_concurrent = 1").await;
    let (first, ()) = tokio::join!(program.get("/proxy/fast/a"), async {
        upstream.wait_for(1).await;
        let second = program.get("/proxy/fast/a").await;
        assert_eq!((second.status, &second.json()["reason"]), (429, &json!("concurrency")));
        latch.open();
    });
    assert_eq!((first.status, first.text()), (200, "done"));
    slot_is_free(&program).await;
    assert_eq!(program.get("/v1/upstreams/a").await.json()["inFlight"], 0);
}

/// The caller disconnects, before or during the answer: its slot is freed.
#[tokio::test]
async fn a_slot_is_freed_when_the_caller_disconnects() {
    let answers = [Answer::hang(), Answer::status(200).body("first").then_hang()];
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let program = start(&[&upstream.url()], "max_concurrent = 1\ntimeout = \"10m\"").await;
    let url = program.url();
    let calling = tokio::spawn(async move {
        client().request(http::Request::get(format!("{url}/proxy/fast/a")).body(empty()).unwrap()).await
    });
    upstream.wait_for(1).await;
    calling.abort();
    assert!(calling.await.unwrap_err().is_cancelled());
    // The queued job waits for the slot, so it is the second call.
    let id = program.enqueue("queue", &json!({ "request": {} })).await;
    upstream.wait_for(2).await;
    assert_eq!(program.send("DELETE", &format!("/v1/jobs/{id}"), &[], "").await.status, 200);
}

#[tokio::test]
async fn a_slot_is_freed_when_the_caller_disconnects_during_the_response() {
    let answer = Answer::status(200).body("first").then_hang();
    let upstream = FakeUpstream::start(Behaviour::script([answer])).await.unwrap();
    let program = start(&[&upstream.url()], "max_concurrent = 1\ntimeout = \"10m\"").await;
    let mut answer = begin(&program, empty()).await.into_body();
    answer.frame().await.unwrap().unwrap();
    drop(answer);
    slot_is_free(&program).await;
}

/// Along the chain: a failure that another upstream may cure moves to the next one.
#[tokio::test]
async fn the_next_upstream_answers_where_the_first_fails() {
    let failing = FakeUpstream::start(Answer::status(503)).await.unwrap();
    let well = FakeUpstream::start(Answer::status(200).body("b")).await.unwrap();
    let program = start(&[&failing.url(), &well.url()], "").await;
    let answer = program.send("POST", "/proxy/fast/a", &[], "small").await;
    assert_eq!((answer.status, answer.text(), answer.header("eclusa-upstream")), (200, "b", "b"));
    assert_eq!(
        (&failing.requests()[0].body[..], &well.requests()[0].body[..]),
        (&b"small"[..], &b"small"[..])
    );

    // A body that is not fully buffered cannot be sent twice: the first answer is final.
    let large = program.send("POST", "/proxy/fast/a", &[], &"x".repeat(100 << 10)).await;
    assert_eq!((large.status, large.header("eclusa-upstream")), (503, "a"));
    assert_eq!((failing.requests().len(), well.requests().len()), (2, 1));
}

#[tokio::test]
async fn the_next_upstream_answers_where_the_first_is_not_there_or_has_no_room() {
    let well = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&[&format!("http://127.0.0.1:{}", free_port()), &well.url()], "").await;
    let answer = program.get("/proxy/fast/a").await;
    assert_eq!((answer.status, answer.header("eclusa-upstream")), (200, "b"));

    let full = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&[&full.url(), &well.url()], "rpm = 1").await;
    for upstream in ["a", "b", "b"] {
        let answer = program.get("/proxy/fast/a").await;
        assert_eq!((answer.status, answer.header("eclusa-upstream")), (200, upstream));
    }
}

/// The caller gets the last answer of the chain; a 4xx is not retried elsewhere.
#[tokio::test]
async fn the_last_answer_is_the_callers() {
    let (first, last) = (
        FakeUpstream::start(Answer::status(500)).await.unwrap(),
        FakeUpstream::start(Answer::status(502).body("last")).await.unwrap(),
    );
    let program = start(&[&first.url(), &last.url()], "").await;
    let answer = program.get("/proxy/fast/a").await;
    assert_eq!((answer.status, answer.text(), answer.header("eclusa-upstream")), (502, "last", "b"));

    let refusing = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let program = start(&[&refusing.url(), &last.url()], "").await;
    let answer = program.get("/proxy/fast/a").await;
    assert_eq!((answer.status, answer.header("eclusa-upstream"), last.requests().len()), (404, "a", 1));
}

#[tokio::test]
async fn a_direct_lane_has_no_queue() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&[&upstream.url()], "").await;
    let answer = program.post("/v1/lanes/fast/jobs", &json!({ "request": {} })).await;
    assert_eq!((answer.status, &answer.json()["type"]), (409, &json!("urn:eclusa:problem:conflict")));
    let answer = program.get("/proxy/fast/../x").await;
    assert_eq!(answer.status, 400);
    assert!(upstream.requests().is_empty());
}

/// Every answer of a direct lane is counted by its status, whether Eclusa or the upstream gave it.
#[tokio::test]
async fn answers_are_counted_by_lane_and_status() {
    let answers = [Answer::status(200), Answer::status(404)];
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let config = format!(
        "[lanes.fast]\nmode = \"direct\"\nchain = [\"a\"]\n[lanes.queue]\nchain = [\"a\"]\n\
         [upstreams.a]\nurl = \"{}\"\nrpm = 2\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(program.get("/proxy/fast/x").await.status);
    }
    assert_eq!(statuses, [200, 404, 429, 429]);
    let lane = program.get("/v1/lanes/fast").await.json();
    assert_eq!(lane["answers"], json!({ "200": 1, "404": 1, "429": 2 }));
    assert!(lane["rates"]["answered"].is_number(), "{lane}");
    assert_eq!(program.get("/v1/lanes/queue").await.json()["answers"], json!({}));
    for (status, count) in [("200", 1), ("404", 1), ("429", 2)] {
        let labels = [("lane", "fast"), ("status", status)];
        assert_eq!(program.metric("eclusa_direct_answers_total", &labels).await, count, "{status}");
    }
}
