//! Calls over real sockets, to an upstream that behaves well or badly.

use std::net::TcpListener;
use std::time::Duration;

use eclusa::SystemClock;
use eclusa::config::{BaseUrl, HttpRules, Tls, UpstreamConfig, UpstreamKind};
use eclusa::execute::http::HttpUpstream;
use eclusa::execute::{CallContext, CallEnd, Called};
use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use eclusa::request::{Request, Response};
use eclusa_core::Span;
use eclusa_core::gate::CallResult;
use eclusa_core::retry::{ExtraCodes, Verdict};

/// Long enough for any call that is to succeed, on any machine.
const PATIENT: Duration = Duration::from_secs(30);
/// For calls that are expected to time out.
const SHORT: Duration = Duration::from_millis(250);

pub(crate) fn rules(url: &str) -> UpstreamConfig {
    let url: http::Uri = url.parse().unwrap();
    let rules = HttpRules {
        url: BaseUrl {
            scheme: url.scheme().unwrap().clone(),
            authority: url.authority().unwrap().clone(),
            prefix: url.path().trim_end_matches('/').to_owned(),
        },
        headers: Vec::new(),
        keys: Vec::new(),
        request: None,
        awaited: None,
        max_response: 1 << 20,
        policies: Vec::new(),
        reconcile: None,
    };
    UpstreamConfig {
        timeout: PATIENT,
        connect_timeout: PATIENT,
        codes: ExtraCodes::default(),
        tls: Tls::default(),
        kind: UpstreamKind::Http(Box::new(rules)),
    }
}

/// An upstream with other HTTP rules.
pub(crate) fn rules_with(url: &str, change: impl FnOnce(&mut HttpRules)) -> UpstreamConfig {
    let mut upstream = rules(url);
    if let UpstreamKind::Http(rules) = &mut upstream.kind {
        change(rules);
    }
    upstream
}

pub(crate) fn client(upstream: &UpstreamConfig) -> HttpUpstream {
    HttpUpstream::new(upstream, upstream.http().unwrap()).unwrap()
}

pub(crate) fn context() -> CallContext<'static> {
    CallContext { idempotency_key: "job-1", traceparent: None, headers: &[], clock: &SystemClock }
}

pub(crate) fn request(method: &str, path: &str) -> Request {
    Request { method: method.into(), path: path.into(), query: None, headers: Vec::new(), body: Vec::new() }
}

pub(crate) fn answered(called: Called) -> Response {
    let Some(answer) = called.answer else { panic!("{:?}", called.end) };
    assert_eq!(called.end, CallEnd::Answered(answer.status));
    answer
}

async fn call(rules: &UpstreamConfig) -> Called {
    client(rules).call(&request("GET", "/"), &context()).await
}

/// Makes one call to an upstream with this answer.
async fn call_to(answer: Answer, timeout: Duration) -> Called {
    let fake = FakeUpstream::start(answer).await.unwrap();
    call(&UpstreamConfig { timeout, ..rules(&fake.url()) }).await
}

fn value<'a>(headers: &'a [(String, Vec<u8>)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(found, _)| found == name).map(|(_, value)| str::from_utf8(value).unwrap())
}

/// A port of this machine on which nobody listens.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_request_is_sent_unchanged_and_its_response_is_returned_complete() {
    let answer =
        Answer::status(201).header("X-Id", "7").header("Set-Cookie", "a=1").header("Set-Cookie", "b=2");
    let fake = FakeUpstream::start(answer.header("Keep-Alive", "timeout=5").body("created")).await.unwrap();
    let upstream = client(&rules(&format!("{}/api/v2/", fake.url())));
    let sent = Request {
        method: "POST".into(),
        path: "/entries/%2B55".into(),
        query: Some("a=1&b=%20".into()),
        headers: vec![("content-type".into(), b"text/plain".to_vec())],
        body: b"hello".to_vec(),
    };
    let answer = answered(upstream.call(&sent, &context()).await);
    assert_eq!((answer.status, answer.body.as_slice()), (201, b"created".as_slice()));
    assert_eq!(value(&answer.headers, "x-id"), Some("7"));
    assert_eq!(answer.headers.iter().filter(|(name, _)| name == "set-cookie").count(), 2);
    assert_eq!(value(&answer.headers, "keep-alive"), None);

    let seen = &fake.requests()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/api/v2/entries/%2B55"));
    assert_eq!((seen.query.as_deref(), &seen.body[..]), (Some("a=1&b=%20"), b"hello".as_slice()));
    assert_eq!(seen.headers["host"], fake.addr().to_string());
    assert_eq!(seen.headers["content-length"], "5");
    assert_eq!(seen.headers["content-type"], "text/plain");
}

#[tokio::test]
async fn headers_are_ours_or_pass() {
    let fake = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let configured = (http::header::AUTHORIZATION, http::HeaderValue::from_static("Bearer upstream"));
    let rules = rules_with(&fake.url(), |rules| rules.headers = vec![configured]);
    let upstream = client(&rules);
    let mut sent = request("GET", "/");
    for (name, value) in [
        ("host", "evil.example"),
        ("authorization", "Bearer eclusa"),
        ("idempotency-key", "theirs"),
        ("eclusa-tenant", "a"),
        ("prefer", "wait=1"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("transfer-encoding", "chunked"),
        ("content-length", "3"),
        ("expect", "100-continue"),
        ("te", "trailers"),
        ("cookie", "a=1"),
        ("accept-encoding", "gzip"),
        ("traceparent", "00-ab-cd-01"),
        ("tracestate", "x=y"),
    ] {
        sent.headers.push((name.into(), value.as_bytes().to_vec()));
    }
    answered(upstream.call(&sent, &context()).await);
    let seen = fake.requests().remove(0);
    let mut headers: Vec<_> =
        seen.headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
    headers.sort();
    let host = format!("host: {}", fake.addr());
    let expected = [
        "accept-encoding: gzip",
        "authorization: Bearer upstream",
        "cookie: a=1",
        &host,
        "idempotency-key: job-1",
        "traceparent: 00-ab-cd-01",
        "tracestate: x=y",
    ];
    assert_eq!(headers, expected);
}

#[tokio::test]
async fn a_redirect_is_the_answer() {
    let elsewhere = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let called = call_to(Answer::status(302).header("Location", &elsewhere.url()), PATIENT).await;
    let answer = answered(called);
    assert_eq!((answer.status, value(&answer.headers, "location")), (302, Some(elsewhere.url().as_str())));
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_body_is_not_unpacked() {
    let packed = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0];
    let answer = Answer::status(200).header("Content-Encoding", "gzip").body(packed.to_vec());
    let answer = answered(call_to(answer, PATIENT).await);
    assert_eq!(
        (answer.body.as_slice(), value(&answer.headers, "content-encoding")),
        (&packed[..], Some("gzip"))
    );
}

#[tokio::test]
async fn an_empty_post_says_that_it_is_empty() {
    let fake = FakeUpstream::start(Answer::status(204)).await.unwrap();
    let upstream = client(&rules(&fake.url()));
    for method in ["POST", "GET", "HEAD"] {
        answered(upstream.call(&request(method, "/"), &context()).await);
    }
    let lengths: Vec<_> =
        fake.requests().iter().map(|seen| seen.headers.get("content-length").cloned()).collect();
    assert_eq!(lengths, [Some(http::HeaderValue::from_static("0")), None, None]);
}

#[tokio::test]
async fn an_unsendable_request_is_not_a_failure_of_the_upstream() {
    let fake = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let upstream = client(&rules(&fake.url()));
    let mut bad_header = request("GET", "/");
    bad_header.headers.push(("x".into(), b"secret\r\nb: c".to_vec()));
    for request in [request("CONNECT", "/"), request("GET", "/a/%2e%2e/b"), bad_header] {
        let judged = upstream.call(&request, &context()).await.end.judge(&ExtraCodes::default());
        assert_eq!((judged.result, judged.verdict), (CallResult::NotSent, Some(Verdict::Permanent)));
        assert!(!judged.reason.contains("secret"), "{}", judged.reason);
    }
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn hints_are_read_from_the_response() {
    let called = call_to(Answer::status(429).header("Retry-After", "7"), PATIENT).await;
    assert_eq!(called.close, Some(Span::from_secs(7)));
    let called = call_to(Answer::status(200).header("RateLimit", "\"a\";r=0;t=9"), PATIENT).await;
    assert_eq!(called.close, Some(Span::from_secs(9)));
}

fn assert_judged(called: &Called, result: CallResult, verdict: Verdict, ambiguous: bool, code: &str) {
    let judged = called.end.judge(&ExtraCodes::default());
    assert_eq!(
        (judged.result, judged.verdict, judged.ambiguous),
        (result, Some(verdict), ambiguous),
        "{called:?}"
    );
    assert_eq!(judged.code.as_deref(), Some(code));
}

#[tokio::test]
async fn silence_is_a_timeout_wherever_it_begins() {
    for answer in [Answer::hang(), Answer::status(200).body("half").then_hang()] {
        let called = call_to(answer, SHORT).await;
        assert!(matches!(called.end, CallEnd::TimedOut(_)), "{called:?}");
        assert_judged(&called, CallResult::TimedOut, Verdict::Retryable, true, "timeout");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_the_call_in_doubt() {
    let during = Answer::status(200).body("half").then_reset();
    for answer in [Answer::reset(), during, Answer::truncated(), Answer::garbage()] {
        let called = call_to(answer.clone(), PATIENT).await;
        assert!(matches!(called.end, CallEnd::Broken(_)), "{answer:?} {called:?}");
        assert_judged(&called, CallResult::Failed, Verdict::Retryable, true, "connection_broken");
    }
}

#[tokio::test]
async fn an_error_is_one_without_its_body_too() {
    let answer = Answer::status(503).header("retry-after", "7").body("half").then_reset();
    let called = call_to(answer, PATIENT).await;
    assert_eq!((&called.end, called.close), (&CallEnd::Answered(503), Some(Span::from_secs(7))));
    assert_judged(&called, CallResult::Failed, Verdict::Retryable, false, "503");
}

#[tokio::test]
async fn an_answer_without_end_is_not_read() {
    let script = [Answer::endless(100 << 20), Answer::status(200).body(vec![0; (1 << 20) + 1])];
    let fake = FakeUpstream::start(Behaviour::script(script)).await.unwrap();
    let upstream = client(&rules(&fake.url()));
    for _ in 0..2 {
        let called = upstream.call(&request("GET", "/"), &context()).await;
        // Its body would be a long message.
        assert!(called.end == CallEnd::TooLarge { status: 200, max: 1 << 20 });
        assert_judged(&called, CallResult::Rejected, Verdict::Permanent, false, "response_too_large");
    }
    answered(upstream.call(&request("GET", "/"), &context()).await);
    let connections: Vec<u64> = fake.requests().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [1, 2, 3], "what was not read ends its connection");
}

#[tokio::test]
async fn an_answer_of_the_largest_size_is_read() {
    let called = call_to(Answer::endless(1 << 20), PATIENT).await;
    assert_eq!(answered(called).body.len(), 1 << 20);
}

#[tokio::test]
async fn without_a_connection_nothing_was_sent() {
    let refused = call(&rules(&format!("http://127.0.0.1:{}", free_port()))).await;
    let unknown = call(&rules("http://no-such-host.invalid")).await;
    // The system accepts the connection, but nothing answers the TLS handshake.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = rules(&format!("https://{}", silent.local_addr().unwrap()));
    let connect = call(&UpstreamConfig { connect_timeout: SHORT, ..silent.clone() }).await;
    assert!(matches!(&connect.end, CallEnd::NotSent(why) if why.contains("250ms")), "{connect:?}");
    let total = call(&UpstreamConfig { timeout: SHORT, ..silent }).await;
    for called in [refused, unknown, connect, total] {
        assert!(matches!(&called.end, CallEnd::NotSent(why) if !why.is_empty()), "{called:?}");
        assert_judged(&called, CallResult::Unreachable, Verdict::Retryable, false, "connect_failed");
    }
}

#[tokio::test]
async fn connections_are_used_again() {
    let fake = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let upstream = client(&rules(&fake.url()));
    for _ in 0..3 {
        answered(upstream.clone().call(&request("GET", "/"), &context()).await);
    }
    assert!(fake.requests().iter().all(|seen| seen.connection == 1));
}

#[tokio::test]
async fn a_pooled_connection_that_the_server_closed_fails_nothing() {
    let fake = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let upstream = client(&rules(&fake.url()));
    for count in 1..=20 {
        answered(upstream.call(&request("POST", "/"), &context()).await);
        fake.close_connections().await;
        assert_eq!(fake.requests().len(), count);
    }
    assert_eq!(fake.requests().last().unwrap().connection, 20);
}

#[tokio::test]
async fn calls_run_side_by_side() {
    let latch = Latch::default();
    let fake = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let upstream = client(&rules(&fake.url()));
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let upstream = upstream.clone();
            tokio::spawn(async move { upstream.call(&request("GET", "/"), &context()).await })
        })
        .collect();
    fake.wait_for(50).await;
    latch.open();
    for call in calls {
        answered(call.await.unwrap());
    }
}
