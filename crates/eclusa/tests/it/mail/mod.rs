//! Mail, by a real SMTP server (aiosmtpd) whose replies the tests script.

mod crash;
mod example;
mod faults;
mod once;
mod recipients;
mod sending;

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;

use crate::program::{PATIENCE, Program};

/// A running server. It ends with the test, even if that is killed.
pub(crate) struct SmtpServer {
    _child: Child,
    input: tokio::sync::Mutex<ChildStdin>,
    events: Arc<Mutex<Vec<Value>>>,
    count: watch::Receiver<usize>,
    pub(crate) port: u16,
}

impl SmtpServer {
    pub(crate) async fn start() -> Self {
        Self::with(json!({})).await
    }

    /// A server with these options: `cert` and `key` for TLS, `implicit`, `auth` as user and password.
    pub(crate) async fn with(options: Value) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mail");
        let packages = here.join("python");
        assert!(packages.join("aiosmtpd").is_dir(), "aiosmtpd is missing: run `make setup`");
        let mut command = Command::new("python3");
        command.arg(here.join("server.py")).arg(options.to_string()).env("PYTHONPATH", packages);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let input = tokio::sync::Mutex::new(child.stdin.take().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (events, (reported, count)) = (Arc::<Mutex<Vec<Value>>>::default(), watch::channel(0));
        let kept = events.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().unwrap().push(serde_json::from_str(&line).unwrap());
                reported.send_modify(|count| *count += 1);
            }
        });
        let mut server = Self { _child: child, input, events, count, port: 0 };
        let listening = server.wait_for("listening", 1).await.remove(0);
        server.port = u16::try_from(listening["port"].as_u64().unwrap()).unwrap();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }

    /// Sets the replies to some steps.
    pub(crate) async fn script(&self, scripts: Value) {
        let known = self.events("scripted").len();
        self.input.lock().await.write_all(format!("{scripts}\n").as_bytes()).await.unwrap();
        self.wait_for("scripted", known + 1).await;
    }

    /// The events of this kind so far.
    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        self.events.lock().unwrap().iter().filter(|known| known["event"] == event).cloned().collect()
    }

    /// Waits until there are `count` events of this kind.
    pub(crate) async fn wait_for(&self, event: &str, times: usize) -> Vec<Value> {
        let mut count = self.count.clone();
        let found = async {
            loop {
                count.mark_unchanged();
                let found = self.events(event);
                if found.len() >= times {
                    return found;
                }
                count.changed().await.unwrap();
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("no {times} of {event}: {:?}", self.events.lock().unwrap()))
    }

    /// The accepted recipients, one entry per message.
    pub(crate) fn accepted(&self) -> Vec<Vec<String>> {
        let words =
            |to: &Value| to.as_array().unwrap().iter().map(|word| word.as_str().unwrap().into()).collect();
        self.events("accepted").iter().map(|event| words(&event["to"])).collect()
    }
}

/// A message to these recipients.
fn message(to: &[&str]) -> Value {
    json!({ "message": { "from": "shop@example.com", "to": to, "subject": "Olá", "text": "Bom dia\n.\nfim" } })
}

/// A lane `mail` to `url`, each with these additional rules. Retries come soon.
fn lane(url: &str, lane_rules: &str, upstream_rules: &str) -> String {
    let retry =
        if lane_rules.contains("retry") { "" } else { "retry = { base = \"50ms\", cap = \"50ms\" }\n" };
    format!(
        "[lanes.mail]\nchain = [\"smtp\"]\n{retry}{lane_rules}\n[upstreams.smtp]\nkind = \"smtp\"\nurl = \"{url}\"\n{upstream_rules}\n"
    )
}

/// A process with these rules, and its store in memory.
async fn start(rules: &str) -> Program {
    Program::start(&format!("[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"memory:\"\n{rules}"), &[])
        .await
}

/// Sends a message and waits for its end.
async fn sent(program: &Program, to: &[&str]) -> Value {
    let job = program.enqueue("mail", &message(to)).await;
    program.finished(&job).await
}

/// The fate of each recipient of an ended job, from the job's result.
fn fates(job: &Value) -> Vec<(String, String)> {
    let recipients = job["result"]["body"]["recipients"].as_array().unwrap_or_else(|| panic!("{job}"));
    let text = |of: &Value, field: &str| of[field].as_str().unwrap().to_owned();
    recipients.iter().map(|of| (text(of, "address"), text(of, "status"))).collect()
}

/// The dead letter of a job.
async fn letter(program: &Program, job: &Value) -> Value {
    let id = job["id"].as_str().unwrap();
    let answer = program.get(&format!("/v1/dead-letters/{id}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}
