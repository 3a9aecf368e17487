//! Alerts: listed, counted, logged, and posted once, signed.

use std::time::Duration;

use base64::Engine as _;
use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch, ReceivedRequest};
use ring::hmac;
use serde_json::{Value, json};

use super::program::{PATIENCE, Program, eclusa};
use super::redis_server::RedisServer;

const OPERATORS: &str = "operators-secret-0123456789";
const ACME: &str = "acme-secret-0123456789";

/// All calls fail permanently. `rules` is the rest of `[alerts]`.
fn config(upstream: &FakeUpstream, operators: &FakeUpstream, rules: &str) -> String {
    format!(
        "[alerts]\nfor = \"0s\"\nkeep_firing_for = \"0s\"\n\
         webhook = {{ url = \"{}/hook?of=1\", secret = \"{OPERATORS}\" }}\n{rules}\n\
         [lanes.work]\nchain = [\"up\"]\nretry = {{ attempts = 1 }}\n[upstreams.up]\nurl = \"{}\"\n",
        operators.url(),
        upstream.url()
    )
}

/// Makes one job fail.
fn once(status: u16) -> Behaviour {
    Behaviour::script([Answer::status(status)])
}

fn on_redis(redis: &RedisServer, config: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\nterm = \"500ms\"\n{config}",
        redis.url()
    )
}

fn header<'a>(seen: &'a ReceivedRequest, name: &str) -> &'a str {
    seen.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// The posted message, after checking its signature.
fn message(seen: &ReceivedRequest, secret: &str) -> Value {
    let signed = [header(seen, "webhook-id"), ".", header(seen, "webhook-timestamp"), "."].concat();
    let message = [signed.as_bytes(), &seen.body].concat();
    let signature = header(seen, "webhook-signature").strip_prefix("v1,").unwrap();
    let signature = base64::prelude::BASE64_STANDARD.decode(signature).unwrap();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), &message, &signature).unwrap();
    serde_json::from_slice(&seen.body).unwrap()
}

/// Type and name of each message so far.
fn messages(listener: &FakeUpstream) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let messages = listener.requests();
    let messages = messages.iter().map(|seen| message(seen, OPERATORS));
    messages.map(|message| (text(&message["type"]), text(&message["data"]["name"]))).collect()
}

async fn fail(program: &Program, tenant: &str, jobs: usize) {
    for _ in 0..jobs {
        let job = json!({ "tenant": tenant, "request": { "path": "/a" } });
        let id = program.enqueue("work", &job).await;
        assert_eq!(program.ended(&id).await["status"], "failed");
    }
}

async fn firing(program: &Program, name: &str) -> Value {
    let named = |list: &Value| {
        let list = list.as_array().unwrap().clone();
        list.into_iter().find(|alert| alert["name"] == name)
    };
    let answer = program
        .until("/v1/alerts", |answer| answer.status == 200 && named(&answer.json()["alerts"]).is_some());
    named(&answer.await.json()["alerts"]).unwrap()
}

async fn nothing_fires(program: &Program) -> Value {
    program
        .until("/v1/alerts", |answer| answer.status == 200 && answer.json()["alerts"] == json!([]))
        .await
        .json()
}

#[tokio::test]
async fn an_alert_is_shown_counted_logged_and_posted_and_so_is_its_end() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let operators = FakeUpstream::start(Answer::status(204)).await.unwrap();
    let acme = FakeUpstream::start(Answer::status(204)).await.unwrap();
    let tenants = format!(
        "tenants = {{ acme = {{ url = \"{}\", secret = \"{ACME}\" }} }}\ntenant_dead_letters = 1\ndead_letter_rate = false",
        acme.url()
    );
    let program = Program::start(&config(&upstream, &operators, &tenants), &[]).await;
    assert_eq!(nothing_fires(&program).await, json!({ "alerts": [], "recent": [] }));
    fail(&program, "acme", 2).await;
    fail(&program, "other", 2).await;
    operators.wait_for(2).await;
    acme.wait_for(1).await;
    assert_eq!(acme.requests().len(), 1, "a tenant hears of nobody else");
    let fired = message(&acme.requests()[0], ACME);
    let data = &fired["data"];
    assert_eq!((&fired["type"], &data["tenant"]), (&json!("alert.firing"), &json!("acme")));
    assert_eq!(
        (&data["value"], &data["threshold"], &data["lane"]),
        (&json!(2.0), &json!(1.0), &json!("work"))
    );
    assert_eq!(data["text"], "Tenant `acme` has 2 dead letters in lane `work`; the limit is 1.");
    let hook = &operators.requests()[0];
    assert_eq!((hook.method.as_str(), hook.path.as_str()), ("POST", "/hook"));

    let shown = firing(&program, "tenant_dead_letters").await;
    assert_eq!(shown["severity"], "warning");
    let labels =
        [("alert", "tenant_dead_letters"), ("severity", "warning"), ("lane", "work"), ("companyId", "acme")];
    assert_eq!(program.metric("eclusa_alert_firing", &labels).await, 1);
    program.logged("Alert fires", &[("alert", "tenant_dead_letters"), ("companyId", "acme")]).await;
    let printed = eclusa().args(["alerts", "--url", &program.url()]).output().await.unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("Tenant `acme` has 2 dead letters"), "{printed}");

    // The rule is disabled, so its condition is gone.
    let off = config(&upstream, &operators, &tenants)
        .replace("tenant_dead_letters = 1", "tenant_dead_letters = false");
    program.reload(&off);
    operators.wait_for(4).await;
    acme.wait_for(2).await;
    let over = message(&acme.requests()[1], ACME);
    assert_eq!((&over["type"], &over["data"]["tenant"]), (&json!("alert.resolved"), &json!("acme")));
    assert!(over["data"]["text"].as_str().unwrap().starts_with("Resolved: Tenant `acme`"), "{over}");
    assert_ne!(header(&acme.requests()[0], "webhook-id"), header(&acme.requests()[1], "webhook-id"));
    let recent = nothing_fires(&program).await["recent"].as_array().unwrap().len();
    assert_eq!(recent, 2);
    program.logged("Alert resolved", &[("alert", "tenant_dead_letters"), ("companyId", "acme")]).await;
}

#[tokio::test]
async fn a_key_sees_the_alerts_of_its_own() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let operators = FakeUpstream::start(Answer::status(204)).await.unwrap();
    let keys = [
        ("all", ""),
        ("lane", "lanes = [\"work\"]"),
        ("none", "lanes = [\"rest\"]"),
        ("acme", "tenants = [\"acme\"]"),
    ];
    let keys = keys.map(|(name, bound)| {
        format!(
            "[[auth.keys]]\nname = \"{name}\"\nrole = \"operator\"\nkey = \"0123456789abcdef-{name}\"\n{bound}\n"
        )
    });
    let rules = "tenant_dead_letters = 0\ndead_letters = 0\ndead_letter_rate = false";
    let config = config(&upstream, &operators, rules) + "[lanes.rest]\nchain = [\"up\"]\n" + &keys.concat();
    let program = Program::start(&config, &[]).await;
    for tenant in ["acme", "other"] {
        let job = json!({ "tenant": tenant, "request": { "path": "/a" } }).to_string();
        let headers =
            [("authorization", "Bearer 0123456789abcdef-all"), ("content-type", "application/json")];
        assert_eq!(program.send("POST", "/v1/lanes/work/jobs", &headers, &job).await.status, 202);
    }
    operators.wait_for(3).await;
    for (key, expected) in [("all", 3), ("lane", 3), ("none", 0), ("acme", 1)] {
        let key = format!("Bearer 0123456789abcdef-{key}");
        let alerts = program.send("GET", "/v1/alerts", &[("authorization", &key)], "").await.json();
        assert_eq!(alerts["alerts"].as_array().unwrap().len(), expected, "{key}");
    }
}

#[tokio::test]
async fn a_notification_survives_the_kill_of_the_process_and_is_not_repeated() {
    let upstream = FakeUpstream::start(once(404)).await.unwrap();
    let latch = Latch::default();
    let operators = FakeUpstream::start(Answer::status(204).after(&latch)).await.unwrap();
    let rules = "dead_letters = 0\ntenant_dead_letters = false\ndead_letter_rate = false";
    let config = config(&upstream, &operators, rules) + "[workers]\nlease = \"1s\"\n";
    let program = Program::start(&config, &[]).await;
    fail(&program, "acme", 1).await;
    operators.wait_for(1).await;
    let dir = program.kill().await;
    latch.open();
    let again = Program::start_in(dir, &config, &[]).await;
    operators.wait_for(2).await;
    let ids: Vec<String> =
        operators.requests().iter().map(|seen| header(seen, "webhook-id").to_owned()).collect();
    assert_eq!(ids[0], ids[1], "it is the same message");
    // A later job is reported later; nothing else was reported until then.
    firing(&again, "dead_letters").await;
    let letters = again.get("/v1/dead-letters?lane=work").await.json();
    let letter = letters["deadLetters"][0]["jobId"].as_str().unwrap().to_owned();
    let replayed = again.post(&format!("/v1/dead-letters/{letter}/replay"), &Value::Null).await;
    assert_eq!(replayed.status, 202, "{}", replayed.text());
    operators.wait_for(3).await;
    let kinds: Vec<_> = messages(&operators).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["alert.firing", "alert.firing", "alert.resolved"]);
}

/// Three processes; the owner is killed as soon as the alert fires: it is not reported twice.
#[tokio::test]
async fn a_fleet_notifies_of_an_alert_once_even_if_the_owner_is_killed() {
    let redis = RedisServer::with(&["--appendonly", "yes"]);
    let upstream = FakeUpstream::start(once(404)).await.unwrap();
    let operators = FakeUpstream::start(Answer::status(204)).await.unwrap();
    let rules = "dead_letters = 0\ntenant_dead_letters = false\ndead_letter_rate = false";
    let config = on_redis(&redis, &config(&upstream, &operators, rules));
    let mut fleet = Vec::new();
    for _ in 0..3 {
        let program = Program::start(&config, &[]).await;
        program.until("/readyz", |answer| answer.status == 200).await;
        fleet.push(program);
    }
    fail(&fleet[0], "acme", 1).await;
    firing(&fleet[1], "dead_letters").await;
    let mut exported = Vec::new();
    for program in &fleet {
        let labels = [("alert", "dead_letters"), ("severity", "warning"), ("lane", "work")];
        exported.push(program.metric_if_there("eclusa_alert_firing", &labels).await.unwrap_or_default());
    }
    assert_eq!(exported.iter().sum::<u64>(), 1, "only the owner exports it: {exported:?}");
    let owner = exported.iter().position(|count| *count == 1).unwrap();
    fleet.remove(owner).kill().await;
    // Only changes under the next owner are reported.
    let survivor = &fleet[0];
    firing(survivor, "dead_letters").await;
    let letters = survivor.get("/v1/dead-letters?lane=work").await.json();
    let letter = letters["deadLetters"][0]["jobId"].as_str().unwrap().to_owned();
    let replayed = survivor.post(&format!("/v1/dead-letters/{letter}/replay"), &Value::Null).await;
    assert_eq!(replayed.status, 202, "{}", replayed.text());
    let resolved = async {
        while messages(&operators).iter().all(|(kind, _)| kind != "alert.resolved") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, resolved).await.unwrap();
    // A message that the killed process was sending may arrive again, with the same id.
    let requests = operators.requests();
    let mut ids: Vec<&str> = requests.iter().map(|seen| header(seen, "webhook-id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2, "one for each transition");
}

#[tokio::test]
async fn the_state_of_redis_is_watched() {
    let redis = RedisServer::with(&["--maxclients", "40"]);
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let operators = FakeUpstream::start(Answer::status(204)).await.unwrap();
    let program = Program::start(&on_redis(&redis, &config(&upstream, &operators, "")), &[]).await;
    let aof = firing(&program, "redis_aof_off").await;
    assert_eq!(aof["severity"], "warning");
    redis.command(&["CONFIG", "SET", "appendonly", "yes"]);
    nothing_fires(&program).await;

    // Connection buffers, which vary, are negligible compared with this.
    redis.command(&["SETRANGE", "filler", "33554432", "x"]);
    let used = redis.command(&["INFO", "memory"]);
    let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim();
    let used: u64 = used.parse().unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", &(used * 100 / 85).to_string()]);
    let memory = firing(&program, "redis_memory").await;
    assert_eq!((&memory["severity"], &memory["threshold"]), (&json!("warning"), &json!(0.8)));
    redis.command(&["CONFIG", "SET", "maxmemory", &(used * 100 / 93).to_string()]);
    let critical = |answer: &super::program::Answer| answer.text().contains("critical");
    program.until("/v1/alerts", critical).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    nothing_fires(&program).await;

    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert_eq!(firing(&program, "redis_eviction").await["severity"], "critical");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    nothing_fires(&program).await;

    let address = redis.address();
    let held: Vec<_> = (0..60).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let refused = firing(&program, "redis_rejected_connections").await;
    assert!(refused["value"].as_f64().unwrap() >= 1.0, "{refused}");
    drop(held);
    // AOF, two for memory, eviction: each twice; and this one.
    operators.wait_for(9).await;
    let sent = messages(&operators);
    let last = sent.iter().filter(|(_, name)| name == "redis_rejected_connections").count();
    assert_eq!((sent.len(), last), (9, 1), "{sent:?}");
}

#[tokio::test]
async fn a_breaker_that_opens_and_a_job_that_waits_too_long_are_alerts() {
    let upstream = FakeUpstream::start(once(500)).await.unwrap();
    let operators = FakeUpstream::start(Answer::status(204)).await.unwrap();
    let rules = "oldest_wait = \"1s\"\ndead_letters = false\ndead_letter_rate = false";
    let config = config(&upstream, &operators, rules) + "breaker = { failures = 1, open_for = \"1h\" }\n";
    let program = Program::start(&config, &[]).await;
    fail(&program, "acme", 1).await;
    assert_eq!(firing(&program, "breaker_open").await["upstream"], "up");
    program.enqueue("work", &json!({ "request": { "path": "/b" } })).await;
    assert_eq!(firing(&program, "oldest_wait").await["lane"], "work");
    let reset = program.post("/v1/breakers/up/reset", &Value::Null).await;
    assert_eq!(reset.status, 200);
    nothing_fires(&program).await;
    operators.wait_for(4).await;
    let mut kinds = messages(&operators);
    kinds.sort_unstable();
    let expected = [
        ("alert.firing", "breaker_open"),
        ("alert.firing", "oldest_wait"),
        ("alert.resolved", "breaker_open"),
        ("alert.resolved", "oldest_wait"),
    ];
    assert_eq!(kinds, expected.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
}

/// Prometheus' own tool checks the rules and runs their tests.
#[test]
fn the_rules_for_prometheus_are_valid_and_do_what_they_say() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus");
    for words in [["check", "rules", "eclusa.rules.yml"], ["test", "rules", "eclusa.rules.test.yml"]] {
        let ran = std::process::Command::new("promtool").args(words).current_dir(&folder).output();
        let ran = ran.expect("promtool is installed: make setup");
        let said = [ran.stdout, ran.stderr].concat();
        assert!(ran.status.success(), "promtool {}: {}", words.join(" "), String::from_utf8_lossy(&said));
    }
}

/// Every built-in alert has a rule, and every metric in the rules is exported.
#[test]
fn every_alert_has_a_rule_for_prometheus() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rules = std::fs::read_to_string(root.join("deploy/prometheus/eclusa.rules.yml")).unwrap();
    let page = std::fs::read_to_string(root.join("docs/how-to/alerts.md")).unwrap();
    for rule in eclusa_core::AlertRule::ALL {
        let words = rule.as_str().split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
        let name = format!("alert: Eclusa{}\n", words.collect::<String>());
        assert!(rules.contains(&name), "no {name}");
        assert!(page.contains(&format!("\n### `{}`\n", rule.as_str())), "no section about {}", rule.as_str());
    }
    let metrics = std::fs::read_to_string(root.join("docs/reference/metrics.md")).unwrap();
    let words = rules.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let read = words.filter(|word| ["dlq_", "proxy_", "eclusa_"].iter().any(|start| word.starts_with(start)));
    for name in read {
        assert!(metrics.contains(&format!("| `{name}` |")), "{name} is no metric");
    }
}
