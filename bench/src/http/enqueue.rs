//! Enqueueing over HTTP, loaded by wrk.

use std::fs;
use std::path::Path;

use super::program::Server;
use super::{BARE, wrk};
use crate::Failed;
use crate::timing::median;

const CONNECTIONS: usize = 64;
const SECONDS: usize = 3;

/// Jobs wait forever: only intake is measured.
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

/// Requests per second of Eclusa with this `ack`, and of a server that does nothing.
pub(crate) fn measure(dir: &Path, ack: &str) -> Result<[f64; 2], Failed> {
    let eclusa = Server::eclusa(dir, &CONFIG.replace("ACK", ack))?;
    let bare = Server::peer(&[BARE])?;
    let script = dir.join("post.lua");
    fs::write(&script, include_str!("post.lua"))?;
    let load = |address: &str| {
        let url = format!("http://{address}/v1/lanes/jobs/jobs");
        wrk::load(&url, CONNECTIONS, SECONDS, Some(&script)).map(|seen| seen.per_second)
    };
    let mut ours = Vec::new();
    // Alternate, so that both see the same noise.
    let theirs = median(|| {
        ours.push(load(&eclusa.address)?);
        load(&bare.address)
    })?;
    ours.sort_by(f64::total_cmp);
    drop(eclusa);
    fs::remove_dir_all(dir)?;
    Ok([ours[ours.len() / 2], theirs])
}
