//! `eclusa demo`: the printed commands work in a shell.

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::program::{PATIENCE, eclusa};

#[tokio::test]
async fn every_command_that_is_printed_works() {
    let mut demo = eclusa().args(["demo", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
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
    demo.kill().await.unwrap();
}
