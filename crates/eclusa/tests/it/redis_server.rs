//! A redis-server process that ends with the test, even if that is killed.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

/// A guard that starts the server and stops it when its input ends, so that a killed test leaves nothing behind. The guard
/// passes on the signal it is given. Only the server keeps the output open, so that its reader notices if it does not start. A
/// replica does not wait for further replicas.
const GUARD: &str = r#"dir=$1; shift
redis-server --bind 127.0.0.1 --dir "$dir" --save "" --repl-diskless-sync-delay 0 "$@" &
exec >&-
read signal; kill -s "${signal:-KILL}" $!; wait"#;

/// The setting that makes a server speak TLS.
const TLS: &str = "--tls-cert-file";

/// A running server with its own directory.
pub(crate) struct RedisServer {
    guard: Child,
    dir: TempDir,
    port: u16,
    settings: Vec<String>,
    /// The process, while it is frozen.
    paused: Option<String>,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// A server with these settings (`--name value`).
    pub(crate) fn with(settings: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings: Vec<String> = settings.iter().map(|&word| word.to_owned()).collect();
        // Another process may take the free port before it is used.
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if let Some(guard) = launch(&dir, port, &settings) {
                return Self { guard, dir, port, settings, paused: None };
            }
        }
        panic!("redis-server did not start; is it installed? (make setup)");
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.settings.iter().any(|word| word == TLS) { "rediss" } else { "redis" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Makes it fail to save: a directory takes the name of its file.
    pub(crate) fn break_saves(&self) {
        std::fs::create_dir(self.dir.path().join("dump.rdb")).unwrap();
        self.save("err");
    }

    /// Lets it save again.
    pub(crate) fn repair_saves(&self) {
        std::fs::remove_dir(self.dir.path().join("dump.rdb")).unwrap();
        self.save("ok");
        std::fs::remove_file(self.dir.path().join("dump.rdb")).unwrap();
    }

    /// Saves in the background, and waits for this result.
    fn save(&self, status: &str) {
        self.command(&["BGSAVE"]);
        let ended = format!("rdb_last_bgsave_status:{status}");
        while !self.command(&["INFO", "persistence"]).contains(&ended) {
            std::thread::yield_now();
        }
    }

    /// Shuts the server down cleanly.
    pub(crate) fn stop(&mut self) {
        self.resume();
        self.end("TERM");
    }

    /// Kills the server like a power cut, except that the disk stays intact.
    pub(crate) fn kill(&mut self) {
        self.end("KILL");
    }

    fn end(&mut self, signal: &str) {
        if let Some(mut guard) = self.guard.stdin.take() {
            writeln!(guard, "{signal}").unwrap();
        }
        self.guard.wait().unwrap();
    }

    fn process(&self) -> String {
        let reported = self.command(&["INFO", "server"]);
        reported.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().to_owned()
    }

    /// Freezes the server: connections stay open, and nothing is answered.
    pub(crate) fn pause(&mut self) {
        let id = self.process();
        signal("STOP", &id);
        self.paused = Some(id);
    }

    /// Resumes a frozen server.
    pub(crate) fn resume(&mut self) {
        if let Some(id) = self.paused.take() {
            signal("CONT", &id);
        }
    }

    /// Starts it again with its data.
    pub(crate) fn start_again(&mut self) {
        self.guard = launch(&self.dir, self.port, &self.settings).unwrap();
    }

    /// Runs a command with `redis-cli`; returns the output.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        let mut connection = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        match command.query::<redis::Value>(&mut connection).unwrap() {
            redis::Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            redis::Value::SimpleString(text) => text,
            redis::Value::Int(number) => number.to_string(),
            redis::Value::Nil => String::new(),
            other => format!("{other:?}"),
        }
    }

    /// The server of this process, with a unique prefix.
    pub(crate) fn shared() -> (&'static Self, String) {
        static SERVER: OnceLock<RedisServer> = OnceLock::new();
        static PREFIXES: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("test-{}:", PREFIXES.fetch_add(1, Ordering::Relaxed));
        (SERVER.get_or_init(Self::start), prefix)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Its data is not needed any more, and a clean shutdown takes up to 100 ms.
        self.kill();
    }
}

/// The port settings: TLS only, if there is a certificate.
fn ports(port: u16, settings: &[String]) -> Vec<String> {
    let port = port.to_string();
    let words = if settings.iter().any(|word| word == TLS) {
        vec!["--port", "0", "--tls-port", &port]
    } else {
        vec!["--port", &port]
    };
    words.into_iter().map(ToOwned::to_owned).collect()
}

fn signal(name: &str, process: &str) {
    let sent = Command::new("kill").args(["-s", name, process]).status().unwrap();
    assert!(sent.success(), "kill -s {name} {process}");
}

fn launch(dir: &TempDir, port: u16, settings: &[String]) -> Option<Child> {
    let mut guard = Command::new("sh")
        .args(["-c", GUARD, "sh"])
        .arg(dir.path())
        .args(ports(port, settings))
        .args(settings)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(guard.stdout.take().unwrap()).lines().map_while(Result::ok);
    if log.any(|line| line.contains("eady to accept connections")) {
        return Some(guard);
    }
    drop(guard.stdin.take());
    guard.wait().unwrap();
    None
}
