//! Expired data is removed from the disk and from Redis, not only from the API.

use std::path::Path;
use std::time::Duration;

use eclusa::fake::{Answer, FakeUpstream};

use super::program::Program;
use super::redis_server::RedisServer;

/// Personal data in the request and in the answer.
const CPF: &str = "05227892180";
const SCORE: &str = "score-7316-of-a-person";

const FORGET_WITHIN: Duration = Duration::from_secs(15);
/// How long the answer is cached; the job is kept for less.
const CACHED: Duration = Duration::from_secs(1);

/// Runs a job whose answer is cached and kept for a second, and checks what is left of it in `stored`.
async fn is_forgotten(store: &str, stored: impl Fn(&Program) -> String) {
    let upstream = FakeUpstream::start(Answer::status(200).body(SCORE)).await.unwrap();
    let config = format!(
        "[store]\n{store}\nforget_within = \"15s\"\n[lanes.score]\nchain = [\"up\"]\nkeep = {{ for = \"500ms\" }}\n\
         cache = {{ key = \"{{query.cpf}}\", ttl = \"1s\" }}\n[upstreams.up]\nurl = \"{}\"\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    let answer = program.send("GET", &format!("/proxy/score?cpf={CPF}"), &[("prefer", "wait=60")], "").await;
    assert_eq!((answer.status, answer.text()), (200, SCORE));
    let first = stored(&program);
    assert!(first.contains(CPF) && first.contains(SCORE), "the test looks in the wrong place");

    let gone = async {
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        loop {
            pace.tick().await;
            let left = stored(&program);
            if !left.contains(CPF) && !left.contains(SCORE) {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(CACHED + FORGET_WITHIN, gone).await;
    assert!(in_time.is_ok(), "it is still there");
    // Nothing else is lost: the process starts again with the remaining data.
    let (ended, dir) = program.stop().await;
    assert!(ended.success());
    let program = Program::start_in(dir, &config, &[]).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    assert_eq!(program.get("/v1/lanes/score").await.json()["totals"]["completed"], 1);
}

fn files(dir: &Path) -> String {
    let read =
        |entry: std::io::Result<std::fs::DirEntry>| std::fs::read(entry.unwrap().path()).unwrap_or_default();
    let bytes: Vec<u8> = std::fs::read_dir(dir).unwrap().flat_map(read).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn expired_data_is_removed_from_the_directory() {
    let forgotten = async |ack: &str| {
        let store = format!("url = \"embedded:./data\"\nack = \"{ack}\"");
        is_forgotten(&store, |program| files(&program.dir.path().join("data"))).await;
    };
    tokio::join!(forgotten("fsync"), forgotten("write"));
}

#[tokio::test]
async fn expired_data_is_removed_from_redis() {
    let server = RedisServer::start();
    let stored = |_: &Program| {
        let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let read = redis::cmd("XRANGE").arg("eclusa:{main}:journal").arg("-").arg("+").query(&mut connection);
        let chunks: Vec<(String, Vec<Vec<u8>>)> = read.unwrap();
        let bytes: Vec<u8> = chunks.into_iter().flat_map(|(_, fields)| fields.concat()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    is_forgotten(&format!("url = \"{}\"", server.url()), stored).await;
}
