//! `eclusa top` in a real terminal (tmux).

use std::process::Stdio;
use std::time::Duration;

use eclusa::fake::{Answer, FakeUpstream, Latch};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::cli::{run_at, run_with};
use crate::http_upstream::free_port;
use crate::program::{PATIENCE, Program};

/// A terminal that runs a command. Afterwards its shell prints the exit code and the state of the terminal.
pub(crate) struct Screen {
    /// Holds tmux's socket.
    dir: TempDir,
}

impl Screen {
    /// Runs `eclusa top`.
    async fn start(program: &Program, size: (u16, u16), env: &[(&str, &str)]) -> Self {
        Self::run("top", program, size, env).await
    }

    /// Runs `eclusa` with these arguments.
    pub(crate) async fn run(
        arguments: &str,
        program: &Program,
        size: (u16, u16),
        env: &[(&str, &str)],
    ) -> Self {
        let screen = Self { dir: tempfile::tempdir().unwrap() };
        let shell = format!("{} {arguments}; echo exit $?; stty -a; read line", env!("CARGO_BIN_EXE_eclusa"));
        let url = format!("ECLUSA_URL={}", program.url());
        let mut arguments = vec!["-f", "/dev/null", "new-session", "-d", "-e", &url];
        let env: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        arguments.extend(env.iter().flat_map(|variable| ["-e", variable]));
        let (width, height) = (size.0.to_string(), size.1.to_string());
        arguments.extend(["-x", &width, "-y", &height, &shell]);
        screen.tmux(&arguments).await;
        screen
    }

    /// Runs tmux and returns its output.
    async fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("LC_ALL", "C.UTF-8");
        tmux.args(["-u", "-S"]).arg(self.dir.path().join("tmux")).args(arguments);
        let ran = tmux.stdin(Stdio::null()).output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", text(ran.stderr));
        text(ran.stdout)
    }

    async fn press(&self, keys: &[&str]) {
        for key in keys {
            self.tmux(&["send-keys", key]).await;
        }
    }

    async fn resize(&self, width: &str, height: &str) {
        self.tmux(&["resize-window", "-x", width, "-y", height]).await;
    }

    /// Waits until the screen shows all of `parts`, and returns it.
    pub(crate) async fn shows(&self, parts: &[&str]) -> String {
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        let mut shown = String::new();
        let found = async {
            loop {
                pace.tick().await;
                shown = self.tmux(&["capture-pane", "-p"]).await;
                if parts.iter().all(|part| shown.contains(part)) {
                    return;
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        assert!(found.is_ok(), "no {parts:?} in\n{shown}");
        shown
    }

    /// Waits until the command has ended with 0 and the terminal is as before.
    async fn ended(&self) {
        let shown = self.shows(&["exit 0", " icanon", " echo "]).await;
        assert!(!shown.contains("LANES"), "{shown}");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut tmux = std::process::Command::new("tmux");
        let _ = tmux.arg("-S").arg(self.dir.path().join("tmux")).arg("kill-server").output();
    }
}

fn rules(upstream: &FakeUpstream) -> String {
    format!(
        "[lanes.mail]\nchain = [\"api\"]\n[lanes.score]\nchain = [\"api\"]\n\
         [upstreams.api]\nurl = \"{}\"\nmax_concurrent = 1\nrpm = 60\n",
        upstream.url()
    )
}

#[tokio::test]
async fn it_shows_lanes_upstreams_and_events_live() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let screen = Screen::start(&program, (80, 24), &[]).await;
    let shown =
        screen.shows(&["No job has been sent yet.", "● mail", "● score", "● api", "1/1", "60/60"]).await;
    assert!(shown.starts_with("● No job has been sent yet."), "{shown}");
    let job = json!({ "tenant": "acme", "request": { "path": "/" } });
    let first = program.enqueue("mail", &job).await;
    let started = format!("acme    {}  started at api", first.rsplit('-').next().unwrap());
    screen.shows(&[&started, "0/1", "59/60"]).await;
    program.enqueue("mail", &job).await;
    let shown = screen.shows(&["slots of api", "accepted"]).await;
    let mail = shown.lines().find(|line| line.starts_with("● mail")).unwrap();
    let numbers: Vec<&str> = mail.split_whitespace().skip(2).take(5).collect();
    assert_eq!(numbers, ["0", "1", "0", "0", "1"], "high, normal, low, later, running: {mail}");
    latch.open();
    screen.shows(&["completed", "1/1"]).await;
    screen.press(&["q"]).await;
    screen.ended().await;
}

#[tokio::test]
async fn keys_open_details_and_help() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let screen = Screen::start(&program, (80, 24), &[]).await;
    screen.shows(&["● score"]).await;
    screen.press(&["Down", "Enter"]).await;
    screen.shows(&["LANE score (queue)", "0/60 in the last minute"]).await;
    screen.press(&["Tab"]).await;
    screen.shows(&["UPSTREAM api", "mail (0 waiting), score (0 waiting)"]).await;
    screen.press(&["Escape"]).await;
    screen.shows(&["● score"]).await;
    screen.press(&["?"]).await;
    screen.shows(&["Any key closes this."]).await;
    screen.press(&["x", "C-c"]).await;
    screen.ended().await;
}

#[tokio::test]
async fn a_lane_is_paused_after_a_confirmation() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let screen = Screen::start(&program, (80, 24), &[]).await;
    screen.shows(&["● score"]).await;
    screen.press(&["Down", "p"]).await;
    screen.shows(&["Pause lane score?", "new jobs are still accepted"]).await;
    screen.press(&["n", "p"]).await;
    screen.shows(&["Pause lane score?"]).await;
    assert_eq!(program.get("/v1/lanes/score").await.json()["paused"], false);
    screen.press(&["y"]).await;
    screen.shows(&["Lane score is paused"]).await;
    assert_eq!(program.get("/v1/lanes/score").await.json()["paused"], true);
    screen.press(&["p", "y"]).await;
    screen.shows(&["Lane score is resumed"]).await;
    assert_eq!(program.get("/v1/lanes/score").await.json()["paused"], false);
}

#[tokio::test]
async fn a_viewer_learns_that_it_may_not_pause() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let key = "v".repeat(32);
    let keys = format!("[[auth.keys]]\nname = \"grafana\"\nrole = \"viewer\"\nkey = \"{key}\"\n");
    let program = Program::start(&(rules(&upstream) + &keys), &[]).await;
    let screen = Screen::start(&program, (80, 24), &[("ECLUSA_KEY", &key)]).await;
    screen.shows(&["● score"]).await;
    screen.press(&["p"]).await;
    let shown = screen.shows(&["The key grafana has the role viewer: pausing needs operator or admin"]).await;
    assert!(!shown.contains("Pause lane"), "{shown}");
}

#[tokio::test]
async fn it_follows_the_size_of_the_terminal() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let screen = Screen::start(&program, (80, 24), &[]).await;
    screen.shows(&["● score"]).await;
    screen.resize("79", "24").await;
    screen.shows(&["This terminal has 79x24 cells.", "at least 80x24"]).await;
    screen.resize("160", "40").await;
    screen.shows(&["● score", "WAITING"]).await;
}

#[tokio::test]
async fn it_says_that_the_connection_is_lost_and_goes_on_by_itself() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = format!("{}[server]\nlisten = \"127.0.0.1:{}\"\n", rules(&upstream), free_port());
    let program = Program::start(&config, &[]).await;
    let screen = Screen::start(&program, (80, 24), &[]).await;
    screen.shows(&["● score"]).await;
    let (_, dir) = program.stop().await;
    let shown = screen.shows(&["No connection for ", "● score"]).await;
    assert!(shown.starts_with("● No connection for "), "{shown}");
    let program = Program::start_in(dir, &config, &[]).await;
    let shown = screen.shows(&["No job has been sent yet.", "Connected again."]).await;
    assert!(!shown.contains("No connection"), "{shown}");
    let job = json!({ "tenant": "acme", "request": { "path": "/" } });
    program.enqueue("mail", &job).await;
    screen.shows(&["completed"]).await;
}

#[tokio::test]
async fn a_signal_restores_the_terminal() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let screen = Screen::start(&program, (80, 24), &[]).await;
    screen.shows(&["● score"]).await;
    let shell = screen.tmux(&["display-message", "-p", "#{pane_pid}"]).await;
    let sent = Command::new("pkill").args(["-TERM", "-P", shell.trim()]).status().await.unwrap();
    assert!(sent.success());
    screen.ended().await;
}

#[tokio::test]
async fn without_a_terminal_or_a_server_it_does_not_start() {
    let nobody = format!("http://127.0.0.1:{}", free_port());
    for arguments in [&["top"][..], &["top", "-o", "json"]] {
        let err = run_at(&nobody, arguments).await.failed(2);
        assert!(err.contains("`eclusa status`") && err.contains("`eclusa tail`"), "{err}");
    }
    let screen = Screen { dir: tempfile::tempdir().unwrap() };
    let shell = format!("{} top --url {nobody}; echo exit $?; read line", env!("CARGO_BIN_EXE_eclusa"));
    screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &shell]).await;
    screen.shows(&["error: cannot reach", "exit 5"]).await;
    assert_eq!(run_with(&["top", "x"], &[], "").await.code, 2);
}
