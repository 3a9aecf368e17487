//! A redis-server of our own, which ends with the test however that ends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

/// A running server on a socket below a directory of its own.
pub(crate) struct RedisServer {
    /// A shell that waits for its input to end, then ends the server: a test that is killed leaves nothing behind.
    _guard: Child,
    dir: TempDir,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = r#"redis-server --port 0 --unixsocket "$1/redis.sock" --dir "$1" --save "" & cat >/dev/null; kill $!"#;
        let mut guard = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(guard.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(
            log.any(|line| line.contains("eady to accept connections")),
            "redis-server did not start; is it installed? (make setup)"
        );
        Self { _guard: guard, dir }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.dir.path().join("redis.sock").display())
    }

    /// The one of this process, with a prefix that nobody else has.
    pub(crate) fn shared() -> (&'static Self, String) {
        static SERVER: OnceLock<RedisServer> = OnceLock::new();
        static PREFIXES: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("test-{}:", PREFIXES.fetch_add(1, Ordering::Relaxed));
        (SERVER.get_or_init(Self::start), prefix)
    }
}
