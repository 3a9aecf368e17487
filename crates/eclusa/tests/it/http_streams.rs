//! Calls with streamed bodies.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use eclusa::config::UpstreamConfig;
use eclusa::execute::CallEnd;
use eclusa::execute::http::{BodyError, RequestHead, Streamed};
use eclusa::fake::{Answer, FakeUpstream, Latch};
use futures_util::stream;
use http::{HeaderMap, Method};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::http_upstream::{client, context, free_port, rules, rules_with};

const SHORT: Duration = Duration::from_millis(250);

fn post() -> RequestHead {
    RequestHead { method: Method::POST, path: "/up".into(), query: None, headers: HeaderMap::new() }
}

async fn stream<B>(rules: &UpstreamConfig, body: B) -> Result<Streamed, CallEnd>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    client(rules).stream(post(), body, &context()).await
}

/// `count` parts, each `every` after the one before it.
fn slow(count: usize, every: Duration) -> impl Body<Data = Bytes, Error = Infallible> + Send + Unpin {
    let parts = stream::unfold(0, move |sent| async move {
        tokio::time::sleep(every).await;
        (sent < count).then(|| (Ok(Frame::data(Bytes::from_static(b"part"))), sent + 1))
    });
    StreamBody::new(Box::pin(parts))
}

#[tokio::test]
async fn bodies_pass_in_both_directions_without_a_bound_on_their_size() {
    let fake = FakeUpstream::start(Answer::endless(20 << 20).header("X-Id", "7")).await.unwrap();
    let rules = rules_with(&fake.url(), |rules| rules.max_response = 10);
    let streamed = stream(&rules, Full::from("hello")).await.unwrap();
    assert_eq!((streamed.status.as_u16(), &streamed.headers["x-id"]), (200, &"7".parse().unwrap()));
    let body = streamed.body.collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), 20 << 20);
    let seen = &fake.requests()[0];
    assert_eq!((&seen.body[..], &seen.headers["content-length"]), (&b"hello"[..], &"5".parse().unwrap()));
    assert_eq!(seen.headers["idempotency-key"], "job-1");
}

#[tokio::test]
async fn the_answer_is_there_before_its_body_is() {
    let fake = FakeUpstream::start(Answer::status(200).body("half").then_hang()).await.unwrap();
    let mut streamed = stream(&rules(&fake.url()), Full::default()).await.unwrap();
    let first = streamed.body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "half");
}

#[tokio::test]
async fn a_long_upload_is_not_silence() {
    let fake = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = UpstreamConfig { timeout: SHORT * 2, ..rules(&fake.url()) };
    let streamed = stream(&rules, slow(10, SHORT / 4)).await.unwrap();
    assert_eq!(streamed.status, 200);
    let seen = &fake.requests()[0];
    assert_eq!((seen.body.len(), &seen.headers["transfer-encoding"]), (40, &"chunked".parse().unwrap()));
}

#[tokio::test]
async fn a_caller_that_takes_its_time_is_not_the_upstreams_silence() {
    let fake = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = UpstreamConfig { timeout: SHORT * 2, ..rules(&fake.url()) };
    assert_eq!(stream(&rules, slow(2, SHORT * 4)).await.unwrap().status, 200);
}

#[tokio::test]
async fn silence_ends_it_before_and_within_the_answer() {
    let short = |url: String| UpstreamConfig { timeout: SHORT, ..rules(&url) };
    let fake = FakeUpstream::start(Answer::hang()).await.unwrap();
    let end = stream(&short(fake.url()), Full::default()).await.unwrap_err();
    assert!(matches!(end, CallEnd::TimedOut(_)), "{end:?}");

    let fake = FakeUpstream::start(Answer::status(200).body("half").then_hang()).await.unwrap();
    let streamed = stream(&short(fake.url()), Full::default()).await.unwrap();
    let error = streamed.body.collect().await.unwrap_err();
    assert_eq!(error, BodyError::Idle(SHORT));
    assert!(matches!(CallEnd::from(error), CallEnd::TimedOut(_)));
}

/// Answers one request with four parts, each on a signal.
async fn in_parts(mut tell: mpsc::Receiver<()>) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        assert!(socket.read(&mut [0; 1024]).await.unwrap() > 0);
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n").await.unwrap();
        while tell.recv().await.is_some() {
            socket.write_all(b"part").await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn each_part_has_its_own_timeout_and_the_readers_time_does_not_count() {
    let limit = SHORT * 4;
    let (tell, reported) = mpsc::channel(1);
    let rules = UpstreamConfig { timeout: limit, ..rules(&in_parts(reported).await) };
    let mut streamed = stream(&rules, Full::default()).await.unwrap();
    for _ in 0..4 {
        // The reader is slow and then waits for the upstream, longer than the limit in total.
        tokio::time::sleep(limit * 2 / 3).await;
        let next = streamed.body.frame();
        let later = async {
            tokio::time::sleep(limit / 2).await;
            tell.send(()).await.unwrap();
        };
        let (frame, ()) = tokio::join!(next, later);
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "part");
    }
    assert!(streamed.body.frame().await.is_none());
}

#[tokio::test]
async fn an_answer_that_breaks_off_says_so() {
    let fake = FakeUpstream::start(Answer::truncated()).await.unwrap();
    let streamed = stream(&rules(&fake.url()), Full::default()).await.unwrap();
    let error = streamed.body.collect().await.unwrap_err();
    assert!(matches!(CallEnd::from(error), CallEnd::Broken(_)));
}

#[tokio::test]
async fn without_a_connection_nothing_was_sent() {
    let rules = rules(&format!("http://127.0.0.1:{}", free_port()));
    let end = stream(&rules, Full::from("hello")).await.unwrap_err();
    assert!(matches!(end, CallEnd::NotSent(_)), "{end:?}");
}

#[tokio::test]
async fn an_answer_given_up_frees_its_connection() {
    let latch = Latch::default();
    let fake = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let upstream = client(&rules(&fake.url()));
    let context = context();
    tokio::select! {
        _ = upstream.stream(post(), Full::from("hello"), &context) => panic!("the latch is closed"),
        () = fake.wait_for(1) => {}
    }
    // The caller disconnected; its upstream connection is dropped, and the next call uses another.
    latch.open();
    upstream.stream(post(), Full::from("hello"), &context).await.unwrap();
    let connections: Vec<u64> = fake.requests().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [1, 2]);
}
