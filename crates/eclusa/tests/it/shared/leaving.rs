//! Processes stop in order.

use std::time::Duration;

use tokio::time::Instant;

use super::{lane, start};
use crate::program::{Answer as Told, Program};
use crate::redis_server::RedisServer;

/// By its silence a process would be known to be gone after 30 s.
const AT_ONCE: Duration = Duration::from_secs(1);

fn so_many(count: usize) -> impl Fn(&Told) -> bool {
    move |answer| answer.status == 200 && answer.json()["instances"].as_array().unwrap().len() == count
}

fn owns(program: &Program) -> bool {
    program.log().iter().any(|line| line["message"] == "This process decides now")
}

/// Whoever stops, the owner or another, is no instance as soon as it is gone.
#[tokio::test]
async fn a_process_that_stops_is_no_instance_at_once() {
    for owner_stops in [false, true] {
        let redis = RedisServer::start();
        let rules = lane("http://127.0.0.1:9", "", "");
        let mut all = [start(&redis, &rules).await, start(&redis, &rules).await, start(&redis, &rules).await];
        for program in &all {
            program.until("/v1/health", so_many(3)).await;
        }
        all.sort_by_key(|program| owns(program) == owner_stops);
        let [first, second, stops] = all;
        stops.stop().await;
        let stopped = Instant::now();
        for program in [&first, &second] {
            program.until("/v1/health", so_many(2)).await;
        }
        assert!(stopped.elapsed() < AT_ONCE, "{:?}, owner: {owner_stops}", stopped.elapsed());
    }
}
