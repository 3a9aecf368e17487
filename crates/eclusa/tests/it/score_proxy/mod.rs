//! The score proxy of the sources, sentence by sentence, on its own example and with its own variables.

mod breaker;
mod cache;
mod capacity;
mod fallback;
mod intake;
mod metrics;
mod pace;
mod queue;
mod ttl;

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::{Value, json};

use super::program::{self, Program};

/// The CPF of the sources' examples.
const CPF: &str = "05227892180";

/// A proxy and the bureau behind it.
struct Proxy {
    program: Program,
    bureau: FakeUpstream,
}

impl Proxy {
    /// Starts with these variables. By default nothing expires soon, and the pace is fast.
    async fn start(behaviour: impl Into<Behaviour>, env: &[(&str, &str)]) -> Self {
        let quick = [("JOB_TTL_MS", "600000"), ("SCHEDULER_INITIAL_INTERVAL_MS", "50")];
        let mut all: Vec<(&str, &str)> = quick.to_vec();
        all.retain(|(name, _)| !env.iter().any(|(given, _)| given == name));
        all.extend(env);
        Self::start_bare(behaviour, &all).await
    }

    /// Starts with these variables and the example's defaults for all others.
    async fn start_bare(behaviour: impl Into<Behaviour>, env: &[(&str, &str)]) -> Self {
        let bureau = FakeUpstream::start(behaviour).await.unwrap();
        let url = bureau.url();
        let mut all = vec![("UPSTREAM_URL", url.as_str())];
        all.extend(env);
        Self { program: Program::start_example("score-proxy.toml", &all).await, bureau }
    }

    /// Sends a request.
    async fn ask(&self, cpf: &str, headers: &[(&str, &str)]) -> program::Answer {
        self.program.send("GET", &format!("/proxy/score?cpf={cpf}"), headers, "").await
    }

    /// Sends a request that must be accepted; returns its job.
    async fn take_in(&self, cpf: &str, headers: &[(&str, &str)]) -> String {
        let answer = self.ask(cpf, headers).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        answer.json()["jobId"].as_str().unwrap().to_owned()
    }

    async fn take_in_as(&self, cpf: &str, priority: &str) -> String {
        self.take_in(cpf, &[("eclusa-priority", priority)]).await
    }

    /// Sends a request that waits for its answer.
    async fn ask_and_wait(&self, cpf: &str) -> program::Answer {
        self.ask(cpf, &[("prefer", "wait=60")]).await
    }

    async fn job(&self, id: &str) -> Value {
        self.program.get(&format!("/v1/jobs/{id}")).await.json()
    }

    /// The number of jobs with this final status.
    async fn jobs_total(&self, status: &str) -> u64 {
        self.program.metric("proxy_jobs_total", &[("lane", "score"), ("status", status)]).await
    }

    /// A metric about the bureau.
    async fn of_bureau(&self, name: &str) -> u64 {
        self.program.metric(name, &[("upstream", "bureau")]).await
    }

    /// How many jobs were dropped for this reason at this priority.
    async fn drops(&self, reason: &str, priority: &str) -> u64 {
        let labels = [("lane", "score"), ("reason", reason), ("priority", priority)];
        self.program.metric("eclusa_drops_total", &labels).await
    }

    /// Returns once this many milliseconds have passed in the store, by waiting for a job with this delay.
    async fn pass(&self, millis: u64) {
        let job =
            json!({ "delay": format!("{millis}ms"), "request": { "query": { "cpf": cpf(500_000_000) } } });
        let id = self.program.enqueue("score", &job).await;
        assert_eq!(self.program.finished(&id).await["status"], "completed");
    }
}

/// A valid CPF, different for each number.
fn cpf(number: u32) -> String {
    let mut digits: Vec<u32> =
        format!("{:09}", 123_000_000 + number).bytes().map(|byte| u32::from(byte - b'0')).collect();
    for _ in 0..2 {
        let sum: u32 = digits.iter().rev().zip(2..).map(|(digit, weight)| digit * weight).sum();
        digits.push(match sum % 11 {
            0 | 1 => 0,
            rest => 11 - rest,
        });
    }
    digits.iter().map(ToString::to_string).collect()
}

/// An answer of the bureau.
fn score(text: &str) -> Answer {
    Answer::status(200).header("content-type", "application/json").body(format!("{{\"score\":{text}}}"))
}
