//! `eclusa send --wait`: prints the job at once, and how to continue after Ctrl-C.

use eclusa::fake::{Answer, FakeUpstream, Latch};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::cli::run_at;
use crate::cli_top::Screen;
use crate::program::{PATIENCE, Program, eclusa};

async fn start(latch: &Latch) -> (Program, FakeUpstream) {
    let upstream = FakeUpstream::start(Answer::status(200).body("late").after(latch)).await.unwrap();
    let config = format!(
        "[store]\nurl = \"memory:\"\n[lanes.mail]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"{}\"\n",
        upstream.url()
    );
    (Program::start(&config, &[]).await, upstream)
}

/// Runs `send --wait` until it has printed the line with the job's id.
async fn sent(program: &Program, more: &[&str]) -> (Child, String, impl AsyncBufReadExt + Unpin) {
    let mut command = eclusa();
    command.args(["send", "mail", "/a", "--wait", "60"]).args(more).env("ECLUSA_URL", program.url());
    let mut child = command.spawn().unwrap();
    let mut reported = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    tokio::time::timeout(PATIENCE, reported.read_line(&mut line)).await.unwrap().unwrap();
    (child, line, reported)
}

#[tokio::test]
async fn the_job_id_is_printed_before_the_job_ends() {
    let latch = Latch::default();
    let (program, _upstream) = start(&latch).await;
    let (child, line, _reported) = sent(&program, &[]).await;
    let id = line.split_whitespace().nth(1).unwrap();
    let job = program.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!((job.status, &job.json()["jobId"]), (200, &id.into()), "{line}");
    latch.open();
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(0), &b"late\n"[..]));
}

#[tokio::test]
async fn after_ctrl_c_the_job_continues_and_the_user_sees_how_to_find_it() {
    let latch = Latch::default();
    let (program, upstream) = start(&latch).await;
    let (mut child, line, mut reported) = sent(&program, &["--id", "order-7"]).await;
    let id = line.split_whitespace().nth(1).unwrap().to_owned();
    let pid = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let code = tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code();
    let (mut first, mut second) = (String::new(), String::new());
    reported.read_line(&mut first).await.unwrap();
    reported.read_line(&mut second).await.unwrap();
    assert_eq!((code, first.trim()), (Some(130), "The job continues."));
    assert!(second.contains(&format!("`eclusa jobs wait {id}`")), "{second}");
    latch.open();
    upstream.wait_for(1).await;
    assert_eq!(run_at(&program.url(), &["jobs", "wait", &id]).await.code, 0);
}

/// The reason is longer than the terminal is wide. Wrapped rows would stay on the screen.
#[tokio::test]
async fn progress_takes_one_row_of_the_terminal() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let name = "a-name-that-makes-the-reason-longer-than-the-terminal-is-wide";
    let config = format!(
        "[store]\nurl = \"memory:\"\n[lanes.mail]\nchain = [\"{name}\"]\n[upstreams.{name}]\nurl = \"{}\"\nrpm = 1\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    program.enqueue("mail", &serde_json::json!({ "request": {} })).await;
    upstream.wait_for(1).await;
    let screen = Screen::run("send mail /a --wait 60", &program, (80, 24), &[]).await;
    screen.shows(&["Job ", "queued: ", "…"]).await;
    // The next refresh says something else.
    program.pause("mail").await;
    let shown = screen.shows(&["queued: The lane is paused"]).await;
    program.resume("mail").await;
    let again = screen.shows(&["queued: ", "…"]).await;
    for shown in [shown, again] {
        let rows: Vec<&str> = shown.lines().filter(|row| !row.is_empty()).collect();
        assert_eq!(rows.len(), 2, "the id and the progress:\n{shown}");
    }
}

#[tokio::test]
async fn to_list_nothing_is_a_mistake() {
    let latch = Latch::default();
    let (program, _upstream) = start(&latch).await;
    for list in [
        &["jobs", "ls"][..],
        &["dlq", "ls"],
        &["dlq", "stats"],
        &["policies", "ls"],
        &["lanes", "tenants", "mail"],
    ] {
        let ran = run_at(&program.url(), &[list, &["--limit", "0"]].concat()).await;
        assert!(ran.failed(2).contains("write a whole number, 1 or more"), "{list:?}");
        assert_eq!(run_at(&program.url(), &[list, &["--limit", "1"]].concat()).await.code, 0, "{list:?}");
    }
    run_at(&program.url(), &["send", "mail", "/a", "--id", "order-8"]).await.ok();
    let listed =
        run_at(&program.url(), &["jobs", "ls", "--since", "10m", "--limit", "1", "-o", "jsonl"]).await.ok();
    assert!(listed.lines().count() == 1 && listed.contains("order-8"), "{listed}");
    assert_eq!(run_at(&program.url(), &["jobs", "ls", "--until", "10m", "-o", "jsonl"]).await.ok(), "");
    latch.open();
}
