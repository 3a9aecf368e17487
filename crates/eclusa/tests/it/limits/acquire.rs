//! Acquiring permits over HTTP.

use futures_util::future::join_all;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{acquire, ends, in_flight, lease, start};

#[tokio::test]
async fn a_permit_has_a_lease_and_the_remaining_limit() {
    let program = start("rate = \"10/h\"\nburst = 10").await;
    for left in [9, 8] {
        let answer = acquire(&program, "up", &json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let given = answer.json();
        assert_eq!((&given["granted"], &given["remaining"]), (&json!(true), &json!(left)));
        assert!(given["leaseId"].is_string(), "{given}");
    }
    // The body is optional.
    let answer = program.send("POST", "/v1/limits/up/acquire", &[], "").await;
    assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!(7)));
    assert_eq!(in_flight(&program).await, 3);
}

#[tokio::test]
async fn without_a_limit_nothing_is_said_of_what_is_left() {
    let program = start("max_concurrent = 5").await;
    assert_eq!(acquire(&program, "up", &json!({})).await.json()["remaining"], json!(null));
    let program = start("rpm = 3\nrate = \"10/h\"\nburst = 10").await;
    assert_eq!(acquire(&program, "up", &json!({})).await.json()["remaining"], 2, "of the tightest");
}

/// No token is refilled while the test runs.
#[tokio::test]
async fn two_clients_that_ask_fifteen_times_get_ten_between_them() {
    let program = start("rate = \"10/h\"\nburst = 10").await;
    let clients = [0, 1].map(|_| Client::builder(TokioExecutor::new()).build_http());
    let ask = |number: usize| {
        let request = http::Request::post(format!("{}/v1/limits/up/acquire", program.url()));
        clients[number % 2].request(request.body(String::new()).unwrap())
    };
    let answers = join_all((0..15).map(ask)).await;
    let statuses = answers.into_iter().map(|answer| answer.unwrap().status().as_u16());
    let (granted, refused): (Vec<u16>, Vec<u16>) = statuses.partition(|status| *status == 200);
    assert_eq!((granted.len(), refused), (10, vec![429; 5]));
}

#[tokio::test]
async fn a_denied_request_is_refused_with_retry_after() {
    let program = start("rate = \"1/h\"\nburst = 2").await;
    lease(&program).await;
    lease(&program).await;
    for body in [json!({}), json!({ "wait": "5s" }), json!({ "wait": "5000ms" }), json!({ "wait": "0s" })] {
        let answer = acquire(&program, "up", &body).await;
        assert_eq!((answer.status, answer.header("content-type")), (429, "application/problem+json"));
        let problem = answer.json();
        assert_eq!(problem["type"], "urn:eclusa:problem:quota-exceeded");
        assert_eq!(problem["violated-policies"], json!(["up-rate_limit"]));
        let after: u32 = answer.header("retry-after").parse().unwrap();
        assert!((3_000..=3_600).contains(&after), "{after}");
        assert_eq!(answer.header("ratelimit"), format!("\"up-rate_limit\";r=0;t={after}"));
        assert_eq!(answer.header("ratelimit-policy"), "\"up-rate_limit\";q=2;w=7200");
    }
    let denials = [("lane", ""), ("upstream", "up"), ("reason", "rate_limit")];
    assert_eq!(program.metric("eclusa_gate_denials_total", &denials).await, 4);
}

#[tokio::test]
async fn a_waiting_caller_is_admitted_when_the_gate_opens() {
    let program = start("rate = \"5/s\"\nburst = 1").await;
    for _ in 0..4 {
        let answer = acquire(&program, "up", &json!({ "wait": "30s" })).await;
        assert_eq!((answer.status, &answer.json()["granted"]), (200, &json!(true)), "{}", answer.text());
    }
}

/// The wait is capped by the server's limit.
#[tokio::test]
async fn a_wait_is_no_longer_than_the_server_allows() {
    let program =
        start("rate = \"6/min\"\nburst = 1\n[server]\nlisten = \"127.0.0.1:0\"\nmax_wait = \"1s\"").await;
    lease(&program).await;
    for wait in ["24h", "36500d"] {
        let answer = acquire(&program, "up", &json!({ "wait": wait })).await;
        assert_eq!(answer.status, 429, "{}", answer.text());
    }
}

/// The caller that disconnected was ahead of the waiting one. Had it been granted the slot, nothing would release it.
#[tokio::test]
async fn a_caller_that_hangs_up_while_waiting_leaves_no_lease_behind() {
    let program = start("max_concurrent = 1").await;
    let held = lease(&program).await;
    let address = program.url().replace("http://", "");
    let mut gone = TcpStream::connect(&address).await.unwrap();
    let body = "{\"wait\":\"60s\"}";
    let head = format!(
        "POST /v1/limits/up/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    gone.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    // A later caller queues behind it, so it is waiting by now.
    assert_eq!(acquire(&program, "up", &json!({ "wait": "200ms" })).await.status, 429);
    drop(gone);
    let (wish, well) = (json!({ "wait": "60s" }), json!(200));
    let (answer, ()) = tokio::join!(acquire(&program, "up", &wish), ends(&program, &held, &well));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(in_flight(&program).await, 1);
}

/// A name that is also a word of the API.
#[tokio::test]
async fn an_upstream_may_be_called_leases() {
    let program = start("[upstreams.leases]\nurl = \"http://127.0.0.1:9\"").await;
    let answer = acquire(&program, "leases", &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    ends(&program, answer.json()["leaseId"].as_str().unwrap(), &json!(200)).await;
}
