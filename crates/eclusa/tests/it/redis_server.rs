//! A redis-server of our own, which ends with the test however that ends.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

/// Starts the server; when its input ends it ends the server: a test that is killed leaves nothing behind.
/// It gets the signal that the guard is told. A replica need not wait for others that might come.
const GUARD: &str = r#"dir=$1; shift
redis-server --bind 127.0.0.1 --dir "$dir" --save "" --repl-diskless-sync-delay 0 "$@" &
read signal; kill -s "${signal:-KILL}" $!; wait"#;

/// The setting that makes a server speak TLS.
const TLS: &str = "--tls-cert-file";

/// A running server with a directory of its own.
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
        // Between finding a free port and using it somebody else may take it.
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

    /// Makes it fail to save: something else has the name of its file.
    pub(crate) fn break_saves(&self) {
        std::fs::create_dir(self.dir.path().join("dump.rdb")).unwrap();
        self.save("err");
    }

    /// Lets it save again.
    pub(crate) fn mend_saves(&self) {
        std::fs::remove_dir(self.dir.path().join("dump.rdb")).unwrap();
        self.save("ok");
        std::fs::remove_file(self.dir.path().join("dump.rdb")).unwrap();
    }

    /// Saves in the background, and waits until that ended so.
    fn save(&self, status: &str) {
        self.command(&["BGSAVE"]);
        let ended = format!("rdb_last_bgsave_status:{status}");
        while !self.command(&["INFO", "persistence"]).contains(&ended) {
            std::thread::yield_now();
        }
    }

    /// Ends the server as an administrator would.
    pub(crate) fn stop(&mut self) {
        self.resume();
        self.end("TERM");
    }

    /// Ends the server as a power cut would, but for the disk.
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
        let told = self.command(&["INFO", "server"]);
        told.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().to_owned()
    }

    /// Freezes the server: connections stay, and nothing is answered.
    pub(crate) fn pause(&mut self) {
        let id = self.process();
        signal("STOP", &id);
        self.paused = Some(id);
    }

    /// Lets a frozen server go on.
    pub(crate) fn resume(&mut self) {
        if let Some(id) = self.paused.take() {
            signal("CONT", &id);
        }
    }

    /// Starts it again, with what it kept.
    pub(crate) fn start_again(&mut self) {
        self.guard = launch(&self.dir, self.port, &self.settings).unwrap();
    }

    /// Runs a command on it, as `redis-cli` does; what it answers, as text.
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

    /// The one of this process, with a prefix that nobody else has.
    pub(crate) fn shared() -> (&'static Self, String) {
        static SERVER: OnceLock<RedisServer> = OnceLock::new();
        static PREFIXES: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("test-{}:", PREFIXES.fetch_add(1, Ordering::Relaxed));
        (SERVER.get_or_init(Self::start), prefix)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Nobody needs what it would still write, and it takes up to 100 ms to heed a polite signal.
        self.kill();
    }
}

/// Where to listen: with TLS only, if there is a certificate for that.
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
