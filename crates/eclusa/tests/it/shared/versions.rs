//! Processes of different versions on one Redis.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eclusa_core::layout::FORMAT;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::start;
use crate::program::{Answer, Program};
use crate::redis_server::RedisServer;

const RULES: &str = "[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n";

/// The prefixes of the channels of questions and of answers.
const QUESTIONS: &str = "eclusa:{main}@0:ask:";
const ANSWERS: &str = "eclusa:{main}@0:tell:";

/// The version of messages, with which they begin.
const VERSION: u8 = 1;

/// Which messages become messages of the next version.
struct Newer {
    /// The prefix of their channels.
    prefix: &'static str,
    /// What they contain.
    containing: &'static str,
    begun: AtomicBool,
}

/// A way to the server on which messages to channels with this prefix become messages of the next version, once it has
/// begun.
async fn newer(redis: &RedisServer, newer: &Arc<Newer>) -> String {
    let newer = newer.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, server) = (listener.local_addr().unwrap(), redis.address());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(relay(client, server, newer.clone()));
        }
    });
    format!("redis://{address}")
}

async fn relay(client: TcpStream, server: SocketAddr, newer: Arc<Newer>) -> io::Result<()> {
    let (replies, commands) = TcpStream::connect(server).await?.into_split();
    let (asks, told) = client.into_split();
    tokio::select! {
        ended = relay_commands(asks, commands, &newer) => ended,
        ended = relay_replies(replies, told) => ended,
    }
}

async fn relay_replies(mut replies: OwnedReadHalf, mut told: OwnedWriteHalf) -> io::Result<()> {
    tokio::io::copy(&mut replies, &mut told).await.map(drop)
}

/// Commands are arrays of strings, each after its length. A message follows the name of its channel and begins with
/// its version.
async fn relay_commands(asks: OwnedReadHalf, mut commands: OwnedWriteHalf, newer: &Newer) -> io::Result<()> {
    let mut asks = BufReader::new(asks);
    let mut previous = Vec::new();
    loop {
        let mut line = Vec::new();
        if asks.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        commands.write_all(&line).await?;
        if let Some(len) = line.strip_prefix(b"$") {
            let len: usize = std::str::from_utf8(len).unwrap().trim_end().parse().unwrap();
            let mut word = vec![0; len + 2];
            asks.read_exact(&mut word).await?;
            // A subscription names channels only.
            let containing = newer.containing.as_bytes();
            let message = previous.starts_with(newer.prefix.as_bytes())
                && word[0] == VERSION
                && word.windows(containing.len().max(1)).any(|part| part.starts_with(containing));
            word[0] += u8::from(message && newer.begun.load(Ordering::Relaxed));
            commands.write_all(&word).await?;
            previous = word;
        }
    }
}

fn config(url: &str) -> String {
    format!("[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{url}\"\n{RULES}")
}

/// Starts a process that must exit because of this.
async fn exits(url: &str, cause: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (code, log) = Program::refused(&dir, &config(url), &[]).await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains(cause), "{log}");
    assert!(log.contains("written in version 2 of the layout; versions up to 1 are supported"), "{log}");
}

#[tokio::test]
async fn a_process_whose_messages_are_newer_than_the_owner_exits_with_the_reason() {
    let redis = RedisServer::start();
    let owner = start(&redis, RULES).await;
    let questions = Arc::new(Newer { prefix: QUESTIONS, containing: "", begun: true.into() });
    exits(&newer(&redis, &questions).await, "the owner cannot read the question").await;
    assert_eq!(owner.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_process_that_cannot_read_the_answers_of_a_newer_owner_exits_with_the_reason() {
    let redis = RedisServer::start();
    let answers = Arc::new(Newer { prefix: ANSWERS, containing: "", begun: false.into() });
    let owner = Program::start(&config(&newer(&redis, &answers).await), &[]).await;
    owner.until("/readyz", |answer| answer.status == 200).await;
    // Until it owns, it asks itself and must be able to read its own answers.
    answers.begun.store(true, Ordering::Relaxed);
    exits(&redis.url(), "the owner's answers cannot be read").await;
    assert_eq!(owner.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn rules_that_the_owner_refuses_change_nothing() {
    let redis = RedisServer::start();
    let owner = start(&redis, RULES).await;
    let questions = Arc::new(Newer { prefix: QUESTIONS, containing: "fresh", begun: true.into() });
    let old = config(&newer(&redis, &questions).await);
    // It runs no jobs, so that it asks nothing else at that moment.
    let program = Program::start_as("api", &old).await;
    let two = |answer: &Answer| answer.json()["instances"].as_array().unwrap().len() == 2;
    program.until("/v1/health", two).await;
    let new = format!("{old}[lanes.fresh]\nchain = [\"up\"]\n");
    program.reload(&new);
    program.logged("The config was not reloaded; the old one is in force", &[]).await;
    let job = serde_json::json!({ "request": { "path": "/" } });
    assert_eq!(program.post("/v1/lanes/fresh/jobs", &job).await.status, 404);
    assert_eq!(program.post("/v1/lanes/work/jobs", &job).await.status, 202);
    owner.stop().await;
    let owns = |answer: &Answer| answer.status == 200 && answer.json()["owner"].is_object();
    program.until("/v1/health", owns).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    let lanes = program.get("/v1/lanes").await.json().to_string();
    assert!(lanes.contains("work") && !lanes.contains("fresh"), "it owns under the old rules: {lanes}");
    questions.begun.store(false, Ordering::Relaxed);
    program.reload(&new);
    program.logged("The config was reloaded", &[("changes", "lanes added: fresh")]).await;
    assert_eq!(program.post("/v1/lanes/fresh/jobs", &job).await.status, 202);
}

/// A program with an older format does not take over.
#[tokio::test]
async fn the_term_names_the_format_of_chunks_and_of_what_they_hold() {
    let redis = RedisServer::start();
    let _owner = start(&redis, RULES).await;
    let reader = redis.command(&["HGET", "eclusa:{main}:term", "reader"]);
    let chunk = 1;
    assert_eq!(reader.trim().parse(), Ok(FORMAT + chunk), "{reader}");
}
