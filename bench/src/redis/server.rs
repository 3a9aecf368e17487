//! A redis-server process and its statistics.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, io};

use redis::Client;

use crate::Failed;

/// A server that appends to a file and syncs it every second, ended when it is dropped.
pub(crate) struct RedisServer {
    child: Child,
    pub(crate) port: u16,
    client: Client,
}

/// What the server spent since its counters were reset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    /// CPU time of its main thread, which runs all commands.
    pub(crate) cpu_us: f64,
    /// Including those that scripts call.
    pub(crate) commands: f64,
}

impl RedisServer {
    pub(crate) fn start(dir: &Path) -> Result<Self, Failed> {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        fs::create_dir_all(dir)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"])
            .arg("--dir")
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("redis-server: {error}; `scripts/setup.sh bench` installs it"))?;
        let mut log = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        while log.read_line(&mut line)? > 0 {
            if line.contains("eady to accept connections") {
                std::thread::spawn(move || io::copy(&mut log, &mut io::sink()));
                let client = Client::open(format!("redis://127.0.0.1:{port}"))?;
                return Ok(Self { child, port, client });
            }
            line.clear();
        }
        Err("redis-server did not start".into())
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Deletes all data.
    pub(crate) fn flush(&self) -> Result<(), Failed> {
        Ok(redis::cmd("FLUSHALL").arg("SYNC").query(&mut self.client.get_connection()?)?)
    }

    /// Deletes the data of the Redis store; BullMQ's jobs are in another database.
    pub(crate) fn flush_ours(&self) -> Result<(), Failed> {
        Ok(redis::cmd("FLUSHDB").arg("SYNC").query(&mut self.client.get_connection()?)?)
    }

    /// Runs something and returns what the server spent on it.
    pub(crate) fn spent<T>(&self, work: impl FnOnce() -> Result<T, Failed>) -> Result<(T, Spent), Failed> {
        let () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut self.client.get_connection()?)?;
        let before = self.cpu_us()?;
        let done = work()?;
        let commands = self.info("commandstats")?.lines().filter_map(calls).sum();
        Ok((done, Spent { cpu_us: self.cpu_us()? - before, commands }))
    }

    pub(crate) fn used_memory(&self) -> Result<f64, Failed> {
        number(&self.info("memory")?, "used_memory")
    }

    fn cpu_us(&self) -> Result<f64, Failed> {
        let info = self.info("cpu")?;
        let user = number(&info, "used_cpu_user_main_thread")?;
        Ok((user + number(&info, "used_cpu_sys_main_thread")?) * 1e6)
    }

    pub(crate) fn info(&self, section: &str) -> Result<String, Failed> {
        Ok(redis::cmd("INFO").arg(section).query(&mut self.client.get_connection()?)?)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn number(info: &str, name: &str) -> Result<f64, Failed> {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(found.ok_or_else(|| format!("redis-server does not tell {name}"))?.trim().parse()?)
}

/// The number of commands, except those that only inspect the server or open a connection.
fn calls(line: &str) -> Option<f64> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    let ours = ["info", "config", "client", "hello"].contains(&name.split('|').next().unwrap_or_default());
    if ours { None } else { rest.split(',').next()?.parse().ok() }
}
