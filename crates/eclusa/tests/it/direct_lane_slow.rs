//! Slow clients of direct lanes: they are disconnected, and hold no slot that others could use.

use std::time::Duration;

use bytes::Bytes;
use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::program::{PATIENCE, Program};

const SLOTS: usize = 5;
/// Far more than the system buffers between two sockets.
const LARGE: u64 = 64 << 20;

async fn start(upstream: &str, client: &str) -> Program {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nmax_body = \"8128KiB\"\n{client}\n[workers]\nlease = \"10m\"\n\
         [lanes.fast]\nmode = \"direct\"\nchain = [\"a\"]\n\
         [upstreams.a]\nurl = \"{upstream}\"\nmax_concurrent = {SLOTS}\ntimeout = \"10m\"\n\
         breaker = {{ failures = 1, open_for = \"1h\" }}\n"
    );
    Program::start(&config, &[]).await
}

async fn connect(program: &Program) -> TcpStream {
    TcpStream::connect(program.url().strip_prefix("http://").unwrap()).await.unwrap()
}

/// A client that has sent the head of a request, and the start of a body of this size.
async fn uploader(program: &Program, size: usize, sent: usize) -> TcpStream {
    let mut client = connect(program).await;
    let head = format!("POST /proxy/fast/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&vec![b'x'; sent]).await.unwrap();
    client
}

async fn in_flight(program: &Program, count: usize) {
    program.until("/v1/upstreams/a", |answer| answer.json()["inFlight"] == count).await;
}

/// Reads until the server closes the connection.
async fn rest(mut client: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = async {
        let mut part = [0; 4096];
        while let Ok(size @ 1..) = client.read(&mut part).await {
            answer.extend_from_slice(&part[..size]);
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// A body that can be buffered takes no slot until it has arrived, so others pass without disconnecting anybody.
#[tokio::test]
async fn uploads_that_can_be_held_take_no_slot() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream.url(), "").await;
    let mut clients = Vec::new();
    for _ in 0..SLOTS {
        clients.push(uploader(&program, 64 << 10, 1000).await);
    }
    let chunked =
        "POST /proxy/fast/slow HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    let mut client = connect(&program).await;
    client.write_all(chunked.as_bytes()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(program.get("/proxy/fast/quick").await.status, 200);
    }
    let seen = upstream.requests();
    assert!(seen.iter().all(|request| request.path == "/quick"), "{seen:?}");
    // A body that eventually ends is passed on.
    client.write_all(b"1\r\ny\r\n0\r\n\r\n").await.unwrap();
    upstream.wait_for(3).await;
    assert_eq!(&upstream.requests()[2].body[..], b"xy");
}

/// Five clients that send a byte now and then hold five slots, but not beyond the limits for slow clients.
#[tokio::test]
async fn uploads_that_stream_too_slowly_are_cut_off() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream.url(), "client = { total = \"2s\" }").await;
    let mut clients = JoinSet::new();
    for _ in 0..SLOTS {
        let client = uploader(&program, 200 << 10, 100 << 10).await;
        let (mut reading, mut writing) = client.into_split();
        clients.spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(100));
            let mut answer = [0; 12];
            let trickle = async {
                while writing.write_all(b"x").await.is_ok() {
                    pace.tick().await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = trickle => {}
                read = reading.read_exact(&mut answer) => { read.unwrap(); }
            }
            String::from_utf8_lossy(&answer).into_owned()
        });
    }
    in_flight(&program, SLOTS).await;
    assert_eq!(program.get("/proxy/fast/quick").await.status, 429);
    let answers = tokio::time::timeout(PATIENCE, clients.join_all()).await.unwrap();
    assert!(answers.iter().all(|answer| answer == "HTTP/1.1 408"), "{answers:?}");
    in_flight(&program, 0).await;
    // None of it counts as a failure of the upstream.
    assert_eq!(program.get("/proxy/fast/quick").await.status, 200);
}

async fn readers(program: &Program) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..SLOTS {
        let mut client = connect(program).await;
        client.write_all(b"GET /proxy/fast/slow HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        clients.push(client);
    }
    in_flight(program, SLOTS).await;
    clients
}

#[tokio::test]
async fn readers_that_stop_reading_are_cut_off() {
    let answers = [(); SLOTS].map(|()| Answer::endless(LARGE));
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let program = start(&upstream.url(), "client = { total = \"1s\" }").await;
    let clients = readers(&program).await;
    in_flight(&program, 0).await;
    assert_eq!(program.get("/proxy/fast/quick").await.status, 200);
    for client in clients {
        assert!((rest(client).await.len() as u64) < LARGE);
    }
}

#[tokio::test]
async fn readers_that_read_too_slowly_are_cut_off() {
    let answers = [(); SLOTS].map(|()| Answer::endless(LARGE));
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let program = start(&upstream.url(), "client = { min_rate = \"1MiB/s\" }").await;
    let mut clients = JoinSet::new();
    for mut client in readers(&program).await {
        clients.spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(100));
            let mut part = vec![0; 16 << 10];
            while let Ok(1..) = client.read(&mut part).await {
                pace.tick().await;
            }
        });
    }
    in_flight(&program, 0).await;
    assert_eq!(program.get("/proxy/fast/quick").await.status, 200);
}

/// A client that stops reading a complete answer is disconnected after the same limits.
#[tokio::test]
async fn a_complete_response_holds_no_slot() {
    let upstream = FakeUpstream::start(Answer::status(200).body(vec![b'x'; 32 << 10])).await.unwrap();
    let program = start(&upstream.url(), "").await;
    let clients = {
        let mut clients = Vec::new();
        for _ in 0..2 * SLOTS {
            let mut client = connect(&program).await;
            client.write_all(b"GET /proxy/fast/slow HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
            // The start has arrived; the rest is never read.
            client.read_exact(&mut [0; 12]).await.unwrap();
            in_flight(&program, 0).await;
            clients.push(client);
        }
        clients
    };
    assert_eq!((clients.len(), upstream.requests().len()), (2 * SLOTS, 2 * SLOTS));
}

/// Time that the upstream takes, before or during its answer, does not count against the client.
#[tokio::test]
async fn an_upstream_that_idles_is_not_the_clients_fault() {
    const CLIENT_TOTAL: Duration = Duration::from_millis(300);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let program = start(&url, "client = { total = \"300ms\" }").await;
    let mut client = connect(&program).await;
    client.write_all(b"GET /proxy/fast/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    assert!(upstream.read(&mut [0; 1024]).await.unwrap() > 0);
    let mut seen = String::new();
    for part in ["HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n", "data: 2\n\n"] {
        tokio::time::sleep(CLIENT_TOTAL * 3).await;
        upstream.write_all(part.as_bytes()).await.unwrap();
        let event = &part[part.len() - 9..];
        while !seen.contains(event.trim_end()) {
            let mut bytes = [0; 1024];
            let size = tokio::time::timeout(PATIENCE, client.read(&mut bytes)).await.unwrap().unwrap();
            assert!(size > 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&bytes[..size]));
        }
    }
}

/// With HTTP/2, a client may read other answers while it leaves one unread.
#[tokio::test]
async fn readers_that_leave_one_stream_unread_are_cut_off() {
    let answers = [(); SLOTS].map(|()| Answer::endless(LARGE));
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let program = start(&upstream.url(), "client = { total = \"1s\" }").await;
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let mut unread = Vec::new();
    for _ in 0..SLOTS {
        let request = http::Request::get(format!("{}/proxy/fast/slow", program.url()));
        unread.push(client.request(request.body(Empty::new()).unwrap()).await.unwrap());
    }
    in_flight(&program, 0).await;
    let request = http::Request::get(format!("{}/proxy/fast/quick", program.url()));
    let answer = client.request(request.body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!((answer.status(), answer.version()), (http::StatusCode::OK, http::Version::HTTP_2));
    for answer in unread {
        assert!(answer.into_body().collect().await.is_err());
    }
}
