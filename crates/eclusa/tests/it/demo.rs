//! `eclusa demo`: the printed commands work in a shell, and the story is what is printed.

use serde_json::Value;
use tokio::process::Command;

use crate::program::{PATIENCE, Program};

#[tokio::test]
async fn every_command_that_is_printed_works() {
    let (_demo, mut lines) = Program::demo().await;
    let (mut commands, mut tries) = (Vec::new(), false);
    let read = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            tries |= line.starts_with("Try ");
            match line.get(6..) {
                Some(command) if tries => commands.push(command.to_owned()),
                _ if tries => break,
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
    assert_eq!(commands.len(), 6, "{commands:?}");
    let script = format!("set -e\n{}\n", commands.join("\n"));
    let ran = Command::new("sh").args(["-c", &script]).output().await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{script}\n{out}\n{err}");
    // The upstreams of the demo fail now and then, so the first call may take longer than its wait.
    assert_eq!(out.matches("HTTP/1.1 20").count(), 2, "{out}");
    assert!(out.contains("\nstatus "), "{out}");
}

/// Takes the minute that the story takes.
#[tokio::test]
async fn what_the_story_says_happens() {
    let (demo, mut lines) = Program::demo().await;
    let mut scene = async |text: &str| {
        let read = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(text) {
                    return;
                }
            }
            panic!("the demo ended before it printed: {text}");
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap();
    };
    let shows = async |path: &str, wanted: fn(&Value) -> bool| {
        demo.until(path, |answer| wanted(&answer.json())).await;
    };
    scene("bureau allows 60 a minute").await;
    shows("/v1/lanes/score", |lane| lane["held"]["reason"] == "window").await;
    scene("moody goes down").await;
    shows("/v1/breakers/moody", |breaker| breaker["degraded"] == true).await;
    shows("/v1/jobs?lane=render&status=completed", |page| {
        page["jobs"].as_array().unwrap().iter().any(|job| job["upstream"] == "flaky")
    })
    .await;
    scene("moody is back").await;
    shows("/v1/breakers/moody", |breaker| breaker["degraded"] == false).await;
    scene("which ledger rejects").await;
    shows("/v1/dead-letters?lane=invoice", |page| page["deadLetters"][0]["lastFailureCode"] == "422").await;
    scene("the dead letter is replayed").await;
    shows("/v1/dead-letters?lane=invoice", |page| page["deadLetters"] == Value::Array(Vec::new())).await;
    scene("what waited for bureau starts").await;
    shows("/v1/lanes/score", |lane| lane["held"].is_null()).await;
    // The upstream counts arrivals in any 60 s itself; more than it allows have come in the whole story.
    let bureau = async |status| {
        let labels = [("upstream", "bureau"), ("status", status)];
        demo.metric_if_there("eclusa_upstream_calls_total", &labels).await
    };
    assert!(bureau("200").await > Some(60));
    assert_eq!(bureau("429").await, None, "it was called too often");
}
