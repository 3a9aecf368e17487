//! Enqueueing over HTTP, loaded by wrk.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::BARE;
use super::program::Server;
use crate::Failed;
use crate::timing::median;

const CONNECTIONS: &str = "-c64";
const THREADS: &str = "-t1";
const LASTS: &str = "-d3s";

/// Jobs wait for ever: only taking them in is measured.
const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
[store]
url = "embedded:./data"
ack = "ACK"
[log]
format = "json"
[lanes.jobs]
chain = ["nowhere"]
capacity = 100000000
max_bytes = "64GiB"
[upstreams.nowhere]
url = "http://127.0.0.1:9"
breaker = { failures = 1, open_for = "30d" }
"#;

/// Requests a second: Eclusa's with this `ack`, and those of a server that does nothing.
pub(crate) fn measure(dir: &Path, ack: &str) -> Result<[f64; 2], Failed> {
    let eclusa = Server::eclusa(dir, &CONFIG.replace("ACK", ack))?;
    let bare = Server::peer(BARE)?;
    let mut ours = Vec::new();
    // Turn by turn, so that both meet the same noise.
    let theirs = median(|| {
        ours.push(load(dir, &eclusa.address)?);
        load(dir, &bare.address)
    })?;
    ours.sort_by(f64::total_cmp);
    drop(eclusa);
    fs::remove_dir_all(dir)?;
    Ok([ours[ours.len() / 2], theirs])
}

fn load(dir: &Path, address: &str) -> Result<f64, Failed> {
    let script = dir.join("post.lua");
    fs::write(&script, include_str!("post.lua"))?;
    let url = format!("http://{address}/v1/lanes/jobs/jobs");
    let output = Command::new("wrk").args([THREADS, CONNECTIONS, LASTS, "-s"]).arg(&script).arg(url).output();
    let output = output.map_err(|error| format!("wrk: {error}; `scripts/setup.sh bench` installs it"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("Non-2xx") {
        return Err(format!("not all were accepted:\n{text}").into());
    }
    let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    Ok(rate.ok_or_else(|| format!("wrk said:\n{text}"))?.trim().parse()?)
}
