//! Processes reconnect one after the other after an outage.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::program::{Answer as Response, Program};
use crate::redis_server::RedisServer;
use crate::shared::start;

const RULES: &str = "timeout = \"500ms\"\n[workers]\nlease = \"10m\"\n\
    [upstreams.slots]\nurl = \"http://127.0.0.1:9\"\nmax_concurrent = 6\n\
    [upstreams.bucket]\nurl = \"http://127.0.0.1:9\"\nrate = \"1/h\"\nburst = 30\n";

/// Acquires permits until one is denied; returns the leases.
async fn take_all(program: &Program, upstream: &str) -> Vec<String> {
    let mut leases = Vec::new();
    loop {
        let answer = program.post(&format!("/v1/limits/{upstream}/acquire"), &json!({})).await;
        if answer.status != 200 {
            return leases;
        }
        leases.push(answer.json()["leaseId"].as_str().unwrap().to_owned());
    }
}

#[tokio::test]
async fn limits_hold_while_processes_come_back_one_after_the_other() {
    let mut redis = RedisServer::start();
    let (a, b) = (start(&redis, RULES).await, start(&redis, RULES).await);
    let c = start(&redis, RULES).await;
    let all = |answer: &Response| answer.json()["instances"].as_array().unwrap().len() == 3;
    for program in [&a, &b, &c] {
        program.until("/v1/health", all).await;
    }
    redis.stop();
    let mut held = Vec::new();
    for program in [&a, &b, &c] {
        held.extend(take_all(program, "slots").await);
        take_all(program, "bucket").await;
    }
    assert_eq!(held.len(), 6, "the parts of all are the whole");
    // The last one is still disconnected while the others are asked again.
    c.signal("STOP");
    redis.start_again();
    let back = Instant::now();
    while back.elapsed() < Duration::from_secs(2) {
        for program in [&a, &b] {
            for upstream in ["slots", "bucket"] {
                assert_eq!(take_all(program, upstream).await.len(), 0, "{upstream} {:?}", back.elapsed());
            }
        }
    }
    c.signal("CONT");
    for program in [&a, &b, &c] {
        program.until("/readyz", |answer| answer.status == 200).await;
        assert_eq!(take_all(program, "slots").await.len(), 0);
        assert_eq!(take_all(program, "bucket").await.len(), 0);
    }
    // A released slot is granted again, at any process.
    let settled = async {
        for program in [&a, &b, &c] {
            let path = format!("/v1/limits/leases/{}/settle", held[0]);
            if program.post(&path, &json!({ "status": 200 })).await.status == 200 {
                return;
            }
        }
        panic!("nobody knows {}", held[0]);
    };
    settled.await;
    let given = async {
        loop {
            for program in [&a, &b, &c] {
                let answer = program.post("/v1/limits/slots/acquire", &json!({})).await;
                if answer.status == 200 {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(crate::program::PATIENCE, given).await.unwrap();
    for program in [&a, &b, &c] {
        assert_eq!(take_all(program, "slots").await.len(), 0);
    }
}

#[tokio::test]
async fn a_process_that_stops_is_no_instance_any_more() {
    let redis = RedisServer::start();
    let (a, b) = (start(&redis, RULES).await, start(&redis, RULES).await);
    let instances =
        |count| move |answer: &Response| answer.json()["instances"].as_array().unwrap().len() == count;
    for program in [&a, &b] {
        program.until("/v1/health", instances(2)).await;
    }
    let stopped = Instant::now();
    b.stop().await;
    a.until("/v1/health", instances(1)).await;
    // Its silence would be noticed only after 30 s.
    assert!(stopped.elapsed() < Duration::from_secs(10), "{:?}", stopped.elapsed());
}
