//! Sequential round trips: through Eclusa with `Prefer: wait`, and directly to the upstream.

use std::fs;
use std::path::Path;
use std::time::Duration;

use eclusa::SystemClock;
use eclusa::config::{BaseUrl, HttpRules, Tls, UpstreamConfig, UpstreamKind};
use eclusa::execute::http::HttpUpstream;
use eclusa::execute::{CallContext, CallEnd};
use eclusa::request::Request;
use eclusa_core::retry::ExtraCodes;
use http::{HeaderName, HeaderValue};

use super::UPSTREAM;
use super::program::Server;
use crate::Failed;
use crate::timing::now;

/// Round trips per path, and how many run in a row before the paths alternate.
const TRIPS: usize = 3_000;
const IN_A_ROW: usize = 50;

const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
[store]
STORE
[log]
format = "json"
[lanes.score]
chain = ["bureau"]
keep = { max = 100 }
[upstreams.bureau]
url = "http://UPSTREAM"
"#;

/// The median and the 99th percentile.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Times {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// Through Eclusa with this store, and directly. If several processes share the store, the last one is called, which does not
/// own it.
pub(crate) fn measure(dir: &Path, store: &str, processes: usize) -> Result<[Times; 2], Failed> {
    let upstream = Server::peer(&[UPSTREAM])?;
    let config = CONFIG.replace("STORE", store).replace("UPSTREAM", &upstream.address);
    let processes = (0..processes).map(|number| Server::eclusa(&dir.join(number.to_string()), &config));
    let processes = processes.collect::<Result<Vec<_>, _>>()?;
    let eclusa = processes.last().ok_or("there is no process")?;
    let times = tokio::runtime::Runtime::new()?.block_on(async {
        let ways = [
            (client(&eclusa.address)?, request("/proxy/score/score")),
            (client(&upstream.address)?, request("/score")),
        ];
        let mut times = [Vec::new(), Vec::new()];
        for turn in 0..TRIPS / IN_A_ROW {
            for (way, times) in ways.iter().zip(&mut times) {
                for number in 0..IN_A_ROW {
                    times.push(trip(&way.0, &way.1, &format!("{turn}-{number}")).await?);
                }
            }
        }
        Ok::<_, Failed>(times.map(summary))
    })?;
    drop(processes);
    fs::remove_dir_all(dir)?;
    Ok(times)
}

/// Makes one call that must succeed; returns how long it took.
pub(crate) async fn trip(client: &HttpUpstream, request: &Request, key: &str) -> Result<Duration, Failed> {
    let context = CallContext { idempotency_key: key, traceparent: None, headers: &[], clock: &SystemClock };
    let started = now();
    match client.call(request, &context).await.end {
        CallEnd::Answered(200..=299) => Ok(now() - started),
        end => Err(format!("{end:?}").into()),
    }
}

fn summary(mut times: Vec<Duration>) -> Times {
    times.sort();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1_000.0;
    Times { p50_ms: at(50), p99_ms: at(99) }
}

fn request(path: &str) -> Request {
    Request { method: "GET".into(), path: path.into(), query: None, headers: Vec::new(), body: Vec::new() }
}

/// A client that waits for answers.
pub(crate) fn client(address: &str) -> Result<HttpUpstream, Failed> {
    let rules = HttpRules {
        url: BaseUrl { scheme: http::uri::Scheme::HTTP, authority: address.parse()?, prefix: String::new() },
        headers: vec![(HeaderName::from_static("prefer"), HeaderValue::from_static("wait=5"))],
        keys: Vec::new(),
        request: None,
        awaited: None,
        max_response: 1 << 20,
        policies: Vec::new(),
        reconcile: None,
    };
    let upstream = UpstreamConfig {
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        codes: ExtraCodes::default(),
        tls: Tls::default(),
        kind: UpstreamKind::Http(Box::new(rules)),
    };
    let rules = upstream.http().ok_or("the upstream speaks HTTP")?;
    Ok(HttpUpstream::new(&upstream, rules)?)
}
