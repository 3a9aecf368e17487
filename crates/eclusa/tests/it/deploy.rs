//! The files of `deploy/` do what they say.

mod files;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::program::Program;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

/// All strings of a JSON document under this key.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|value| texts(value, key, found));
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, key, found)),
        _ => {}
    }
}

/// Words of an expression that may be metric names.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let prefixes = ["eclusa_", "proxy_", "dlq_", "retry_", "tenant_", "process_"];
    words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned).collect()
}

#[test]
fn every_metric_of_the_dashboard_is_described() {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(file("grafana/eclusa.json")).unwrap()).unwrap();
    let mut expressions = Vec::new();
    texts(&dashboard, "expr", &mut expressions);
    texts(&dashboard, "definition", &mut expressions);
    assert!(expressions.len() > 20, "{expressions:?}");
    let page = std::fs::read_to_string(file("../docs/reference/metrics.md")).unwrap();
    let row = |name: &str| page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
    for name in expressions.into_iter().flat_map(metrics) {
        let plain = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let known =
            row(&name).is_some() || plain.and_then(row).is_some_and(|row| row.contains("| histogram |"));
        assert!(known, "{name} is not in docs/reference/metrics.md");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
}

#[tokio::test]
async fn a_server_with_the_redis_conf_keeps_jobs_and_never_evicts() {
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = tokio::process::Command::new("redis-server");
    server.arg(file("redis/redis.conf")).args(["--port", &port, "--dir"]).arg(dir.path());
    let _server = server.kill_on_drop(true).stdout(Stdio::null()).spawn().expect("redis-server is installed");
    let ask = |words: &[&str]| {
        let reported = Command::new("redis-cli").args(["-p", &port]).args(words).output().unwrap();
        String::from_utf8(reported.stdout).unwrap()
    };
    while !ask(&["ping"]).contains("PONG") {
        tokio::task::yield_now().await;
    }
    let settings = [
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("maxmemory", "536870912"),
        ("maxmemory-policy", "noeviction"),
        ("aof-use-rdb-preamble", "yes"),
        ("auto-aof-rewrite-percentage", "100"),
        ("auto-aof-rewrite-min-size", "67108864"),
    ];
    for (name, value) in settings {
        assert_eq!(ask(&["config", "get", name]).lines().nth(1), Some(value), "{name}");
    }
    let config = format!(
        "[store]\nurl = \"redis://127.0.0.1:{port}\"\n[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n"
    );
    let program = Program::start(&config, &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    let warnings: Vec<Value> = program.log().into_iter().filter(|line| line["level"] == "warn").collect();
    assert!(warnings.is_empty(), "{warnings:?}");
}
