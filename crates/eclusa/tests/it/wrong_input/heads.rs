//! Requests that are refused by their head.

use eclusa::fake::Answer;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{assert_problem, start, start_well, status};
use crate::program::PATIENCE;

#[tokio::test]
async fn unsupported_methods_are_refused() {
    let direct = "[lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]";
    let (program, upstream) = start(Answer::status(200), direct).await;
    for path in ["/proxy/work/a", "/proxy/fast/a", "/v1/lanes"] {
        for method in ["TRACE", "get", "M-SEARCH-FOR-EVERYTHING", "G'T", &"A".repeat(2_000)] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let answer = program.raw(request.as_bytes()).await;
            assert_eq!(status(&answer), 405, "{method} {path}: {answer}");
            assert!(answer.to_lowercase().contains("\r\nallow: get, head, post"), "{answer}");
        }
    }
    let connect = b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&program.raw(connect).await), 405);
    assert!(upstream.requests().is_empty());
    // A valid method that Eclusa does not use.
    assert_eq!(program.send("PROPFIND", "/proxy/work/a", &[], "").await.status, 202);
    upstream.wait_for(1).await;
}

#[tokio::test]
async fn a_request_names_one_host() {
    let (program, upstream) = start_well().await;
    for (version, hosts, expected) in [
        ("1.1", "", 400),
        ("1.1", "Host: localhost\r\nHost: localhost\r\n", 400),
        ("1.1", "Host: localhost\r\nHost: evil.example\r\n", 400),
        ("1.0", "Host: localhost\r\nHost: localhost\r\n", 400),
        ("1.1", "Host: localhost\r\n", 202),
        ("1.0", "", 202),
    ] {
        let request = format!("GET /proxy/work/a HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
        let answer = program.raw(request.as_bytes()).await.replacen("HTTP/1.0", "HTTP/1.1", 1);
        assert_eq!(status(&answer), expected, "{version} {hosts:?}: {answer}");
    }
    upstream.wait_for(2).await;
}

/// Every call refuses query parameters that the OpenAPI document does not list.
#[tokio::test]
async fn no_call_takes_a_parameter_that_it_does_not_name() {
    let (program, _upstream) = start_well().await;
    let document = program.get("/openapi.json").await.json();
    let mut calls = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        if path.starts_with("/proxy/") {
            continue;
        }
        let named = path.replace("{lane}", "work").replace("{name}", "up").replace("{upstream}", "up");
        let target = named.replace(['{', '}'], "");
        for method in ["get", "post", "delete"].into_iter().filter(|method| methods.get(method).is_some()) {
            let query = format!("{target}?nonsense=1");
            let answer = program.send(&method.to_uppercase(), &query, &[], "{\"request\":{}}").await;
            let problem = assert_problem(&answer, 422, "invalid");
            let fields: Vec<&Value> =
                problem["errors"].as_array().unwrap().iter().map(|error| &error["field"]).collect();
            assert_eq!(fields, ["nonsense"], "{method} {path}");
            calls += 1;
        }
    }
    assert!(calls > 35, "{calls}");
    for path in ["/openapi.json?x=1", "/docs?x=1"] {
        assert_problem(&program.get(path).await, 422, "invalid");
    }
    let lane = program.get("/v1/lanes/work").await.json();
    assert_eq!((&lane["totals"]["accepted"], &lane["paused"]), (&0.into(), &false.into()));
}

/// Bodies that are being received have a common limit, however small each of them is.
#[tokio::test]
async fn bodies_that_are_being_received_are_bounded_over_all_connections() {
    let more = "[lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]\n\
                [server]\nlisten = \"127.0.0.1:0\"\nmax_bodies = \"4KiB\"";
    let (program, upstream) = start(Answer::status(200), more).await;
    let address = program.url().strip_prefix("http://").unwrap().to_owned();
    let head =
        |path: &str| format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n");
    // Two clients that send all but their last byte.
    let mut held = Vec::new();
    for path in ["/proxy/work/a", "/proxy/fast/a"] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all((head(path) + &"x".repeat(1_999)).as_bytes()).await.unwrap();
        held.push(stream);
    }
    // Until both have arrived there is room for another.
    let body = "x".repeat(1_000);
    let refused = async {
        loop {
            let answer = program.send("POST", "/proxy/work/a", &[], &body).await;
            if answer.status != 202 {
                return answer;
            }
        }
    };
    let answer = tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert_problem(&answer, 503, "too-many-bodies");
    assert_eq!(answer.header("retry-after"), "1");
    assert_problem(&program.send("POST", "/proxy/fast/a", &[], &body).await, 503, "too-many-bodies");
    // Requests without a body are served, and so are the first two.
    assert_eq!(program.get("/proxy/fast/a").await.status, 200);
    for mut stream in held {
        stream.write_all(b"x").await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 20"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(program.send("POST", "/proxy/fast/a", &[], &body).await.status, 200);
    upstream.wait_for(3).await;
}

/// Anybody can send a webhook: its body is not waited for, and uses no budget of callers with keys.
#[tokio::test]
async fn an_unexpected_webhook_is_refused_before_its_body() {
    let (program, _upstream) = start(Answer::status(200), "").await;
    let address = program.url().strip_prefix("http://").unwrap().to_owned();
    let id = "00000000-0000-7000-8000-000000000000";
    let head =
        format!("POST /v1/webhooks/up/{id} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\nx");
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
}
