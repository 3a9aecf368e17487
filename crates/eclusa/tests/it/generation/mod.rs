//! Generations by three providers, counted by the providers themselves: two accept a job and call back, the third answers
//! synchronously. Whatever is killed meanwhile, each job is submitted once to each provider that it tries, no limit is
//! exceeded, jobs start in order, and no slot leaks.

mod example;
mod provider;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::provider::{Fate, Listeners, Provider};
use crate::program::{PATIENCE, Program, millis};
use crate::redis_server::RedisServer;
use crate::webhooks::SECRET;

const JOBS: usize = 1_000;
/// Jobs per batch.
const BATCH: usize = 100;
/// `max_concurrent` and `rpm`.
const REPLICATE: (usize, usize) = (5, 100);
const FAL: (usize, usize) = (10, 200);
const GOOGLE: usize = 10;
/// A process is killed after each further number of submits.
const KILL_EVERY: usize = 200;

fn at_replicate(job: usize) -> Fate {
    match job % 20 {
        3 => Fate::Refused,
        7 => Fate::FailsLater,
        _ => Fate::Succeeds,
    }
}

fn at_fal(job: usize) -> Fate {
    if job % 20 == 11 { Fate::Refused } else { Fate::Succeeds }
}

struct Providers {
    /// The processes that receive webhooks.
    listeners: Listeners,
    replicate: Provider,
    fal: Provider,
    google: Provider,
}

impl Providers {
    async fn start() -> Self {
        let listeners = Listeners::default();
        let work = Duration::from_millis(30);
        Self {
            replicate: Provider::later(work, listeners.clone(), at_replicate).await,
            fal: Provider::later(work, listeners.clone(), at_fal).await,
            google: Provider::at_once(work / 3).await,
            listeners,
        }
    }

    fn all(&self) -> [&Provider; 3] {
        [&self.replicate, &self.fal, &self.google]
    }

    fn submits(&self) -> usize {
        self.all().iter().map(|provider| provider.book.lock().unwrap().submits.len()).sum()
    }

    async fn submitted(&self, count: usize) {
        let submitted = async {
            while self.submits() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, submitted).await.is_ok(), "jobs are submitted");
    }

    fn config(&self, store: &str) -> String {
        let later = |name: &str, url: String, (slots, rpm): (usize, usize)| {
            format!(
                "[upstreams.{name}]\nurl = \"{url}\"\nmax_concurrent = {slots}\nrpm = {rpm}\n\
                 request = {{ path = \"/v1/predictions\", body = {{ input = \"{{params./input}}\", \
                 webhook = \"{{webhook_url}}\" }} }}\n\
                 async = {{ id = \"body:/id\", timeout = \"20s\", on_failure = \"next\", webhook = {{ \
                 verify = \"standard-webhooks\", secret = \"{SECRET}\", status = \"/status\", \
                 success = [\"succeeded\"], failure = [\"failed\"] }} }}\n"
            )
        };
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\npublic_url = \"http://gateway.invalid\"\n[store]\n{store}\n\
             [workers]\nlease = \"3s\"\n\
             [lanes.generation]\nchain_by = \"params:/modelId\"\n\
             chains = {{ flux = [\"replicate\", \"fal\", \"google\"] }}\ncapacity = {JOBS}\nfairness = false\n\
             retry = {{ attempts = 1 }}\n{}{}\
             [upstreams.google]\nurl = \"{}\"\nmax_concurrent = {GOOGLE}\n\
             request = {{ path = \"/generate\", body = {{ input = \"{{params./input}}\" }} }}\n",
            later("replicate", self.replicate.url(), REPLICATE),
            later("fal", self.fal.url(), FAL),
            self.google.url(),
        )
    }

    /// Checks that no limit was exceeded, and that only jobs of a killed process were submitted twice.
    fn check(&self, jobs: &[Value]) {
        let limits = [REPLICATE.0, FAL.0, GOOGLE];
        for (provider, slots) in self.all().into_iter().zip(limits) {
            let book = provider.book.lock().unwrap();
            assert!(book.most <= slots, "{} at the same time, and {slots} are allowed", book.most);
            let mut counts = BTreeMap::<usize, usize>::new();
            book.submits.iter().for_each(|(_, job)| *counts.entry(*job).or_default() += 1);
            for (job, count) in counts {
                let recovered = events(&jobs[job], "taken_up").len();
                assert!(count <= 1 + recovered, "submitted {count} times: {}", jobs[job]);
            }
        }
        for (provider, (_, rpm)) in [(&self.replicate, REPLICATE), (&self.fal, FAL)] {
            let most = provider.book.lock().unwrap().most_in_a_minute();
            assert!(most <= rpm, "{most} in a minute, and {rpm} are allowed");
        }
    }
}

/// The time of an event of a job.
fn events(job: &Value, event: &str) -> Vec<i64> {
    let timeline = job["timeline"].as_array().unwrap().iter();
    timeline.filter(|entry| entry["event"] == event).map(|entry| millis(&entry["at"])).collect()
}

/// Enqueues all jobs, each batch at the next process; returns their ids in the order of acceptance.
async fn enqueue(programs: &[Program]) -> Vec<String> {
    let mut ids = Vec::new();
    for (first, program) in (0..JOBS).step_by(BATCH).zip(programs.iter().cycle()) {
        let job = |number: usize| json!({ "tenant": format!("user-{}", number % 7), "params": { "modelId": "flux", "input": number } });
        let jobs: Vec<_> = (first..first + BATCH).map(job).collect();
        let answer = program.post("/v1/lanes/generation/jobs/batch", &json!(jobs)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answers = answer.json().as_array().unwrap().clone();
        ids.extend(answers.iter().map(|one| one["jobId"].as_str().unwrap().to_owned()));
    }
    ids
}

/// Checks that everything completed, in order, and that nothing leaked.
async fn check(program: &Program, providers: &Providers, ids: &[String]) {
    let mut jobs = Vec::new();
    for id in ids {
        let ended = program.get(&format!("/v1/jobs/{id}/wait?timeout=60")).await;
        jobs.push(ended.json());
    }
    let failed: Vec<_> = jobs.iter().filter(|job| job["status"] != "completed").collect();
    assert!(failed.is_empty(), "{} did not complete, the first is {}", failed.len(), failed[0]);
    let first_starts: Vec<_> = jobs.iter().map(|job| events(job, "started")[0]).collect();
    assert!(first_starts.is_sorted(), "not in the order in which they came");
    providers.check(&jobs);
    let upstreams = program.get("/v1/upstreams").await.json();
    for upstream in upstreams.as_array().unwrap() {
        assert_eq!(upstream["inFlight"], 0, "{upstream}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_processes_share_what_providers_allow_while_some_are_killed() {
    let redis = RedisServer::start();
    let providers = Providers::start().await;
    let config = providers.config(&format!("url = \"{}\"\nterm = \"500ms\"", redis.url()));
    let mut programs = join_all((0..5).map(|_| Program::start(&config, &[]))).await;
    let listen = |programs: &[Program]| {
        *providers.listeners.lock().unwrap() = programs.iter().map(Program::url).collect();
    };
    listen(&programs);
    let ids = enqueue(&programs).await;
    for killed in 1..=3 {
        providers.submitted(killed * KILL_EVERY).await;
        // The first may be the owner, later any of the remaining ones.
        programs.remove(0).kill().await;
        programs.push(Program::start(&config, &[]).await);
        listen(&programs);
    }
    check(&programs[0], &providers, &ids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_with_its_own_store_is_killed_now_and_then() {
    let providers = Providers::start().await;
    let config = providers.config("url = \"embedded:./data\"");
    let mut program = Program::start(&config, &[]).await;
    let listen = |program: &Program| *providers.listeners.lock().unwrap() = vec![program.url()];
    listen(&program);
    let ids = enqueue(std::slice::from_ref(&program)).await;
    for killed in 1..=3 {
        providers.submitted(killed * KILL_EVERY).await;
        let dir: Arc<TempDir> = program.kill().await;
        program = Program::start_in(dir, &config, &[]).await;
        listen(&program);
    }
    check(&program, &providers, &ids).await;
}
