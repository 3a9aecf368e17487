//! A stopping process finishes or releases its running jobs, and loses nothing.

use std::time::Duration;

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::super::program::Program;
use super::super::redis_server::RedisServer;
use super::{again, config, enqueue, with_short_leases};

fn events(job: &Value) -> Vec<&str> {
    job["timeline"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// SIGTERM: running jobs are finished, waiting ones are kept for the next process, new ones are refused.
#[tokio::test]
async fn a_running_job_is_finished_and_waiting_ones_are_kept() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Behaviour::script([Answer::status(201).after(&latch)])).await.unwrap();
    let program = Program::start(&config(&upstream, "", "max_concurrent = 1"), &[]).await;
    let ids = enqueue(&program, 3).await;
    upstream.wait_for(1).await;
    program.signal("TERM");
    program.logged("Stopping", &[]).await;
    latch.open();
    let (status, dir) = program.over().await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(upstream.requests().len(), 1);

    let program = again(dir).await;
    let first = program.ended(&ids[0]).await;
    assert_eq!(events(&first), ["accepted", "started", "completed"]);
    assert_eq!(first["result"]["status"], 201);
    for id in &ids[1..] {
        assert_eq!(events(&program.ended(id).await), ["accepted", "started", "completed"]);
    }
    assert_eq!(super::paths(&upstream), ["/0", "/1", "/2"]);
}

/// SIGTERM with a call that does not end: after `shutdown_grace` the job is released, and runs again later.
#[tokio::test]
async fn a_job_that_does_not_end_is_let_go_and_runs_again() {
    let upstream = FakeUpstream::start(Behaviour::script([Answer::hang()])).await.unwrap();
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nshutdown_grace = \"200ms\"\n";
    let program = Program::start(&format!("{server}{}", config(&upstream, "", "")), &[]).await;
    let id = enqueue(&program, 1).await.remove(0);
    upstream.wait_for(1).await;
    program.signal("TERM");
    program.logged("Releasing jobs that are still running", &[]).await;
    let (status, dir) = program.over().await;
    assert_eq!(status.code(), Some(0));

    let program = again(dir).await;
    let job = program.finished(&id).await;
    assert_eq!(events(&job), ["accepted", "started", "released", "started", "completed"]);
    assert_eq!(upstream.requests().len(), 2);
}

/// A second signal ends it at once; the next process recovers its jobs.
#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_loses_nothing() {
    let upstream = FakeUpstream::start(Behaviour::script([Answer::hang()])).await.unwrap();
    let program = Program::start(&with_short_leases(&upstream, "", "max_concurrent = 1"), &[]).await;
    let ids = enqueue(&program, 2).await;
    upstream.wait_for(1).await;
    program.signal("INT");
    program.logged("Stopping", &[]).await;
    program.signal("INT");
    let (status, dir) = program.over().await;
    assert_eq!(status.code(), Some(130));

    let program = again(dir).await;
    let job = program.finished(&ids[0]).await;
    assert_eq!(events(&job), ["accepted", "started", "taken_up", "started", "completed"]);
    assert_eq!(program.finished(&ids[1]).await["status"], "completed");
    assert_eq!(super::paths(&upstream), ["/0", "/0", "/1"]);
}

/// A caller that waits for a job that will not start any more is answered at once, with the job's URL.
#[tokio::test]
async fn waiting_callers_are_answered_when_the_process_stops() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).body("done").after(&latch)).await.unwrap();
    let program = Program::start(&config(&upstream, "", "max_concurrent = 1"), &[]).await;
    let runs = program.send("GET", "/proxy/work/runs", &[("prefer", "wait=60")], "");
    let (runs, (waits, ())) = tokio::join!(runs, async {
        upstream.wait_for(1).await;
        let waits =
            program.send("GET", "/proxy/work/waits", &[("prefer", "wait=60"), ("idempotency-key", "w")], "");
        let stop = async {
            // Only the lane's counters show that a job was accepted.
            while program.get("/v1/lanes/work").await.json()["queued"]["normal"] != 1 {}
            program.signal("TERM");
            program.logged("Stopping", &[]).await;
        };
        let waits = tokio::join!(waits, stop);
        latch.open();
        waits
    });
    assert_eq!((runs.status, runs.text()), (200, "done"));
    assert_eq!((waits.status, &waits.json()["status"]), (202, &Value::from("queued")));
    assert_eq!(program.over().await.0.code(), Some(0));
}

fn draining(upstream: &FakeUpstream) -> String {
    format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"60s\"\n{}", config(upstream, "", ""))
}

/// SIGTERM: `/readyz` returns 503, and all other requests are served until the drain ends.
#[tokio::test]
async fn requests_are_served_as_usual_while_it_drains() {
    let upstream = FakeUpstream::start(Answer::status(200).body("done")).await.unwrap();
    let program = Program::start(&draining(&upstream), &[]).await;
    let started = program.logged("Started", &[]).await;
    let of = |name: &str| started[name].clone();
    assert_eq!((of("version"), of("role")), (env!("CARGO_PKG_VERSION").into(), "all".into()));
    assert_eq!((of("store"), of("jobs")), ("embedded:./data".into(), 0.into()));
    assert_eq!((of("lanes"), of("upstreams")), (1.into(), 1.into()));
    assert_eq!(program.get("/readyz").await.status, 200);
    program.signal("TERM");
    program.logged("Stopping", &[]).await;
    assert_eq!(program.get("/readyz").await.status, 503);
    assert_eq!(program.get("/livez").await.status, 200);
    let answer = program.send("GET", "/proxy/work/", &[("prefer", "wait=60")], "").await;
    assert_eq!((answer.status, answer.text()), (200, "done"));
    program.signal("TERM");
    program.logged("The drain was cut short", &[]).await;
    assert_eq!(program.over().await.0.code(), Some(0));
}

/// The last log line summarises the work, and the next start logs what it found.
#[tokio::test]
async fn the_last_line_counts_finished_released_and_kept_jobs() {
    let upstream = FakeUpstream::start(Behaviour::script([Answer::hang()])).await.unwrap();
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nshutdown_grace = \"200ms\"\n";
    let program =
        Program::start(&format!("{server}{}", config(&upstream, "", "max_concurrent = 1")), &[]).await;
    enqueue(&program, 3).await;
    upstream.wait_for(1).await;
    program.signal("TERM");
    program.logged("Stopped", &[("finished", "0"), ("handedBack", "1"), ("kept", "3")]).await;
    let (_, dir) = program.over().await;
    let program = again(dir).await;
    program.logged("Started", &[("jobs", "3")]).await;
}

/// Only what ended by itself is finished, and only what waits in its line again was handed back.
#[tokio::test]
async fn the_last_line_says_what_was_cut_off_and_what_became_a_dead_letter() {
    let upstream = FakeUpstream::start(Answer::hang()).await.unwrap();
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nshutdown_grace = \"200ms\"\n";
    let direct = "[lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]\n";
    let once = "retry = { attempts = 3, on_ambiguous = \"stop\" }";
    let program = Program::start(&format!("{server}{direct}{}", config(&upstream, once, "")), &[]).await;
    let id = enqueue(&program, 1).await.remove(0);
    let mut call = TcpStream::connect(program.url().replace("http://", "")).await.unwrap();
    call.write_all(b"GET /proxy/fast/a HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    upstream.wait_for(2).await;
    program.signal("TERM");
    let counts = [("finished", "0"), ("handedBack", "0"), ("cutOff", "1"), ("deadLettered", "1")];
    program.logged("Stopped", &counts).await;
    let (_, dir) = program.over().await;
    assert_eq!(again(dir).await.get(&format!("/v1/jobs/{id}")).await.json()["status"], "failed");
}

/// The process ends within the documented stop time even if nothing answers: a call, a client, Redis and a trace collector.
#[tokio::test]
async fn it_stops_in_time_when_nothing_answers() {
    let mut redis = RedisServer::start();
    let (upstream, collector) = (Answer::hang(), Answer::hang());
    let upstream = FakeUpstream::start(upstream).await.unwrap();
    let collector = FakeUpstream::start(collector).await.unwrap();
    let rules = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nshutdown_grace = \"1s\"\n[store]\nurl = \"{}\"\n\
         [traces]\notlp = \"{}\"\n[lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]\n{}",
        redis.url(),
        collector.url(),
        config(&upstream, "", "")
    );
    let program = Program::start(&rules, &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    enqueue(&program, 1).await;
    let mut call = TcpStream::connect(program.url().replace("http://", "")).await.unwrap();
    call.write_all(b"GET /proxy/fast/a HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    upstream.wait_for(2).await;
    redis.pause();
    let began = tokio::time::Instant::now();
    program.stop().await;
    let took = began.elapsed();
    redis.resume();
    // `shutdown_grace`, and what is said in `docs/how-to/deploy.md` to come on top.
    assert!(took < Duration::from_secs(1 + 25), "{took:?}");
}
