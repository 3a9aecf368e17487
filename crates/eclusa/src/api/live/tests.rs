//! A stream under virtual time: the store's clock is the runtime's, so times are exact.

use std::sync::Arc;

use axum::body::Body;
use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admission, Admit, JobId, Name, NewJob, Outcome, Report, RetryAfter, Settlement, Span, Store,
};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::api::{Api, router};
use crate::clock::VirtualClock;
use crate::config::Config;
use crate::peers::ProcessRole;
use crate::process;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Lets a call to `up` be answered with a Retry-After, and a job wait for it.
async fn closed_for(api: &Api, wait: Span) {
    let ask = Admit {
        lane: None,
        tenant: None,
        chain: vec![name("up")],
        holds: Vec::new(),
        correlation: None,
        lease: Span::from_secs(10),
        nonce: 1,
        after: None,
        probe: true,
    };
    let Admission::Granted { lease, .. } = api.0.store.admit(ask).await.unwrap().admission else {
        panic!("the call is denied")
    };
    let retry_after = Some(RetryAfter { wait, bucket: None });
    let report = Report { retry_after, ..Report::from(CallResult::Success) };
    let settlement = Settlement { lease, report, outcome: Outcome::Release, answer: None, unsent: None };
    api.0.store.settle(vec![settlement]).await.unwrap();
    api.0.store.enqueue(vec![NewJob::new(JobId(1), name("work"), "acme", *b"x")]).await.unwrap();
}

/// The next status that the stream sends.
async fn next_status(body: &mut Body) -> Value {
    loop {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        if let Some(data) = text.strip_prefix("event: status\ndata: ") {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_is_sent_when_only_time_has_changed_it() {
    let text = "[store]\nurl = \"memory:\"\n[lanes.work]\nchain = [\"up\"]\n\
                [upstreams.up]\nurl = \"http://127.0.0.1:9\"\n";
    let config = Config::parse("eclusa.toml", text, &|_: &str| None).unwrap();
    let began = Instant::now();
    let api = process::open(config, ProcessRole::All, Arc::new(VirtualClock(began))).unwrap().api;
    closed_for(&api, Span::from_secs(30)).await;

    let request = http::Request::get("/v1/events?topics=status").body(Body::empty()).unwrap();
    let mut body = router(&api, ProcessRole::All).oneshot(request).await.unwrap().into_body();
    let status = next_status(&mut body).await;
    assert_eq!(
        (&status["code"], &status["args"]["reason"]),
        (&"held".into(), &"upstream_retry_after".into()),
        "{status}"
    );
    assert!(
        status["also"].as_array().unwrap().iter().any(|also| also["args"]["ack"] == "memory"),
        "{status}"
    );
    let status = next_status(&mut body).await;
    assert_eq!(status["code"], "flows", "{status}");
    let seconds = began.elapsed().as_secs_f64();
    assert!(
        (28.9..30.0).contains(&seconds),
        "after {seconds} s: the last second of a hold counts as flowing"
    );
}
