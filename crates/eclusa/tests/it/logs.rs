//! Log lines for operators: gates, audit, refused keys, requests.

use bytes::Bytes;
use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::program::{PATIENCE, Program, eclusa};
use super::redis_server::RedisServer;
use super::shared;

const OPERATOR: &str = "operator-0123456789";

/// A direct lane, a queue, and rules for their upstream.
fn rules(url: &str, of_upstream: &str) -> String {
    format!(
        "[lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]\n[lanes.work]\nchain = [\"up\"]\nretry = {{ attempts = 1 }}\n\
         [upstreams.up]\nurl = \"{url}\"\n{of_upstream}\n"
    )
}

fn said(program: &Program, message: &str) -> Vec<Value> {
    let fits = |line: &Value| line["message"].as_str().is_some_and(|said| said.starts_with(message));
    program.log().into_iter().filter(fits).collect()
}

#[tokio::test]
async fn each_transition_of_a_breaker_is_a_line() {
    let answers = Behaviour::script([Answer::status(503), Answer::status(503)]).then(Answer::status(200));
    let upstream = FakeUpstream::start(answers).await.unwrap();
    let breaker = "breaker = { failures = 2, open_for = \"200ms\" }";
    let program = Program::start(&rules(&upstream.url(), breaker), &[]).await;
    for _ in 0..2 {
        assert_eq!(program.get("/proxy/fast/a").await.status, 503);
    }
    let opened = program.logged("Breaker opened", &[("upstream", "up"), ("failures", "2")]).await;
    assert_eq!((&opened["level"], &opened["lastsMs"]), (&json!("warn"), &json!(200)));
    program.until("/proxy/fast/a", |answer| answer.status == 200).await;
    program.logged("Breaker half-open", &[("upstream", "up")]).await;
    program.logged("Breaker closed", &[("upstream", "up")]).await;
    for (message, metric) in [
        ("Breaker opened", "proxy_circuit_open_total"),
        ("Breaker half-open", "proxy_circuit_half_open_total"),
        ("Breaker closed", "proxy_circuit_close_total"),
    ] {
        let counted = program.metric(metric, &[("upstream", "up")]).await;
        assert_eq!(said(&program, message).len() as u64, counted, "{message}");
    }
}

#[tokio::test]
async fn cooldowns_and_closures_are_lines() {
    let answers =
        Behaviour::script([Answer::status(429).header("retry-after", "7")]).then(Answer::status(200));
    let upstream = FakeUpstream::start(answers).await.unwrap();
    let program = Program::start(&rules(&upstream.url(), "cooldown = [\"3s\", \"9s\"]"), &[]).await;
    assert_eq!(program.get("/proxy/fast/a").await.status, 429);
    program.logged("Cooldown for", &[("upstream", "up"), ("errors", "1"), ("lastsMs", "3000")]).await;
    let asked = [("upstream", "up"), ("lastsMs", "7000")];
    program.logged("The upstream asked for no calls", &asked).await;
}

/// The owner logs it, whichever process made the call.
#[tokio::test]
async fn a_transition_is_logged_once_in_a_fleet() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(503)).await.unwrap();
    let rules = rules(&upstream.url(), "breaker = { failures = 1, open_for = \"1h\" }");
    let owner = shared::start(&redis, &rules).await;
    let other = shared::start(&redis, &rules).await;
    assert_eq!(other.get("/proxy/fast/a").await.status, 503);
    owner.logged("Breaker opened", &[("upstream", "up")]).await;
    owner.pause("work").await;
    owner.logged("Lane paused", &[("by", "local")]).await;
    assert_eq!(other.post("/v1/breakers/up/reset", &Value::Null).await.status, 200);
    owner.logged("Breaker closed", &[("upstream", "up")]).await;
    other.logged("Breaker reset", &[("audit", "reset")]).await;
    assert_eq!((said(&owner, "Breaker opened").len(), said(&owner, "Breaker closed").len()), (1, 1));
    assert_eq!((said(&other, "Breaker opened").len(), said(&other, "Breaker closed").len()), (0, 0));
    assert_eq!((said(&owner, "Breaker reset").len(), said(&owner, "Lane paused").len()), (0, 1));
}

/// Even if the log is otherwise silent.
#[tokio::test]
async fn changes_by_an_operator_are_logged_with_the_name_of_the_key() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let keys = format!("[[auth.keys]]\nname = \"ops\"\nrole = \"operator\"\nkey = \"{OPERATOR}\"\n");
    let log = "[log]\nformat = \"json\"\nlevel = \"error,eclusa::cli=info\"\n";
    let breaker = "breaker = { failures = 9, open_for = \"1s\" }";
    let program = Program::start(&(rules(&upstream.url(), breaker) + &keys + log), &[]).await;
    let bearer = format!("Bearer {OPERATOR}");
    let send = async |method: &str, path: &str, body: &str| {
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let answer = program.send(method, path, &headers, body).await;
        assert!(answer.status < 300, "{method} {path}: {}", answer.text());
        answer
    };
    send("POST", "/v1/lanes/work/pause", "").await;
    for _ in 0..3 {
        send("POST", "/v1/lanes/work/jobs", r#"{"request":{}}"#).await;
    }
    let job = send("POST", "/v1/lanes/work/jobs", r#"{"request":{}}"#).await.json()["jobId"].clone();
    let job = job.as_str().unwrap();
    send("DELETE", &format!("/v1/jobs/{job}"), "").await;
    send("POST", "/v1/lanes/work/resume", "").await;
    send("POST", "/v1/breakers/up/reset", "").await;
    // Three dead letters: one replayed, which dies again, and all purged.
    let letters = async || loop {
        let list = send("GET", "/v1/dead-letters?lane=work", "").await.json()["deadLetters"].clone();
        if let Some(letters) = list.as_array().filter(|letters| letters.len() == 3) {
            return letters[0]["jobId"].as_str().unwrap().to_owned();
        }
    };
    let letter = letters().await;
    send("POST", &format!("/v1/dead-letters/{letter}/replay"), "").await;
    send("POST", "/v1/dead-letters/replay", r#"{"filter":{"lane":"work"}}"#).await;
    send("DELETE", "/v1/dead-letters?lane=work", "").await;
    send("POST", "/v1/lanes/work/pause", "").await;
    send("POST", "/v1/lanes/work/jobs", r#"{"request":{}}"#).await;
    send("DELETE", "/v1/jobs?lane=work&status=queued", "").await;
    program.logged("Jobs cancelled by filter", &[("jobs", "1"), ("filter", "lane=work status=queued")]).await;
    let lines = [
        ("Lane paused", "pause", ("lane", "work")),
        ("Job cancelled", "cancel", ("jobId", job)),
        ("Lane resumed", "resume", ("lane", "work")),
        ("Breaker reset", "reset", ("upstream", "up")),
        ("Dead letter replayed", "replay", ("replayOf", letter.as_str())),
        ("Bulk replay of dead letters started", "replay", ("level", "info")),
        ("Dead letters purged", "purge", ("level", "info")),
    ];
    for (message, action, about) in lines {
        program.logged(message, &[("audit", action), ("by", "ops"), about]).await;
    }
    assert!(
        !program.log().iter().any(|line| line["message"] == "Job cancelled" && line["audit"].is_null()),
        "the level is `error`"
    );
}

/// Workers report their own calls; what they change has the name of their key.
#[tokio::test]
async fn a_breaker_that_a_key_opens_or_closes_is_logged_with_its_name() {
    let keys = "[[auth.keys]]\nname = \"app\"\nrole = \"producer\"\nkey = \"producer-0123456789\"\n";
    let breaker = "breaker = { failures = 2, open_for = \"100ms\" }";
    let program = Program::start(&(rules("http://127.0.0.1:9", breaker) + keys), &[]).await;
    let report = async |call: &str| {
        let headers = [("authorization", "Bearer producer-0123456789")];
        let answer = program.send("POST", &format!("/v1/breakers/up/{call}"), &headers, "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["state"].clone()
    };
    let audited = || program.log().into_iter().filter(|line| line.get("audit").is_some()).count();
    assert_eq!((report("failure").await, report("failure").await), (json!("closed"), json!("open")));
    let by = |action, state| [("audit", action), ("by", "app"), ("upstream", "up"), ("state", state)];
    program.logged("Breaker opened by a reported failure", &by("failure", "open")).await;
    assert_eq!(report("success").await, "closed");
    program.logged("Breaker closed by a reported success", &by("success", "closed")).await;
    for call in ["success", "try-recover", "failure", "failure"] {
        report(call).await;
    }
    while report("try-recover").await != "closed" {}
    program.logged("Breaker closed by try-recover", &by("try_recover", "closed")).await;
    assert_eq!(audited(), 4, "reports that change nothing are not logged");
}

#[tokio::test]
async fn refused_keys_are_logged_a_few_at_a_time_and_never_shown() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let keys = "[[auth.keys]]\nname = \"app\"\nrole = \"producer\"\nkey = \"producer-0123456789\"\n\
                [[auth.keys]]\nname = \"see\"\nrole = \"viewer\"\nkey = \"viewer-0123456789ab\"\n";
    let program = Program::start(&(rules(&upstream.url(), "") + keys), &[]).await;
    let not_allowed = [("authorization", "Bearer producer-0123456789")];
    assert_eq!(program.send("POST", "/v1/lanes/work/pause", &not_allowed, "").await.status, 403);
    let wrong = [("authorization", "Bearer guessed-secret-0123456789")];
    for _ in 0..40 {
        let answer = program.send("GET", "/proxy/fast/12345678901?cpf=12345678901", &wrong, "").await;
        assert_eq!(answer.status, 401);
    }
    let forbidden = [("status", "403"), ("request", "POST /v1/lanes/work/pause"), ("key", "app")];
    let forbidden = program.logged("Request refused", &forbidden).await;
    let unauthorized = [("status", "401"), ("request", "GET /proxy/fast/***?cpf=***")];
    let unauthorized = program.logged("Request refused", &unauthorized).await;
    assert!(unauthorized.get("key").is_none(), "{unauthorized}");
    for line in [forbidden, unauthorized] {
        assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    }
    assert_eq!(said(&program, "Request refused").len(), 10);
    let log = format!("{:?}", program.log());
    assert!(!log.contains("guessed-secret") && !log.contains("12345678901"), "{log}");
    let metrics =
        program.send("GET", "/metrics", &[("authorization", "Bearer viewer-0123456789ab")], "").await;
    let counted = "eclusa_refused_requests_total{reason=\"unauthorized\"} 40";
    assert!(metrics.text().contains(counted), "{}", metrics.text());
}

#[tokio::test]
async fn with_an_access_log_each_request_is_a_line_without_its_values() {
    let upstream = FakeUpstream::start(Answer::status(201).body("twelve bytes")).await.unwrap();
    let keys = format!("[[auth.keys]]\nname = \"ops\"\nrole = \"operator\"\nkey = \"{OPERATOR}\"\n");
    let log = "[log]\nformat = \"json\"\nlevel = \"warn,eclusa::cli=info\"\naccess = true\n";
    let program = Program::start(&(rules(&upstream.url(), "") + &keys + log), &[]).await;
    let bearer = format!("Bearer {OPERATOR}");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [("authorization", bearer.as_str()), ("traceparent", trace), ("x-request-id", "r-1")];
    let path = "/proxy/fast/entries/a@b.example?cpf=12345678901&x=2";
    assert_eq!(program.send("GET", path, &headers, "").await.status, 201);
    let line = program.logged("GET /proxy/fast/entries/*** 201", &[]).await;
    let shown = |name: &str| line[name].clone();
    assert_eq!(
        [shown("method"), shown("query"), shown("status"), shown("bytes"), shown("key")],
        [json!("GET"), json!("cpf=***&x=***"), json!(201), json!(12), json!("ops")]
    );
    assert_eq!(
        [shown("traceId"), shown("requestId")],
        [json!("4bf92f3577b34da6a3ce929d0e0e4736"), json!("r-1")]
    );
    assert!(
        line["durationMs"].as_f64().unwrap() > 0.0 && line["client"].as_str().unwrap().starts_with("127.")
    );
    assert!(line.get("cutOff").is_none(), "{line}");
    let answer = program.send("POST", "/v1/lanes/work/jobs", &headers[..1], r#"{"request":{}}"#).await;
    program.logged("POST /v1/lanes/work/jobs 202", &[("jobId", answer.header("eclusa-job-id"))]).await;
    let waits = [headers[0], ("prefer", "wait=10")];
    let answer = program.send("POST", "/v1/lanes/work/jobs", &waits, r#"{"request":{}}"#).await;
    let job = answer.json()["jobId"].as_str().unwrap().to_owned();
    assert_eq!((answer.status, answer.header("eclusa-job-id")), (200, job.as_str()));
    program.logged("POST /v1/lanes/work/jobs 200", &[("jobId", &job)]).await;
    program.get("/livez").await;
    let line = program.logged("GET /livez 200", &[]).await;
    assert!(line.get("key").is_none() && line.get("query").is_none(), "{line}");
    program.send("HEAD", "/v1/lanes", &headers[..1], "").await;
    assert!(program.logged("HEAD /v1/lanes 200", &[]).await.get("cutOff").is_none());
    program.get("/nowhere?secret").await;
    program.logged("GET /nowhere 404", &[("query", "***")]).await;
}

/// `eclusa serve 2>&1 | less`, left alone: requests are answered and the process stops, whether or not the log is read again. What
/// did not fit is counted.
#[tokio::test]
async fn a_log_that_nobody_reads_blocks_nothing() {
    for read_again in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let config = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"0s\"\n[store]\nurl = \"memory:\"\n\
                      [log]\nformat = \"json\"\naccess = true\n";
        let path = dir.path().join("eclusa.toml");
        std::fs::write(&path, config).unwrap();
        let mut child = eclusa().args(["serve", "--config"]).arg(&path).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut next = async || {
            let line = tokio::time::timeout(PATIENCE, log.next_line()).await.unwrap().unwrap();
            line.map(|line| serde_json::from_str::<Value>(&line).unwrap_or_else(|_| panic!("torn: {line}")))
        };
        let address = loop {
            if let Some(address) = next().await.unwrap()["address"].as_str() {
                break address.to_owned();
            }
        };
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let long = "x".repeat(250);
        let mut metrics = String::new();
        // More than a pipe and the buffer hold.
        for number in 0..1_500 {
            let path = if number == 1_499 { "/metrics".to_owned() } else { format!("/{long}?{long}=1") };
            let request = http::Request::get(format!("http://{address}{path}")).header("x-request-id", &long);
            let answer = client.request(request.body(Empty::new()).unwrap());
            let answer =
                tokio::time::timeout(PATIENCE, answer).await.expect("the log blocks requests").unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            metrics = String::from_utf8(body.to_vec()).unwrap();
        }
        let counted = metrics.lines().find_map(|line| line.strip_prefix("eclusa_log_lines_dropped_total "));
        let counted: u64 = counted.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap();
        assert!(counted > 0);
        if read_again {
            let report = loop {
                let line = next().await.unwrap();
                if line["message"].as_str().unwrap().ends_with(" log lines dropped") {
                    break line;
                }
            };
            let dropped: u64 =
                report["message"].as_str().unwrap().split(' ').next().unwrap().parse().unwrap();
            assert!(dropped >= counted, "{report}");
        }
        let pid = child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        if read_again {
            let mut last = Value::Null;
            while let Some(line) = next().await {
                last = line;
            }
            assert_eq!(last["message"], "Stopped", "what was logged last is written before the process ends");
        }
        assert!(tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success());
    }
}
