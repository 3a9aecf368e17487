//! Invalid input from all sides: callers, upstreams, the config, the machine.

mod bodies;
mod framing;
mod headers;
mod heads;
mod keys;
mod paths;
mod requests;
mod sites;
mod starting;
mod upstreams;

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::Value;

use super::program::{self, Program};

/// One lane `work` to `up`, with one attempt per job.
async fn start(behaviour: impl Into<Behaviour>, more: &str) -> (Program, FakeUpstream) {
    start_with_timeout(behaviour, more, "60s").await
}

async fn start_with_timeout(
    behaviour: impl Into<Behaviour>,
    more: &str,
    timeout: &str,
) -> (Program, FakeUpstream) {
    let upstream = FakeUpstream::start(behaviour).await.unwrap();
    let config = format!(
        "{more}\n[lanes.work]\nchain = [\"up\"]\nretry = {{ attempts = 1 }}\n\
         [lanes.other]\nchain = [\"up\"]\ntypes = {{ update = \"high\" }}\n\
         [upstreams.up]\nurl = \"{}/base\"\ntimeout = \"{timeout}\"\n",
        upstream.url()
    );
    (Program::start(&config, &[]).await, upstream)
}

async fn start_well() -> (Program, FakeUpstream) {
    start(Answer::status(200), "").await
}

/// Checks for a problem with this status and type.
#[track_caller]
fn assert_problem(answer: &program::Answer, status: u16, word: &str) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let problem = answer.json();
    assert_eq!(problem["type"], format!("urn:eclusa:problem:{word}"), "{problem}");
    assert_eq!(problem["status"], status);
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    problem
}

/// The status of an answer as it came over the wire.
#[track_caller]
fn status(answer: &str) -> u16 {
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    status.unwrap_or_else(|| panic!("not an answer: {answer:?}"))
}
