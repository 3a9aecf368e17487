//! Requests through a direct lane, compared with nginx as a proxy, with a proxy that is only Eclusa's HTTP library, and with
//! the upstream itself.

use std::fs;
use std::path::Path;

use super::PROXY;
use super::nginx::Nginx;
use super::program::Server;
use super::wrk::{Seen, load};
use crate::Failed;

const CONNECTIONS: usize = 64;
const SECONDS: usize = 3;
/// Rounds per figure, which is their median.
const ROUNDS: usize = 3;

/// A limit that never denies, but is still checked and counted.
const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
[store]
url = "embedded:./data"
ack = "write"
[log]
format = "json"
[lanes.score]
mode = "direct"
chain = ["bureau"]
[upstreams.bureau]
url = "http://UPSTREAM"
rate = "1000000/s"
burst = 1000000
"#;

/// The figures of one path to the upstream.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Way {
    /// With 64 connections.
    pub(crate) per_second: f64,
    /// Of one sequential caller.
    pub(crate) p50_ms: f64,
}

/// The four paths, in one run.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Ways {
    pub(crate) eclusa: Way,
    pub(crate) nginx: Way,
    pub(crate) hyper: Way,
    pub(crate) upstream: Way,
}

pub(crate) fn measure(dir: &Path) -> Result<Ways, Failed> {
    let upstream = Nginx::upstream(&dir.join("upstream"))?;
    let nginx = Nginx::proxy(&dir.join("proxy"), &upstream.address)?;
    let hyper = Server::peer(&[PROXY, &upstream.address])?;
    let eclusa = Server::eclusa(&dir.join("eclusa"), &CONFIG.replace("UPSTREAM", &upstream.address))?;
    let urls = [
        format!("http://{}/proxy/score/score", eclusa.address),
        format!("http://{}/score", nginx.address),
        format!("http://{}/score", hyper.address),
        format!("http://{}/score", upstream.address),
    ];
    let mut rounds: [Vec<[Seen; 2]>; 4] = Default::default();
    // Alternate, so that all see the same noise.
    for _ in 0..ROUNDS {
        for (url, rounds) in urls.iter().zip(&mut rounds) {
            rounds.push([load(url, CONNECTIONS, SECONDS, None)?, load(url, 1, 1, None)?]);
        }
    }
    let [eclusa_way, nginx_way, hyper_way, upstream_way] = rounds.map(|rounds| Way {
        per_second: median(rounds.iter().map(|[many, _]| many.per_second)),
        p50_ms: median(rounds.iter().map(|[_, one]| one.p50_ms)),
    });
    drop((eclusa, nginx, hyper, upstream));
    fs::remove_dir_all(dir)?;
    Ok(Ways { eclusa: eclusa_way, nginx: nginx_way, hyper: hyper_way, upstream: upstream_way })
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
