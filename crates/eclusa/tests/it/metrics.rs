//! The metrics page: its formats, and sums over processes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use eclusa::fake::{Answer, Behaviour, FakeUpstream, ReceivedRequest};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::program::Program;
use super::redis_server::RedisServer;

/// The page of each process: families with their samples.
type Page = BTreeMap<String, BTreeMap<String, f64>>;

async fn page(program: &Program) -> Page {
    let text = program.get("/metrics").await.text().to_owned();
    let mut page = Page::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some((name, _)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            name.clone_into(&mut family);
        } else if let Some((sample, value)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) {
            page.entry(family.clone()).or_default().insert(sample.to_owned(), value.parse().unwrap());
        }
    }
    page
}

/// The sum over processes of every sample.
fn summed(pages: &[Page]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (sample, value) in pages.iter().flat_map(BTreeMap::values).flatten() {
        *sums.entry(sample.clone()).or_default() += value;
    }
    sums
}

/// Families that exactly one of the pages has.
fn of_one(pages: &[Page]) -> BTreeSet<&str> {
    let all: BTreeSet<&str> = pages.iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
    all.into_iter()
        .filter(|family| pages.iter().filter(|page| page.contains_key(*family)).count() == 1)
        .collect()
}

const OF_THE_STORE: [&str; 17] = [
    "proxy_queue_size",
    "eclusa_processing",
    "eclusa_waiting_bytes",
    "eclusa_waits",
    "eclusa_lane_paused",
    "eclusa_lane_capacity",
    "eclusa_oldest_wait_seconds",
    "dlq_size",
    "dlq_oldest_age_seconds",
    "dlq_age_seconds",
    "dlq_by_error_code",
    "dlq_by_company",
    "proxy_circuit_state",
    "proxy_circuit_open_total",
    "eclusa_in_flight",
    "eclusa_pace_rate",
    "tenant_jobs_processed",
];

async fn start(redis: &RedisServer, upstream: &FakeUpstream) -> Program {
    let config = format!(
        "[store]\nurl = \"{}\"\nterm = \"500ms\"\n[lanes.bad]\nchain = [\"up\"]\nretry = {{ attempts = 1 }}\n\
         [lanes.idle]\nchain = [\"up\"]\ncapacity = 77\n[upstreams.up]\nurl = \"{}\"\nbreaker = {{ failures = 100 }}\n\
         pace = {{ initial = \"10ms\", min = \"10ms\", adaptive = true }}\n",
        redis.url(),
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program
}

fn check(sums: &BTreeMap<String, f64>) {
    let expected = [
        ("proxy_queue_size{lane=\"idle\"}", 5.0),
        ("eclusa_lane_paused{lane=\"idle\"}", 1.0),
        ("eclusa_lane_capacity{lane=\"idle\"}", 77.0),
        ("dlq_size{lane=\"bad\"}", 3.0),
        ("dlq_by_error_code{lane=\"bad\",code=\"500\"}", 3.0),
        ("dlq_by_company{lane=\"bad\",companyId=\"acme\"}", 2.0),
        ("tenant_jobs_processed{lane=\"bad\",companyId=\"acme\"}", 2.0),
        ("dlq_age_seconds_count{lane=\"bad\"}", 1.0),
    ];
    for (sample, value) in expected {
        assert_eq!(sums.get(sample).copied(), Some(value), "{sample}");
    }
}

#[tokio::test]
async fn shared_metrics_are_exported_once_even_after_the_owner_is_killed() {
    let redis = RedisServer::start();
    // `/once` fails once.
    let before = AtomicBool::new(false);
    let rule = move |seen: &ReceivedRequest| {
        let again = seen.path == "/once" && before.swap(true, Ordering::SeqCst);
        Answer::status(if again { 200 } else { 500 })
    };
    let upstream = FakeUpstream::start(Behaviour::by(rule)).await.unwrap();
    let mut programs = Vec::new();
    for _ in 0..3 {
        programs.push(start(&redis, &upstream).await);
    }
    programs[1].pause("idle").await;
    for number in 0..5 {
        programs[number % 3].enqueue("idle", &json!({ "request": {} })).await;
    }
    let mut letters = Vec::new();
    for (tenant, path) in [("acme", "/"), ("acme", "/"), ("globex", "/"), ("initech", "/once")] {
        let job = programs[2].enqueue("bad", &json!({ "tenant": tenant, "request": { "path": path } })).await;
        assert_eq!(programs[0].ended(&job).await["status"], "failed");
        letters.push(job);
    }
    let replay =
        programs[0].post(&format!("/v1/dead-letters/{}/replay", letters[3]), &Value::Null).await.json();
    assert_eq!(programs[1].ended(replay["jobId"].as_str().unwrap()).await["status"], "completed");

    let mut pages = Vec::new();
    for program in &programs {
        pages.push(page(program).await);
    }
    check(&summed(&pages));
    let shared = of_one(&pages);
    for family in OF_THE_STORE {
        assert!(shared.contains(family), "{family} is on the pages of several processes, or of none");
    }
    assert!(pages.iter().all(|page| page["eclusa_store_up"]["eclusa_store_up"] > 0.0));

    let owner = pages.iter().position(|page| page.contains_key("proxy_queue_size")).unwrap();
    programs.remove(owner).kill().await;
    let decides = |health: &Value| health["instances"].as_array().is_some_and(|all| all.len() == 2);
    programs[0].until("/v1/health", |answer| answer.status == 200 && decides(&answer.json())).await;
    let mut pages = Vec::new();
    for program in &programs {
        pages.push(page(program).await);
    }
    check(&summed(&pages));
    assert!(OF_THE_STORE.iter().all(|family| of_one(&pages).contains(family)));
}

#[tokio::test]
async fn prometheus_text_by_default_and_openmetrics_by_wish() {
    let program =
        Program::start("[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n", &[])
            .await;
    let plain = program.get("/metrics").await;
    assert_eq!(plain.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(plain.text().contains("# TYPE proxy_jobs_total counter\n") && !plain.text().contains("# EOF"));
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4";
    let open = program.send("GET", "/metrics", &[("accept", accept)], "").await;
    assert_eq!(open.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.text().contains("# TYPE proxy_jobs counter\n") && open.text().ends_with("# EOF\n"));
    assert!(plain.text().contains(concat!(
        "eclusa_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"} 1\n"
    )));
}

/// The label is `companyId`, the name in the requirements.
#[tokio::test]
async fn promtool_finds_nothing_wrong_with_the_page() {
    let upstream = FakeUpstream::start(Answer::status(503)).await.unwrap();
    let config = format!(
        "[lanes.work]\nchain = [\"up\"]\nretry = {{ attempts = 2, base = \"1ms\" }}\n[upstreams.up]\nurl = \"{}\"\nrpm = 60\n\
         pace = {{ initial = \"10ms\", min = \"10ms\", adaptive = true }}\nbreaker = {{}}\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    let job = program.enqueue("work", &json!({ "tenant": "acme", "request": {} })).await;
    program.finished(&job).await;
    let text = program.get("/metrics").await.text().to_owned();
    let mut promtool = tokio::process::Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut checked = promtool.spawn().expect("promtool is installed (make setup)");
    checked.stdin.take().unwrap().write_all(text.as_bytes()).await.unwrap();
    let checked = checked.wait_with_output().await.unwrap();
    let reported = String::from_utf8(checked.stderr).unwrap() + &String::from_utf8(checked.stdout).unwrap();
    let kept = |line: &&str| line.contains("label names should be written in 'snake_case'");
    let wrong: Vec<&str> = reported.lines().filter(|line| !line.is_empty() && !kept(line)).collect();
    assert!(wrong.is_empty(), "{reported}");
}
