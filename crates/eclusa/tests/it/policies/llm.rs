//! `examples/llm.toml`: two providers behind one address, limited by requests and by tokens.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::super::program::{self, PATIENCE, Program};

const CHAT: &str = "/proxy/chat/v1/chat/completions";
const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const FIRST_EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Good\"}}],\"usage\":null}\n\n";
const LAST_EVENTS: &str = "data: {\"choices\":[],\"usage\":{\"total_tokens\":500}}\n\ndata: [DONE]\n\n";

/// A provider that answers one request with a stream that ends on a signal. Returns what it was sent.
async fn streaming() -> (String, oneshot::Sender<()>, oneshot::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (goes_on, reported) = oneshot::channel();
    let (seen, sees) = oneshot::channel();
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let request = read_until(&mut connection, "\"stream\":true").await;
        let _ = seen.send(request);
        connection.write_all(format!("{HEAD}{}", chunk(FIRST_EVENT)).as_bytes()).await.unwrap();
        reported.await.unwrap();
        connection.write_all(format!("{}0\r\n\r\n", chunk(LAST_EVENTS)).as_bytes()).await.unwrap();
        // It answers only one request.
        let _ = connection.read(&mut [0; 1]).await;
    });
    (url, goes_on, sees)
}

async fn read_until(connection: &mut TcpStream, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        let mut part = [0; 4096];
        let size = tokio::time::timeout(PATIENCE, connection.read(&mut part)).await.unwrap().unwrap();
        assert!(size > 0, "no {text:?} in {seen:?}");
        seen.push_str(std::str::from_utf8(&part[..size]).unwrap());
    }
    seen
}

/// The example with these providers and limits, with a slow refill.
async fn start(first: &str, second: &str, limits: &[(&str, &str)]) -> Program {
    let providers =
        [("FIRST_URL", first), ("SECOND_URL", second), ("FIRST_KEY", "first-key"), ("SECOND_KEY", "k2")];
    Program::start_example("llm.toml", &[&providers, limits].concat()).await
}

async fn chat(program: &Program, max_tokens: u32) -> program::Answer {
    program.send("POST", CHAT, &[], &json!({ "max_tokens": max_tokens }).to_string()).await
}

async fn provider(answer: Answer) -> FakeUpstream {
    FakeUpstream::start(answer).await.unwrap()
}

fn used(tokens: u32) -> Answer {
    let body = json!({ "usage": { "total_tokens": tokens } }).to_string();
    Answer::status(200).header("content-type", "application/json").body(body)
}

#[tokio::test]
async fn a_streamed_response_costs_what_its_last_event_says() {
    let (first, goes_on, sees) = streaming().await;
    let second = provider(used(10)).await;
    let program = start(&first, &second.url(), &[("FIRST_TPM", "600")]).await;
    let mut caller = TcpStream::connect(program.url().trim_start_matches("http://")).await.unwrap();
    let body = "{\"max_tokens\":300,\"stream\":true}";
    let head = "Host: localhost\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer caller";
    let request = format!("POST {CHAT} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    caller.write_all(request.as_bytes()).await.unwrap();
    let begun = read_until(&mut caller, "Good").await;
    assert!(begun.contains("ratelimit: \"FIRST_TOKENS\";r=300;"), "{begun}");
    assert!(!begun.contains("DONE"), "{begun}");
    goes_on.send(()).unwrap();
    read_until(&mut caller, "[DONE]").await;
    let seen = sees.await.unwrap().to_lowercase();
    assert!(seen.contains("authorization: bearer first-key"), "{seen}");
    assert!(seen.contains("accept-encoding: identity"), "{seen}");
    // It held 300 and cost 500: the rest is not enough for another request for a while.
    let spent = |answer: &program::Answer| answer.json()["spentLastMinute"].as_f64() > Some(480.0);
    program.until("/v1/policies/FIRST_TOKENS", spent).await;
    let next = chat(&program, 500).await;
    assert_eq!((next.status, next.header("eclusa-upstream")), (200, "second"));
}

/// Until the first byte of an answer the request can go elsewhere; then it streams from there, and is charged there.
#[tokio::test]
async fn a_stream_comes_from_the_second_where_the_first_fails_and_is_charged_there() {
    let first = provider(Answer::status(503)).await;
    let (second, goes_on, _sees) = streaming().await;
    let program = start(&first.url(), &second, &[("SECOND_TPM", "600")]).await;
    let mut caller = TcpStream::connect(program.url().trim_start_matches("http://")).await.unwrap();
    let body = "{\"max_tokens\":300,\"stream\":true}";
    let request =
        format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    caller.write_all(request.as_bytes()).await.unwrap();
    let begun = read_until(&mut caller, "Good").await;
    assert!(begun.starts_with("HTTP/1.1 200 OK") && begun.contains("eclusa-upstream: second"), "{begun}");
    assert!(begun.contains("text/event-stream") && !begun.contains("DONE"), "{begun}");
    goes_on.send(()).unwrap();
    read_until(&mut caller, "[DONE]").await;
    let spent = |answer: &program::Answer| answer.json()["spentLastMinute"].as_f64() > Some(480.0);
    program.until("/v1/policies/SECOND_TOKENS", spent).await;
    let of_first = program.get("/v1/policies/FIRST_TOKENS").await.json();
    assert_eq!(of_first["spentLastMinute"], json!(null));
}

#[tokio::test]
async fn a_failed_call_moves_to_the_second_upstream_and_costs_nothing_at_the_first() {
    let (first, second) = (provider(Answer::status(503)).await, provider(used(70)).await);
    let program = start(&first.url(), &second.url(), &[]).await;
    let answer = chat(&program, 100).await;
    assert_eq!((answer.status, answer.header("eclusa-upstream")), (200, "second"));
    let spent =
        |least: f64| move |answer: &program::Answer| answer.json()["spentLastMinute"].as_f64() > Some(least);
    program.until("/v1/policies/SECOND_TOKENS", spent(65.0)).await;
    program.until("/v1/policies/FIRST_REQUESTS", spent(0.9)).await;
    let tokens = program.get("/v1/policies/FIRST_TOKENS").await.json();
    assert_eq!((&tokens["availableTokens"], &tokens["spentLastMinute"]), (&json!(200_000), &json!(null)));
}

#[tokio::test]
async fn when_neither_has_room_the_caller_learns_when_to_try_again() {
    let (first, second) = (provider(used(1)).await, provider(used(1)).await);
    let program = start(&first.url(), &second.url(), &[("FIRST_RPM", "1"), ("SECOND_RPM", "1")]).await;
    for upstream in ["first", "second"] {
        assert_eq!(chat(&program, 10).await.header("eclusa-upstream"), upstream);
    }
    let refused = chat(&program, 10).await;
    assert_eq!(refused.status, 429);
    let wait: u32 = refused.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(refused.header("ratelimit-policy"), "\"FIRST_REQUESTS\";q=1;w=60");
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
}
