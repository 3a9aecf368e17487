//! The real binary as a child process, and a client for its API.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::watch;

/// How long anything expected may take, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// The log message when a job has ended and was counted.
const ENDINGS: [&str; 5] = [
    "Job completed",
    "Job answered from the cache",
    "Job failed permanently",
    "Job dropped",
    "Job cancelled",
];

/// A running `eclusa serve`.
pub(crate) struct Program {
    child: Child,
    address: String,
    log: Log,
    client: Client<HttpConnector, Full<Bytes>>,
    /// Kept until the end: it contains the config and possibly the store.
    pub(crate) dir: Arc<TempDir>,
}

/// The lines of a log, as they arrive.
#[derive(Clone)]
struct Log {
    lines: Arc<Mutex<Vec<Value>>>,
    count: watch::Receiver<usize>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A command that runs the binary with a clean environment.
pub(crate) fn eclusa() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eclusa"));
    command.env_clear().kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A file of the examples.
pub(crate) fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

impl Program {
    /// Starts with `config`, by default on a free port and with its store in a new directory.
    pub(crate) async fn start(config: &str, env: &[(&str, &str)]) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), config, env).await
    }

    /// Starts in an existing directory.
    pub(crate) async fn start_in(dir: Arc<TempDir>, config: &str, env: &[(&str, &str)]) -> Self {
        let command = serve(&dir, config, env);
        Self::run(dir, command).await
    }

    /// A process that does only part of the work.
    pub(crate) async fn start_as(role: &str, config: &str) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let mut command = serve(&dir, config, &[]);
        command.args(["--role", role]);
        Self::run(dir, command).await
    }

    async fn run(dir: Arc<TempDir>, mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let log = Log::of(child.stderr.take().unwrap());
        let listening = log.wait_for("Listening", &[]).await;
        let address = listening["address"].as_str().unwrap().to_owned();
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { child, address, log, client, dir }
    }

    /// Starts `eclusa demo`; returns also what it prints.
    pub(crate) async fn demo() -> (Self, Lines<BufReader<ChildStdout>>) {
        let mut child = eclusa().args(["demo", "--listen", "127.0.0.1:0"]).spawn().unwrap();
        let log = Log::of(child.stderr.take().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let address =
            first.split("http://").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
        let client = Client::builder(TokioExecutor::new()).build_http();
        (Self { child, address, log, client, dir: Arc::new(tempfile::tempdir().unwrap()) }, lines)
    }

    /// Starts a program that must fail to start; returns its exit code and its output.
    pub(crate) async fn refused(dir: &TempDir, config: &str, env: &[(&str, &str)]) -> (Option<i32>, String) {
        let output = serve(dir, config, env).output();
        let output = tokio::time::timeout(PATIENCE, output).await.unwrap().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Starts an example of the repository.
    pub(crate) async fn start_example(name: &str, env: &[(&str, &str)]) -> Self {
        let config = std::fs::read_to_string(example(name)).unwrap();
        let config = config.replace("listen = \"127.0.0.1:8080\"", "listen = \"127.0.0.1:0\"");
        Self::start(&config, env).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends a request with these headers; the path is sent unchanged.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = http::Request::builder().method(method).uri(format!("{}{path}", self.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let answer = self.client.request(request).await.unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// Sends raw bytes on a new connection and returns everything until it is closed.
    pub(crate) async fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        // The server may close before everything is sent.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let read = async {
            let mut part = [0; 4096];
            while let Ok(size @ 1..) = stream.read(&mut part).await {
                answer.extend_from_slice(&part[..size]);
            }
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], &body.to_string()).await
    }

    /// Polls until the answer satisfies the condition.
    pub(crate) async fn until(&self, path: &str, wished: impl Fn(&Answer) -> bool) -> Answer {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        let found = async {
            loop {
                pace.tick().await;
                let answer = self.get(path).await;
                if wished(&answer) {
                    return answer;
                }
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{path} is not as wished"))
    }

    /// Enqueues a job and returns its id.
    pub(crate) async fn enqueue(&self, lane: &str, job: &Value) -> String {
        let answer = self.post(&format!("/v1/lanes/{lane}/jobs"), job).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        answer.json()["jobId"].as_str().unwrap().to_owned()
    }

    /// The job, once it has ended.
    pub(crate) async fn ended(&self, job: &str) -> Value {
        let answer = self.get(&format!("/v1/jobs/{job}/wait?timeout=60")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// The job, once it has ended and this process has counted and logged it.
    pub(crate) async fn finished(&self, job: &str) -> Value {
        let ended = self.ended(job).await;
        let about =
            |line: &Value| line["jobId"] == job && ENDINGS.iter().any(|ending| line["message"] == *ending);
        self.log.wait_until(&format!("the end of {job}"), about).await;
        ended
    }

    /// Pauses a lane: nothing starts until [`Program::resume`].
    pub(crate) async fn pause(&self, lane: &str) {
        let answer = self.post(&format!("/v1/lanes/{lane}/pause"), &Value::Null).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    pub(crate) async fn resume(&self, lane: &str) {
        let answer = self.post(&format!("/v1/lanes/{lane}/resume"), &Value::Null).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// The reason why a job waits.
    pub(crate) async fn why(&self, job: &str) -> String {
        let why = self.get(&format!("/v1/jobs/{job}/why")).await.json();
        why["reason"].as_str().unwrap_or("").to_owned()
    }

    /// The state of a gate of an upstream.
    pub(crate) async fn gate(&self, upstream: &str, reason: &str) -> Value {
        let upstream = self.get(&format!("/v1/upstreams/{upstream}")).await.json();
        let gates = upstream["gates"].as_array().unwrap().clone();
        gates.into_iter().find(|gate| gate["reason"] == reason).unwrap_or(Value::Null)
    }

    /// The value of a metric with exactly these labels, in order. A missing metric fails the test, because a misspelt name
    /// would look like a zero.
    pub(crate) async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let found = self.metric_if_there(name, labels).await;
        found.unwrap_or_else(|| panic!("there is no metric {name} {labels:?}"))
    }

    /// The value of a metric that may be missing.
    pub(crate) async fn metric_if_there(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let text = self.get("/metrics").await.text().to_owned();
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let start =
            if labels.is_empty() { format!("{name} ") } else { format!("{name}{{{}}} ", labels.join(",")) };
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.map(|value| value.trim().parse().unwrap())
    }

    /// Waits for a line of the log with this message and these fields.
    pub(crate) async fn logged(&self, message: &str, fields: &[(&str, &str)]) -> Value {
        self.log.wait_for(message, fields).await
    }

    /// All lines so far.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.log.lines.lock().unwrap().clone()
    }

    /// Asks it to stop and waits for its end.
    pub(crate) async fn stop(self) -> (ExitStatus, Arc<TempDir>) {
        self.signal("TERM");
        self.over().await
    }

    /// Waits for its end.
    pub(crate) async fn over(mut self) -> (ExitStatus, Arc<TempDir>) {
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        (status, self.dir)
    }

    /// Replaces its config and makes it reload.
    pub(crate) fn reload(&self, config: &str) {
        write_config(&self.dir, config);
        self.signal("HUP");
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Kills it like a power cut, except that the disk stays intact.
    pub(crate) async fn kill(mut self) -> Arc<TempDir> {
        self.child.kill().await.unwrap();
        self.dir
    }
}

impl Log {
    fn of(stderr: ChildStderr) -> Self {
        let (lines, (reported, count)) = (Arc::<Mutex<Vec<Value>>>::default(), watch::channel(0));
        let log = Self { lines, count };
        let lines = log.lines.clone();
        tokio::spawn(async move {
            let mut stderr = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = stderr.next_line().await {
                lines.lock().unwrap().push(serde_json::from_str(&line).unwrap_or(Value::String(line)));
                reported.send_modify(|count| *count += 1);
            }
        });
        log
    }

    async fn wait_for(&self, message: &str, fields: &[(&str, &str)]) -> Value {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        let fits = |line: &Value| {
            line["message"].as_str().is_some_and(|said| said.starts_with(message))
                && fields.iter().all(|(name, value)| text(&line[*name]) == *value)
        };
        self.wait_until(&format!("{message:?} {fields:?}"), fits).await
    }

    async fn wait_until(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let find = || self.lines.lock().unwrap().iter().find(|line| fits(line)).cloned();
        let mut count = self.count.clone();
        let found = async {
            loop {
                count.mark_unchanged();
                if let Some(line) = find() {
                    return Some(line);
                }
                if count.changed().await.is_err() {
                    return find();
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await.ok().flatten();
        found.unwrap_or_else(|| panic!("no line {what} in {:#?}", self.lines.lock().unwrap()))
    }
}

/// A command that serves `config`.
fn serve(dir: &TempDir, config: &str, env: &[(&str, &str)]) -> Command {
    let path = write_config(dir, config);
    let mut command = eclusa();
    command.args(["serve", "--config"]).arg(&path).envs(env.iter().copied()).current_dir(dir.path());
    command
}

/// Writes `config`, by default with a free port, a store below `dir`, a debug log and no drain.
fn write_config(dir: &TempDir, config: &str) -> PathBuf {
    let mut text = config.to_owned();
    if !text.contains("drain =") {
        text = text.replacen("[server]", "[server]\ndrain = \"0s\"", 1);
    }
    for (section, lines) in [
        ("[server]", "listen = \"127.0.0.1:0\"\ndrain = \"0s\""),
        ("[store]", "url = \"embedded:./data\""),
        ("[log]", "format = \"json\"\nlevel = \"info,eclusa=debug\""),
    ] {
        if !text.contains(section) {
            text = format!("{text}\n{section}\n{lines}\n");
        }
    }
    let path = dir.path().join("eclusa.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// The times at which a job started, in milliseconds, by the store's clock.
pub(crate) fn starts(job: &Value) -> Vec<i64> {
    let events = job["timeline"].as_array().unwrap().iter();
    events.filter(|event| event["event"] == "started").map(|event| millis(&event["at"])).collect()
}

/// The time at which a job ended, in milliseconds, by the store's clock.
pub(crate) fn end(job: &Value) -> i64 {
    millis(&job["timeline"].as_array().unwrap().last().unwrap()["at"])
}

/// Parses a time of the API into milliseconds.
pub(crate) fn millis(moment: &Value) -> i64 {
    let text = moment.as_str().unwrap_or_else(|| panic!("not a moment: {moment}"));
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}
