//! The workers printed in the documentation, run against the real binary.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;
use tokio::process::Command;

use super::super::http_upstream::free_port;
use super::{breaker, in_flight, start};
use crate::program::{PATIENCE, Program};

const WORKERS: [(&str, &str); 2] = [("python3", "foreign-worker.py"), ("node", "foreign-worker.mjs")];

fn how_to(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to").join(name)
}

/// The output of a worker that makes the given number of calls to `url` as `up`.
async fn run(program: &Program, (language, file): (&str, &str), url: &str, calls: u32) -> Vec<String> {
    let mut command = Command::new(language);
    command.arg(how_to(file)).args(["up", url, &calls.to_string()]);
    command
        .env("ECLUSA_URL", program.url())
        .env("ECLUSA_KEY", "worker-0123456789abcdef")
        .env("no_proxy", "*");
    command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{language}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned).collect()
}

#[test]
fn the_page_prints_the_workers_as_they_are() {
    let page = std::fs::read_to_string(how_to("foreign-workers.md")).unwrap();
    for (_, file) in WORKERS {
        let text = std::fs::read_to_string(how_to(file)).unwrap();
        assert!(page.contains(&format!("\n{text}```\n")), "{file} differs from what the page prints");
    }
}

/// Two processes in two languages, one limit, a key.
#[tokio::test]
async fn workers_in_two_languages_share_one_limit() {
    let key = "[[auth.keys]]\nname = \"worker\"\nrole = \"producer\"\nkey = \"worker-0123456789abcdef\"\n";
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&format!("rate = \"1/h\"\nburst = 5\nmax_concurrent = 2\n{key}")).await;
    let (url, [python, node]) = (upstream.url(), WORKERS);
    let (first, second) = tokio::join!(run(&program, python, &url, 4), run(&program, node, &url, 4));
    let mut said: Vec<String> = [first, second].concat();
    assert_eq!((said.len(), upstream.requests().len()), (8, 5), "{said:?}");
    let refused = said.extract_if(.., |line| line.starts_with("not now (rate_limit), again in ")).count();
    assert_eq!(refused, 3, "{said:?}");
    assert!(said.iter().all(|line| line.starts_with("200, ")), "{said:?}");
}

#[tokio::test]
async fn workers_tell_how_their_calls_went_and_stop_when_the_breaker_opens() {
    for worker in WORKERS {
        let upstream = FakeUpstream::start(Answer::status(503)).await.unwrap();
        let program = start("breaker = { failures = 2, open_for = \"1h\" }").await;
        let said = run(&program, worker, &upstream.url(), 3).await;
        assert!(said[..2].iter().all(|line| line.starts_with("503, ")), "{said:?}");
        assert!(said[2].starts_with("not now (circuit_open), again in "), "{said:?}");
        assert_eq!((upstream.requests().len(), in_flight(&program).await), (2, json!(0)));
    }
}

#[tokio::test]
async fn workers_pass_on_what_the_upstream_says_of_its_limits_and_that_it_is_not_there() {
    for worker in WORKERS {
        let answer = Answer::status(429).header("retry-after", "600");
        let upstream = FakeUpstream::start(answer).await.unwrap();
        let program = start("breaker = { failures = 9 }").await;
        run(&program, worker, &format!("http://127.0.0.1:{}", free_port()), 1).await;
        assert_eq!(breaker(&program, "up").await["failures"], 1);
        let said = run(&program, worker, &upstream.url(), 2).await;
        assert!(said[1].starts_with("not now (upstream_retry_after), again in "), "{said:?}");
        assert_eq!(upstream.requests().len(), 1);
    }
}
