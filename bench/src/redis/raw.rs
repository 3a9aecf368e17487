//! The server's own upper limit.

use std::process::Command;

use super::CONCURRENCY;
use super::server::RedisServer;
use crate::Failed;

/// Values of 200 bytes written per second, one per command, by redis-benchmark.
pub(crate) fn sets_per_second(server: &RedisServer) -> Result<f64, Failed> {
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port.to_string(), "-c", &CONCURRENCY.to_string()])
        .args(["-n", "50000", "-d", "200", "-r", "100000", "-t", "set", "--csv"])
        .output()
        .map_err(|error| format!("redis-benchmark: {error}; `scripts/setup.sh bench` installs it"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text.lines().find_map(|line| line.strip_prefix("\"SET\",\"")?.split('"').next()?.parse().ok());
    rate.ok_or_else(|| format!("redis-benchmark said:\n{text}").into())
}
