//! `eclusa tail` against a running gateway.

use std::process::Stdio;
use std::sync::Arc;

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::task::JoinSet;

use crate::cli::{run_at, run_with};
use crate::http_upstream::free_port;
use crate::program::{PATIENCE, Program, eclusa};

/// A running `eclusa tail`.
struct Tail {
    child: Child,
    out: Option<Lines<BufReader<ChildStdout>>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Tail {
    /// Starts it; as text it has printed that it follows.
    async fn start(program: &Program, arguments: &[&str]) -> Self {
        Self::start_at(&program.url(), arguments).await
    }

    async fn start_at(url: &str, arguments: &[&str]) -> Self {
        let mut command = eclusa();
        command.arg("tail").args(arguments).env("ECLUSA_URL", url).env("TZ", "UTC");
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let out = Some(BufReader::new(child.stdout.take().unwrap()).lines());
        let err = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut tail = Self { child, out, err };
        if !arguments.contains(&"-o") {
            assert_eq!(tail.note().await, format!("Following {url}; Ctrl-C stops"));
        }
        tail
    }

    /// The next line of its output.
    async fn line(&mut self) -> String {
        next(self.out.as_mut().unwrap()).await
    }

    /// The next line of its standard error.
    async fn note(&mut self) -> String {
        next(&mut self.err).await
    }

    /// Lines up to the first that contains `last`, without their times.
    async fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().await;
            lines.push(line.split_once("  ").unwrap().1.trim().to_owned());
            if line.contains(last) {
                return lines;
            }
        }
    }

    async fn exit_code(&mut self) -> Option<i32> {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap().code()
    }
}

async fn next(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>) -> String {
    tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap()
}

/// An upstream whose first call fails.
async fn failing_once() -> FakeUpstream {
    FakeUpstream::start(Behaviour::script([Answer::status(503)]).then(Answer::status(200))).await.unwrap()
}

fn rules(upstream: &FakeUpstream) -> String {
    format!(
        "[lanes.work]\nchain = [\"up\"]\nretry = {{ attempts = 2, base = \"1ms\" }}\n\
         [lanes.other]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"{}\"\n",
        upstream.url()
    )
}

fn job(tenant: &str) -> Value {
    json!({ "tenant": tenant, "request": { "path": "/" } })
}

#[tokio::test]
async fn the_events_of_a_job_are_printed_in_order() {
    let upstream = failing_once().await;
    let program = Program::start(&rules(&upstream), &[]).await;
    let mut tail = Tail::start(&program, &[]).await;
    let with_id =
        json!({ "id": "order-7", "tenant": "acme", "priority": "high", "request": { "path": "/" } });
    let id = program.enqueue("work", &with_id).await;
    let lines = tail.until("completed").await;
    let short = id.rsplit('-').next().unwrap();
    let prefix = format!("work   acme    {short}  ");
    let events: Vec<&str> =
        lines.iter().map(|line| line.strip_prefix(&prefix).unwrap_or_else(|| panic!("{lines:?}"))).collect();
    let retried = events.iter().position(|event| event.starts_with("retry at ")).unwrap();
    let mut rest = events.clone();
    rest.remove(retried);
    let expected = [
        "accepted as order-7, high priority",
        "started at up",
        "failed at up: 503 Service Unavailable",
        "started at up",
        "completed",
    ];
    assert_eq!((rest, retried), (expected.to_vec(), 3), "{lines:?}");
}

#[tokio::test]
async fn lines_have_the_local_time_and_no_colours_in_a_pipe() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let mut tail = Tail::start(&program, &[]).await;
    let id = program.enqueue("work", &job("acme")).await;
    let line = tail.line().await;
    let job = program.get(&format!("/v1/jobs/{id}")).await.json();
    let accepted = job["createdAt"].as_str().unwrap();
    assert!(line.starts_with(accepted[11..].trim_end_matches('Z')), "{accepted}: {line}");
    assert!(!line.contains('\u{1b}'), "{line:?}");
}

#[tokio::test]
async fn gates_alerts_and_pauses_are_printed() {
    let upstream = failing_once().await;
    let breaker = "breaker = { failures = 1, open_for = \"1h\" }\n";
    let program = Program::start(&(rules(&upstream) + breaker), &[]).await;
    let mut tail = Tail::start(&program, &[]).await;
    program.enqueue("work", &job("acme")).await;
    let lines = tail.until("breaker of up is open until ").await;
    let failed = lines.iter().position(|line| line.contains("failed at up")).unwrap();
    assert!(failed < lines.len() - 1, "what closed it comes first: {lines:?}");
    tail.until("alert: The breaker of upstream `up` is open.").await;
    program.pause("work").await;
    let lines = tail.until("lane paused").await;
    assert!(lines.last().unwrap().starts_with("work "), "{lines:?}");
    program.resume("work").await;
    tail.until("lane resumed").await;
    assert_eq!(run_at(&program.url(), &["breakers", "reset", "up"]).await.code, 0);
    tail.until("breaker of up is closed").await;
}

#[tokio::test]
async fn a_breaker_is_half_open_while_its_probe_runs() {
    let latch = Latch::default();
    let answers = Behaviour::script([Answer::status(503)]).then(Answer::status(200).after(&latch));
    let upstream = FakeUpstream::start(answers).await.unwrap();
    let breaker = "breaker = { failures = 1, open_for = \"100ms\" }\n";
    let program = Program::start(&(rules(&upstream) + breaker), &[]).await;
    let mut tail = Tail::start(&program, &[]).await;
    program.enqueue("work", &job("acme")).await;
    upstream.wait_for(2).await;
    tail.until("breaker of up is half-open").await;
    assert_eq!(program.get("/v1/upstreams/up").await.json()["breaker"], "half_open");
    let listed = run_at(&program.url(), &["upstreams", "ls"]).await.ok();
    assert!(listed.contains("breaker: half-open, a probe is running"), "{listed}");
    latch.open();
    let lines = tail.until("breaker of up is closed").await;
    assert!(!lines.iter().any(|line| line.contains("open again")), "{lines:?}");
}

#[tokio::test]
async fn a_lane_and_a_tenant_can_be_chosen() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let mut lane = Tail::start(&program, &["--lane", "work"]).await;
    let mut tenant = Tail::start(&program, &["--tenant", "acme"]).await;
    for tenant in ["globex", "acme"] {
        let other = program.enqueue("other", &job(tenant)).await;
        program.ended(&other).await;
    }
    let last = program.enqueue("work", &job("acme")).await;
    let last = format!("{}  completed", last.rsplit('-').next().unwrap());
    let lines = lane.until(&last).await;
    assert!(lines.len() == 3 && lines.iter().all(|line| line.starts_with("work ")), "{lines:?}");
    let lines = tenant.until(&last).await;
    assert!(lines.len() == 6 && lines.iter().all(|line| line.contains(" acme ")), "{lines:?}");
}

#[tokio::test]
async fn json_has_every_event_as_received() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    for format in ["json", "jsonl"] {
        let mut tail = Tail::start(&program, &["-o", format]).await;
        let snapshot: Value = serde_json::from_str(&tail.line().await).unwrap();
        assert_eq!(snapshot["event"], "snapshot");
        assert!(snapshot["id"].is_string() && snapshot["data"]["lanes"].is_array(), "{snapshot}");
        let id = program.enqueue("work", &job("acme")).await;
        loop {
            let event: Value = serde_json::from_str(&tail.line().await).unwrap();
            let jobs = event["data"].as_array().filter(|_| event["event"] == "jobs");
            if jobs.is_some_and(|jobs| jobs.iter().any(|one| one["status"] == "completed")) {
                assert!(jobs.unwrap().iter().all(|one| one["jobId"] == *id), "{event}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn ctrl_c_ends_it_with_0() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let mut tail = Tail::start(&program, &[]).await;
    let pid = tail.child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(tail.exit_code().await, Some(0));
    assert_eq!(tail.err.next_line().await.unwrap(), None, "quietly");
}

/// As `eclusa tail | head -1`: it ends although nothing more happens.
#[tokio::test]
async fn it_ends_quietly_when_its_reader_goes_away() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let mut tail = Tail::start(&program, &[]).await;
    program.pause("work").await;
    assert!(tail.line().await.contains("lane paused"));
    tail.out = None;
    assert_eq!(tail.exit_code().await, Some(0));
    assert_eq!(tail.err.next_line().await.unwrap(), None, "quietly");
}

/// Starts the gateway on this port.
async fn start_at(port: u16, dir: Arc<TempDir>, rules: &str) -> Program {
    Program::start_in(dir, &format!("{rules}[server]\nlisten = \"127.0.0.1:{port}\"\n"), &[]).await
}

#[tokio::test]
async fn it_reconnects_after_a_restart_and_says_that_events_were_missed() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let (rules, port) = (rules(&upstream), free_port());
    let program = start_at(port, Arc::new(tempfile::tempdir().unwrap()), &rules).await;
    let url = program.url();
    let mut tail = Tail::start(&program, &[]).await;
    program.enqueue("work", &job("acme")).await;
    tail.until("completed").await;
    let (_, dir) = program.stop().await;
    let lost = tail.note().await;
    assert!(lost.starts_with(&format!("Lost the connection to {url}: ")), "{lost}");
    assert!(lost.ends_with("; reconnecting"), "{lost}");
    let program = start_at(port, dir, &rules).await;
    let back = tail.note().await;
    assert!(back.starts_with("Connected again after "), "{back}");
    assert!(back.ends_with("; events in between were missed"), "{back}");
    program.enqueue("work", &job("globex")).await;
    assert_eq!(tail.until("completed").await.len(), 3);
}

/// Passes connections on to a server until it is dropped, which breaks them.
struct Relay {
    tasks: JoinSet<()>,
}

impl Relay {
    async fn start(port: u16, server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let server = server.to_owned();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = TcpStream::connect(&server).await.unwrap();
                connections.spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { tasks }
    }

    async fn cut(mut self) {
        self.tasks.shutdown().await;
    }
}

#[tokio::test]
async fn after_a_broken_connection_it_continues_where_it_was() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let (address, port) = (program.url().replace("http://", ""), free_port());
    let relay = Relay::start(port, &address).await;
    let mut tail = Tail::start_at(&format!("http://127.0.0.1:{port}"), &[]).await;
    relay.cut().await;
    let lost = tail.note().await;
    assert!(lost.contains("Connection refused"), "{lost}");
    let job = program.enqueue("work", &job("acme")).await;
    program.finished(&job).await;
    let _relay = Relay::start(port, &address).await;
    let back = tail.note().await;
    assert!(back.ends_with("; no events were missed"), "{back}");
    assert_eq!(tail.until("completed").await.len(), 3, "what happened meanwhile");
}

#[tokio::test]
async fn a_key_that_is_no_longer_known_ends_it_with_4() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = rules(&upstream);
    let program = Program::start(&rules, &[]).await;
    let mut tail = Tail::start(&program, &[]).await;
    let key = "k".repeat(32);
    let keys = format!("[[auth.keys]]\nname = \"all\"\nrole = \"admin\"\nkey = \"{key}\"\n");
    program.reload(&(rules + &keys));
    program.logged("The config was reloaded", &[]).await;
    let bearer = format!("Bearer {key}");
    program.send("POST", "/v1/lanes/work/pause", &[("authorization", &bearer)], "").await;
    assert_eq!(tail.exit_code().await, Some(4));
    assert!(tail.note().await.starts_with("error: "));
    assert_eq!(tail.note().await, "help: set ECLUSA_KEY to a key");
}

/// The stream ends, and the same process accepts another one: nothing is missed, and nothing is said.
#[tokio::test]
async fn a_reload_goes_unnoticed() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = rules(&upstream);
    let program = Program::start(&rules, &[]).await;
    let mut tail = Tail::start(&program, &[]).await;
    program.enqueue("work", &job("acme")).await;
    tail.until("completed").await;
    program.reload(&(rules + "rpm = 1000\n"));
    program.logged("The config was reloaded", &[]).await;
    program.enqueue("work", &job("acme")).await;
    assert_eq!(tail.until("completed").await.len(), 3);
    let pid = tail.child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(tail.err.next_line().await.unwrap(), None);
}

#[tokio::test]
async fn failures_at_the_start_have_their_exit_codes() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let key = "k".repeat(32);
    let keys = format!("[[auth.keys]]\nname = \"all\"\nrole = \"viewer\"\nkey = \"{key}\"\n");
    let program = Program::start(&(rules(&upstream) + &keys), &[]).await;
    let url = program.url();
    let run = async |key: &str, arguments: &[&str]| {
        run_with(arguments, &[("ECLUSA_URL", &url), ("ECLUSA_KEY", key)], "").await
    };
    assert!(run("", &["tail"]).await.failed(4).contains("set ECLUSA_KEY"));
    assert!(run("wrong", &["tail"]).await.failed(4).contains("does not know the key"));
    let unknown = run(&key, &["tail", "--lane", "nope"]).await.failed(3);
    assert!(unknown.starts_with("error: Not found: There is no lane `nope`; the config has "), "{unknown}");
    let nobody = format!("http://127.0.0.1:{}", free_port());
    assert!(run_at(&nobody, &["tail"]).await.failed(5).contains("is `eclusa serve` running?"));
    let page = FakeUpstream::start(Answer::status(200).body("<html>")).await.unwrap();
    assert!(run_at(&page.url(), &["tail"]).await.failed(1).contains("it is not Eclusa"));
}
