//! One process may finish what another started.

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::json;

use super::{lane, start, start_as};
use crate::program::{Answer as Response, starts};
use crate::redis_server::RedisServer;

#[tokio::test]
async fn a_job_that_one_process_takes_in_is_run_by_another_and_awaited_at_the_first() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200).body("done")).await.unwrap();
    let rules = lane(&upstream.url(), "", "");
    let api = start_as(&redis, "api", &rules).await;
    let _worker = start_as(&redis, "worker", &rules).await;
    let answer = api.send("GET", "/proxy/work/a", &[("prefer", "wait=30")], "").await;
    assert_eq!((answer.status, answer.text()), (200, "done"));
    let job = api.enqueue("work", &json!({ "request": { "path": "/b" } })).await;
    assert_eq!(api.ended(&job).await["status"], "completed");
}

/// Wherever the job ends, and even though nothing of it is kept.
#[tokio::test]
async fn a_waiting_caller_gets_a_job_that_another_process_forgot_as_it_ended() {
    let redis = RedisServer::start();
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).body("sent").after(&latch)).await.unwrap();
    let rules = lane(&upstream.url(), "keep = { max = 0 }", "");
    let api = start_as(&redis, "api", &rules).await;
    let worker = start_as(&redis, "worker", &rules).await;
    let job = api.enqueue("work", &json!({ "request": { "path": "/a" } })).await;
    let path = format!("/v1/jobs/{job}/wait?timeout=30");
    let late = async {
        upstream.wait_for(1).await;
        // A job that ends before the wait starts is forgotten. Whichever of the two owns knows of the wait.
        while api
            .metric_if_there("eclusa_waits", &[])
            .await
            .or(worker.metric_if_there("eclusa_waits", &[]).await)
            < Some(1)
        {
            tokio::task::yield_now().await;
        }
        latch.open();
    };
    let (waited, ()) = tokio::join!(api.get(&path), late);
    assert_eq!(
        (&waited.json()["status"], &waited.json()["result"]["body"]),
        (&json!("completed"), &json!("sent"))
    );
    for _ in 0..20 {
        let answer = api.send("GET", "/proxy/work/b", &[("prefer", "wait=30")], "").await;
        assert_eq!((answer.status, answer.text()), (200, "sent"));
    }
    assert_eq!(api.get(&format!("/v1/jobs/{job}")).await.status, 404, "nothing of it is kept");
}

#[tokio::test]
async fn a_worker_serves_only_its_health() {
    let redis = RedisServer::start();
    let worker = start_as(&redis, "worker", &lane("http://127.0.0.1:9", "", "")).await;
    for (path, status) in [("/livez", 200), ("/readyz", 200), ("/v1/health", 200), ("/v1/lanes", 404)] {
        assert_eq!(worker.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_limit_holds_for_all_processes_together() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = lane(&upstream.url(), "", "rate = \"1/h\"\nburst = 5");
    let (first, second) = tokio::join!(start(&redis, &rules), start(&redis, &rules));
    for program in [&first, &second] {
        for _ in 0..10 {
            program.enqueue("work", &json!({ "request": {} })).await;
        }
    }
    upstream.wait_for(5).await;
    let lane = first.get("/v1/lanes/work").await.json();
    assert_eq!(lane["queued"]["normal"], 15, "{lane}");
    assert_eq!(upstream.requests().len(), 5);
}

#[tokio::test]
async fn processes_know_each_other_and_whether_they_go_by_the_same_rules() {
    let redis = RedisServer::start();
    let first = start(&redis, &lane("http://127.0.0.1:9", "", "")).await;
    let _second = start_as(&redis, "worker", &lane("http://127.0.0.1:9", "", "rpm = 60")).await;
    let both = |answer: &Response| answer.json()["instances"].as_array().unwrap().len() == 2;
    let health = first.until("/v1/health", both).await.json();
    let instances = health["instances"].as_array().unwrap();
    let mut roles: Vec<_> = instances.iter().map(|one| one["role"].as_str().unwrap()).collect();
    roles.sort_unstable();
    assert_eq!(roles, ["all", "worker"]);
    assert_ne!(instances[0]["rules"], instances[1]["rules"]);
}

#[tokio::test]
async fn the_job_of_a_worker_that_was_killed_is_recovered_within_its_lease_and_a_second() {
    let redis = RedisServer::start();
    let upstream =
        FakeUpstream::start(Behaviour::script([Answer::hang()]).then(Answer::status(200))).await.unwrap();
    let rules = format!("[workers]\nlease = \"1s\"\n{}", lane(&upstream.url(), "", "max_concurrent = 1"));
    let api = start_as(&redis, "api", &rules).await;
    let doomed = start_as(&redis, "worker", &rules).await;
    let job = api.enqueue("work", &json!({ "request": {} })).await;
    upstream.wait_for(1).await;
    let _other = start_as(&redis, "worker", &rules).await;
    doomed.kill().await;
    let ended = api.ended(&job).await;
    // The owner may first grant it to the dead worker's held question; nobody receives that, so it is returned at once.
    let starts = starts(&ended);
    let (Some(first), Some(last)) = (starts.first(), starts.last()) else { panic!("{ended}") };
    assert!((1_000..=2_000).contains(&(last - first)), "{ended}");
    assert_eq!(ended["status"], "completed");
    assert_eq!(upstream.requests().len(), 2, "{ended}");
}

/// It cancels its call when it wakes, and the answer that came in the meantime changes nothing.
#[tokio::test]
async fn a_worker_that_stood_still_beyond_its_lease_gives_up_its_call() {
    for answered in [false, true] {
        let redis = RedisServer::start();
        let latch = Latch::default();
        let late = Answer::status(200).body("late").after(&latch);
        let behaviour = Behaviour::script([late]).then(Answer::status(200).body("done"));
        let upstream = FakeUpstream::start(behaviour).await.unwrap();
        let rules = format!("[workers]\nlease = \"1s\"\n{}", lane(&upstream.url(), "", ""));
        let api = start_as(&redis, "api", &rules).await;
        let paused = start_as(&redis, "worker", &rules).await;
        let job = api.enqueue("work", &json!({ "request": {} })).await;
        upstream.wait_for(1).await;
        paused.signal("STOP");
        let _other = start_as(&redis, "worker", &rules).await;
        let ended = api.ended(&job).await;
        assert_eq!(ended["result"]["body"], "done", "{ended}");
        if answered {
            latch.open();
            paused.signal("CONT");
            // It reports what it still has to report.
            paused.stop().await;
        } else {
            paused.signal("CONT");
            paused.logged("Lease lost, call cancelled", &[("jobId", &job)]).await;
        }
        assert_eq!(api.get(&format!("/v1/jobs/{job}")).await.json(), ended);
        let totals = api.get("/v1/lanes/work").await.json()["totals"].take();
        assert_eq!((&totals["completed"], upstream.requests().len()), (&json!(1), 2), "{totals}");
    }
}

#[tokio::test]
async fn the_remaining_limit_is_that_of_the_grant() {
    let redis = RedisServer::start();
    let program = start(&redis, &lane("http://127.0.0.1:9", "", "rate = \"1/h\"\nburst = 3")).await;
    for remaining in [2, 1, 0] {
        let granted = program.post("/v1/limits/up/acquire", &json!({})).await.json();
        assert_eq!(granted["remaining"], remaining, "{granted}");
    }
}
