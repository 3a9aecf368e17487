//! The command line against a running gateway: what each command prints, and where.

use std::process::Stdio;

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::program::{PATIENCE, Program, eclusa};

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Its output; it must have succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Its output as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let out = self.ok();
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("not JSON: {out}"))
    }

    /// Its error message; it must have failed with `code` and printed nothing else.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{self:?}");
        assert!(!self.err.is_empty());
        self.err
    }
}

/// Runs a command to its end.
pub(crate) async fn run_with(arguments: &[&str], env: &[(&str, &str)], input: &str) -> Ran {
    let mut command = eclusa();
    command.args(arguments).envs(env.iter().copied()).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let ended = child.wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: ended.status.code().unwrap(), out: text(ended.stdout), err: text(ended.stderr) }
}

/// Runs a command against the server at `url`.
pub(crate) async fn run_at(url: &str, arguments: &[&str]) -> Ran {
    run_with(arguments, &[("ECLUSA_URL", url)], "").await
}

/// A gateway with one upstream: `/broken…` fails there, anything else is echoed.
pub(crate) struct Scene {
    pub(crate) upstream: FakeUpstream,
    pub(crate) program: Program,
}

impl Scene {
    pub(crate) async fn start() -> Self {
        let behaviour = Behaviour::by(|seen| match seen.path.as_str() {
            path if path.starts_with("/broken") => Answer::status(500).body("out of order"),
            "/text" => Answer::status(200).body("plain\nlines"),
            path => {
                let said = json!({ "path": path, "query": seen.query });
                Answer::status(200).header("content-type", "application/json").body(said.to_string())
            }
        });
        let upstream = FakeUpstream::start(behaviour).await.unwrap();
        let config = format!(
            r#"
            [store]
            url = "memory:"
            [lanes.mail]
            chain = ["api"]
            retry = {{ attempts = 1 }}
            [lanes.score]
            chain = ["api"]
            [upstreams.api]
            url = "{}"
            max_concurrent = 10
            breaker = {{ failures = 1000, open_for = "30s" }}
            "#,
            upstream.url()
        );
        let program = Program::start(&config, &[]).await;
        Self { upstream, program }
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        run_at(&self.program.url(), arguments).await
    }

    /// A job that stays queued.
    async fn held_back(&self) -> String {
        self.run(&["send", "mail", "/later", "--delay", "1h"]).await.ok().trim().to_owned()
    }
}

#[tokio::test]
async fn send_prints_the_id_and_nothing_else() {
    let scene = Scene::start().await;
    let ran = scene.run(&["send", "mail", "/x", "--tenant", "acme", "--id", "order-1"]).await;
    assert!(ran.err.starts_with("Job is queued in mail"), "{ran:?}");
    let id = ran.ok().trim().to_owned();
    assert_eq!(id.len(), 36);
    let job = scene.program.ended(&id).await;
    assert_eq!((&job["id"], &job["tenant"]), (&json!("order-1"), &json!("acme")));
    let again = scene.run(&["send", "mail", "/x", "--tenant", "acme", "--id", "order-1", "-o", "json"]).await;
    assert_eq!(again.json()["jobId"], id);
}

#[tokio::test]
async fn send_passes_everything_on_unchanged() {
    let scene = Scene::start().await;
    let body = "{\"b\": 1.0,\n \"a\": [] }";
    let url = scene.program.url();
    let what =
        ["send", "mail", "/a?x=1", "--query", "y=2 3", "--query", "y=&", "-X", "put", "-H", "X-Id: 7:8"];
    let how =
        ["--body", "-", "--wait", "30", "--priority", "high", "--ttl", "5m", "--type", "t", "--url", &url];
    let ran = run_with(&[what.as_slice(), how.as_slice()].concat(), &[], body).await;
    assert!(ran.err.ends_with(" in mail\n200 from api after 1 attempt\n"), "{ran:?}");
    let shown: Value = serde_json::from_str(&ran.ok()).unwrap();
    assert_eq!(shown, json!({ "path": "/a", "query": "x=1&y=2%203&y=%26" }));
    let seen = &scene.upstream.requests()[0];
    assert_eq!((seen.method.as_str(), &seen.body[..]), ("PUT", body.as_bytes()));
    assert_eq!(seen.headers["x-id"], "7:8");
    assert_eq!(seen.headers["content-type"], "application/json");
    let job = scene.program.get("/v1/jobs").await.json()["jobs"][0].clone();
    assert_eq!((&job["priority"], &job["type"]), (&json!("high"), &json!("t")));
}

#[tokio::test]
async fn send_takes_bodies_from_files_and_as_text() {
    let scene = Scene::start().await;
    let file = scene.program.dir.path().join("body");
    std::fs::write(&file, "from a file").unwrap();
    let from_file = format!("@{}", file.display());
    scene.run(&["send", "mail", "--body", &from_file, "--wait", "30"]).await.ok();
    scene.run(&["send", "mail", "--body", "-1 is text", "--wait", "30"]).await.ok();
    let seen = scene.upstream.requests();
    assert_eq!((&seen[0].body[..], seen[0].method.as_str()), (&b"from a file"[..], "POST"));
    assert_eq!(&seen[1].body[..], b"-1 is text");
    assert!(seen[1].headers.get("content-type").is_none());
}

#[tokio::test]
async fn send_with_wait_prints_the_result() {
    let scene = Scene::start().await;
    assert_eq!(scene.run(&["send", "mail", "/text", "--wait", "30"]).await.ok(), "plain\nlines\n");
    let job = scene.run(&["send", "mail", "/text", "--wait", "30", "-o", "json"]).await.json();
    assert_eq!((&job["status"], &job["result"]["body"]), (&json!("completed"), &json!("plain\nlines")));
}

#[tokio::test]
async fn send_prints_a_cached_response_at_once() {
    let result = json!({ "status": 200, "headers": {}, "body": "kept" });
    let answer = json!({ "status": "completed", "lane": "score", "reason": "cache", "result": result });
    let server = FakeUpstream::start(Answer::status(200).body(answer.to_string())).await.unwrap();
    for arguments in [["send", "score", "--wait=1", "-o=text"], ["send", "score", "/x", "-o=text"]] {
        let ran = run_at(&server.url(), &arguments).await;
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("kept\n", "Served from the cache\n"));
    }
    assert_eq!(run_at(&server.url(), &["send", "score", "-o", "json"]).await.json(), answer);
    assert_eq!(server.requests()[0].path, "/v1/lanes/score/jobs");
}

#[tokio::test]
async fn waiting_ends_with_7_unless_the_job_completes() {
    let scene = Scene::start().await;
    let ran = scene.run(&["send", "mail", "/broken", "--wait", "30"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (7, "out of order\n"));
    assert!(ran.err.contains("failed after 1 attempt: answered 500"), "{ran:?}");
    let id = scene.held_back().await;
    let ran = scene.run(&["jobs", "wait", &id, "--timeout", "0"]).await;
    assert_eq!(ran.code, 7);
    assert!(ran.out.contains("status    pending\n"), "{ran:?}");
    assert!(ran.err.contains(&format!("is still pending after 0 s\nhelp: `eclusa why {id}`")), "{ran:?}");
    scene.run(&["jobs", "cancel", &id]).await.ok();
    let ran = scene.run(&["jobs", "wait", &id]).await;
    assert_eq!(ran.code, 7);
    assert!(ran.err.contains("was cancelled"), "{ran:?}");
}

#[tokio::test]
async fn why_tells_what_a_job_waits_for() {
    let scene = Scene::start().await;
    let id = scene.held_back().await;
    let out = scene.run(&["why", &id]).await.ok();
    assert!(out.starts_with("It is scheduled to start later; it should start at 20"), "{out}");
    assert!(out.contains("\nreason    scheduled\n") && out.contains("  api  slots    0/10 in use"), "{out}");
    assert_eq!(scene.run(&["why", &id, "-o", "json"]).await.json()["reason"], "scheduled");
}

#[tokio::test]
async fn jobs_are_listed_in_every_format() {
    let scene = Scene::start().await;
    let id = scene.held_back().await;
    scene.run(&["send", "mail", "/broken", "--tenant", "acme", "--wait", "30"]).await;
    let out = scene.run(&["jobs", "ls", "--status", "pending"]).await.ok();
    let lines: Vec<&str> = out.lines().collect();
    let words = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    assert_eq!(lines.len(), 2, "{out}");
    assert_eq!(words(lines[0])[..6], ["ID", "LANE", "TENANT", "PRIORITY", "STATUS", "REASON"]);
    assert_eq!(words(lines[1])[..7], [id.as_str(), "mail", "default", "normal", "pending", "-", "0"]);
    let ran = scene.run(&["send", "mail", "/late", "--delay", "1h", "--ttl", "1ms", "--wait", "30"]).await;
    assert!(ran.err.contains("was dropped: ttl_expired"), "{ran:?}");
    let dropped = scene.run(&["jobs", "ls", "--status", "dropped"]).await.ok();
    assert_eq!(words(dropped.lines().nth(1).unwrap())[4..6], ["dropped", "ttl_expired"]);
    let listed = scene.run(&["jobs", "ls", "--tenant", "acme", "--lane", "mail", "-o", "json"]).await.json();
    assert_eq!(listed["jobs"][0]["lastFailure"]["code"], "500");
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1);
    let out = scene.run(&["-o", "jsonl", "jobs", "ls"]).await.ok();
    let ids: Vec<Value> = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
    assert_eq!(ids.len(), 3);
    let none = scene.run(&["jobs", "ls", "--tenant", "nobody"]).await;
    assert_eq!(none.err, "No jobs\n");
    assert_eq!(none.ok(), "");
}

#[tokio::test]
async fn lists_go_over_pages_up_to_their_limit() {
    let scene = Scene::start().await;
    for _ in 0..60 {
        let job = json!({ "delay": "1h", "request": { "path": "/x" } });
        scene.program.enqueue("mail", &job).await;
    }
    let all = scene.run(&["jobs", "ls", "-o", "jsonl"]).await;
    assert_eq!(all.err, "");
    assert_eq!(all.ok().lines().count(), 60);
    let some = scene.run(&["jobs", "ls", "--limit", "7"]).await;
    assert_eq!(some.err, "There may be more jobs: raise --limit\n");
    assert_eq!(some.ok().lines().count(), 8);
}

#[tokio::test]
async fn a_job_is_shown_with_its_history_and_result() {
    let scene = Scene::start().await;
    let id = scene.run(&["send", "mail", "/text", "--id", "order-1"]).await.ok().trim().to_owned();
    let waited = scene.run(&["jobs", "wait", &id, "--timeout", "30"]).await.ok();
    assert_eq!(scene.run(&["jobs", "get", &id]).await.ok(), waited);
    for part in ["key       order-1\n", "status    completed\n", "started    api\n", "\n  plain\n  lines\n"] {
        assert!(waited.contains(part), "{part:?} in {waited}");
    }
    let job = scene.run(&["jobs", "get", &id, "-o", "json"]).await;
    assert!(job.out.starts_with("{\n  \""), "{job:?}");
    assert_eq!(job.json(), scene.program.get(&format!("/v1/jobs/{id}")).await.json());
}

#[tokio::test]
async fn cancelling_shows_the_job_and_only_works_once() {
    let scene = Scene::start().await;
    let id = scene.held_back().await;
    assert_eq!(scene.run(&["jobs", "cancel", &id, "-o", "jsonl"]).await.json()["status"], "cancelled");
    let err = scene.run(&["jobs", "cancel", &id]).await.failed(1);
    assert_eq!(
        err,
        "error: The current state does not allow that: The job has already ended: it is cancelled\n"
    );
}

#[tokio::test]
async fn lanes_are_listed_paused_and_resumed() {
    let scene = Scene::start().await;
    let out = scene.run(&["lanes", "ls"]).await.ok();
    assert!(out.starts_with("LANE   STATE    HIGH  NORMAL  LOW  PENDING"), "{out}");
    assert!(out.contains("\nmail   running     0       0    0        0"), "{out}");
    assert!(scene.run(&["lanes", "pause", "mail"]).await.ok().contains("mail  paused"));
    assert_eq!(scene.run(&["lanes", "ls", "-o", "json"]).await.json()[0]["paused"], true);
    assert!(scene.run(&["lanes", "resume", "mail"]).await.ok().contains("mail  running"));
    assert_eq!(scene.run(&["lanes", "ls", "-o", "jsonl"]).await.ok().lines().count(), 2);
}

#[tokio::test]
async fn lanes_are_listed_with_their_rates() {
    let scene = Scene::start().await;
    let rates = async || scene.program.get("/v1/lanes/mail").await.json()["rates"].clone();
    // Everything after the first reading of the totals counts.
    while rates().await["seconds"] == 0.0 {}
    scene.run(&["send", "mail", "/text", "--wait", "30"]).await.ok();
    assert_eq!(scene.run(&["send", "mail", "/broken", "--wait", "30"]).await.code, 7);
    let rates = rates().await;
    let seconds = rates["seconds"].as_f64().unwrap().max(1.0);
    let happened = |what: &str| format!("{:.0}", rates[what].as_f64().unwrap() * seconds);
    let all = ["accepted", "started", "completed", "failed", "dropped"].map(happened);
    assert_eq!(all, ["2", "2", "1", "1", "0"], "{rates}");
    let out = scene.run(&["lanes", "ls"]).await.ok();
    let mut lines = out.lines().map(|line| line.split_whitespace().skip(10).collect::<Vec<_>>());
    assert_eq!(lines.next().unwrap(), ["IN/S", "DONE/S"]);
    assert!(lines.next().unwrap().iter().all(|rate| rate.parse::<f64>().is_ok()), "{out}");
    assert!(out.lines().all(|line| line.len() <= 100), "{out}");
}

#[tokio::test]
async fn upstreams_and_breakers_are_listed_and_reset() {
    let scene = Scene::start().await;
    scene.run(&["send", "mail", "/broken", "--wait", "30"]).await;
    let out = scene.run(&["upstreams", "ls"]).await.ok();
    assert!(
        out.starts_with("UPSTREAM  IN FLIGHT  LAST MINUTE  GATES\napi               0            1"),
        "{out}"
    );
    assert!(out.contains("breaker: closed, 1/1000 failures; slots: 0/10 in use"), "{out}");
    assert!(!out.contains("circuit_open"), "{out}");
    assert_eq!(scene.run(&["upstreams", "ls", "-o", "json"]).await.json()[0]["name"], "api");
    let breakers = "UPSTREAM  STATE   FAILURES  OPEN UNTIL\napi       closed         1  -\n";
    assert_eq!(scene.run(&["breakers", "ls"]).await.ok(), breakers);
    assert_eq!(scene.run(&["breakers", "reset", "api", "-o", "json"]).await.json()["failures"], 0);
}

/// Every list can be watched, also as JSON.
#[tokio::test]
async fn every_list_can_be_watched() {
    let scene = Scene::start().await;
    for list in ["jobs", "lanes", "upstreams", "breakers", "policies", "dlq"] {
        let mut child = eclusa()
            .args([list, "ls", "--watch", "1", "-o", "json", "--url", &scene.program.url()])
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The bracket of a list starts a line; its contents are indented.
        let twice = async {
            let mut lists = 0;
            while lists < 2 {
                let line = lines.next_line().await.unwrap().expect("it goes on");
                lists += usize::from(line.starts_with(['[', '{']));
            }
        };
        tokio::time::timeout(PATIENCE, twice).await.unwrap_or_else(|_| panic!("{list} is shown once"));
        child.kill().await.unwrap();
    }
}
