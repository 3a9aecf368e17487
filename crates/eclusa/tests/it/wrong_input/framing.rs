//! Requests with ambiguous framing.

use super::{start_well, status};

/// Two lengths: a proxy in front of us may use the other one, so nothing after such a request is read.
#[tokio::test]
async fn a_request_with_two_lengths_hides_no_other() {
    let smuggled = "GET /proxy/work/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let (length, chunked) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
    let (program, upstream) = start_well().await;
    for (number, headers) in [format!("{length}{chunked}"), format!("{chunked}{length}")].iter().enumerate() {
        let request =
            format!("POST /proxy/work/a HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n0\r\n\r\n{smuggled}");
        let answer = program.raw(request.as_bytes()).await;
        assert_eq!((answer.matches("HTTP/1.1 ").count(), status(&answer)), (1, 202), "{headers:?}: {answer}");
        upstream.wait_for(number as u64 + 1).await;
    }
    let totals = program.get("/v1/lanes/work").await.json()["totals"].clone();
    assert_eq!(totals["accepted"], 2);
    // The forwarded request has one length.
    for seen in upstream.requests() {
        assert_eq!((seen.path.as_str(), seen.body.len()), ("/base/a", 0));
        assert!(!seen.headers.contains_key("transfer-encoding"), "{seen:?}");
        assert_eq!(seen.headers["content-length"], "0");
    }
}

#[tokio::test]
async fn a_length_that_is_none_is_refused() {
    let (program, upstream) = start_well().await;
    for headers in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length : 5\r\n",
        "Content-Length: 5, 6\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
    ] {
        let request = format!("POST /proxy/work/a HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n12345");
        assert_eq!(status(&program.raw(request.as_bytes()).await), 400, "{headers:?}");
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn headers_with_line_breaks_or_nothing_before_the_colon_are_refused() {
    let (program, upstream) = start_well().await;
    for header in ["X-A: a\rX-B: b", "X-A: a\u{0}b", ": a", "X A: b", "X-A: a\r\n folded"] {
        let request =
            format!("GET /proxy/work/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n\r\n");
        assert_eq!(status(&program.raw(request.as_bytes()).await), 400, "{header:?}");
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn headers_that_are_too_many_or_too_large_are_refused() {
    let (program, upstream) = start_well().await;
    let many = "X-A: a\r\n".repeat(200);
    for headers in [format!("X-A: {}\r\n", "a".repeat(100_000)), many] {
        let request = format!("GET /proxy/work/a HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        assert_eq!(status(&program.raw(request.as_bytes()).await), 431);
    }
    // Forms that the server reads but does not forward.
    let request = format!(
        "GET /proxy/work/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-A: {}\r\n\r\n",
        "a".repeat(40_000)
    );
    assert!((400..500).contains(&status(&program.raw(request.as_bytes()).await)));
    assert!(upstream.requests().is_empty());
}

/// Headers of the connection, and Eclusa's own, are not forwarded.
#[tokio::test]
async fn headers_of_the_connection_do_not_pass() {
    let (program, upstream) = start_well().await;
    let headers = [
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("proxy-authorization", "secret"),
        ("authorization", "Bearer mine"),
        ("eclusa-tenant", "acme"),
        ("prefer", "wait=60"),
        ("x-mine", "1"),
    ];
    assert_eq!(program.send("GET", "/proxy/work/a", &headers, "").await.status, 200);
    let seen = &upstream.requests()[0].headers;
    for name in ["connection", "x-hop", "te", "proxy-authorization", "eclusa-tenant", "authorization"] {
        assert!(!seen.contains_key(name), "{name} in {seen:?}");
    }
    assert_eq!(seen["x-mine"], "1");
}
