//! `eclusa check`.

use std::path::PathBuf;

use clap::Args;
use eclusa_core::Name;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::exit::note;
use super::output::{Format, count, section, table};
use super::{Exit, client, serve};
use crate::config::{BaseUrl, Config, Mode, Upstream, UpstreamKind};

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The config file
    #[arg(value_name = "FILE", default_value = "eclusa.toml", env = "ECLUSA_CONFIG")]
    file: PathBuf,
    /// Variables for the config, a `NAME=value` on each line; the environment goes before them
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// Also connect to each upstream, without sending anything
    #[arg(long)]
    probe: bool,
}

/// Whether an upstream could be connected to, or why not.
type Probed = Result<(), String>;

/// Reads the config as `serve` would, and says what it holds.
pub(super) fn run(ask: &Check, format: Format) -> Result<(), Exit> {
    let config = match (serve::read(&ask.file, ask.env_file.as_deref())?, format) {
        (Ok(config), _) => config,
        (Err(errors), Format::Text) => return Err(serve::invalid(&errors)),
        (Err(errors), _) => {
            format.one(&errors.to_json(), || Ok(String::new()))?;
            return Err(Exit::InvalidConfig(String::new()));
        }
    };
    let warnings = config.warnings();
    if format == Format::Text {
        warnings.iter().for_each(|warning| note(&serve::warning(warning)));
    }
    let probed = if ask.probe { Some(probe(&config)?) } else { None };
    let probed = probed.as_deref();
    let mut summary = summary(&config, probed);
    summary["warnings"] = json!(warnings);
    format.one(&summary, || Ok(text(&config, probed)))?;
    let failed = probed.into_iter().flatten().filter(|probed| probed.is_err()).count();
    if failed > 0 {
        let all = count(config.upstreams.len(), "upstream");
        return Err(Exit::Error(format!("{failed} of {all} cannot be reached from here")));
    }
    Ok(())
}

/// Connects to all upstreams at once; the answers are in the order of the config.
fn probe(config: &Config) -> Result<Vec<Probed>, Exit> {
    let runtime = client::runtime()?;
    Ok(runtime.block_on(async {
        let mut probes = JoinSet::new();
        for (at, upstream) in config.upstreams.values().enumerate() {
            let connecting = connect(upstream.clone());
            probes.spawn(async move { (at, connecting.await) });
        }
        let mut found = probes.join_all().await;
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, probed)| probed).collect()
    }))
}

async fn connect(upstream: Upstream) -> Probed {
    let (host, port) = match &upstream.kind {
        UpstreamKind::Http(rules) => http_target(&rules.url),
        UpstreamKind::Ses(rules) => http_target(&rules.url),
        UpstreamKind::Smtp(rules) => (rules.url.host.as_str(), rules.url.port),
    };
    match timeout(upstream.connect_timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no connection within {:?}", upstream.connect_timeout)),
    }
}

fn http_target(url: &BaseUrl) -> (&str, u16) {
    let usual = if url.scheme == http::uri::Scheme::HTTPS { 443 } else { 80 };
    // IPv6 addresses stand in brackets in an URL, and nowhere else.
    let host = url.authority.host().trim_start_matches('[').trim_end_matches(']');
    (host, url.authority.port_u16().unwrap_or(usual))
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Queue => "queue",
        Mode::Direct => "direct",
    }
}

/// Without its path, which may hold a token.
fn address(upstream: &Upstream) -> String {
    match &upstream.kind {
        UpstreamKind::Http(rules) => without_path(&rules.url),
        UpstreamKind::Ses(rules) => without_path(&rules.url),
        UpstreamKind::Smtp(rules) => rules.url.to_string(),
    }
}

fn without_path(url: &BaseUrl) -> String {
    format!("{}://{}", url.scheme, url.authority)
}

fn probe_at(probed: Option<&[Probed]>, at: usize) -> Option<&Probed> {
    probed.and_then(|probed| probed.get(at))
}

fn words(chain: &[Name]) -> Vec<&str> {
    chain.iter().map(Name::as_str).collect()
}

fn summary(config: &Config, probed: Option<&[Probed]>) -> Value {
    let lanes: Vec<Value> = config
        .lanes
        .iter()
        .map(|(name, lane)| {
            let mut shown =
                json!({ "name": name.as_str(), "mode": mode(lane.mode), "chain": words(&lane.chain) });
            if let Some(chains) = &lane.chains {
                let chains = chains.chains.iter().map(|(value, chain)| (value.clone(), words(chain).into()));
                shown["chains"] = Value::Object(chains.collect());
            }
            shown
        })
        .collect();
    let upstreams: Vec<Value> = config
        .upstreams
        .iter()
        .enumerate()
        .map(|(at, (name, upstream))| {
            let mut shown = json!({ "name": name.as_str(), "address": address(upstream) });
            if let Some(probed) = probe_at(probed, at) {
                shown["reachable"] = probed.is_ok().into();
                shown["problem"] = probed.as_ref().err().cloned().into();
            }
            shown
        })
        .collect();
    json!({ "ok": true, "listen": config.server.listen.to_string(), "lanes": lanes, "upstreams": upstreams })
}

fn text(config: &Config, probed: Option<&[Probed]>) -> String {
    let lanes = config.lanes.iter().map(|(name, lane)| {
        let own = Some(&lane.chain).filter(|chain| !chain.is_empty()).map(|chain| words(chain).join(", "));
        let others = lane.chains.iter().flat_map(|chains| &chains.chains);
        let others = others.map(|(value, chain)| format!("{value}: {}", words(chain).join(", ")));
        vec![
            name.to_string(),
            mode(lane.mode).into(),
            own.into_iter().chain(others).collect::<Vec<_>>().join("; "),
        ]
    });
    let upstreams = config.upstreams.iter().enumerate().map(|(at, (name, upstream))| {
        let mut row = vec![name.to_string(), address(upstream)];
        row.extend(probe_at(probed, at).map(|probed| match probed {
            Ok(()) => "reachable".to_owned(),
            Err(problem) => format!("not reachable: {problem}"),
        }));
        row
    });
    let head: &[&str] = if probed.is_some() { &["NAME", "ADDRESS", "PROBE"] } else { &["NAME", "ADDRESS"] };
    let said = format!(
        "ok: {} and {}; listens on {}\n",
        count(config.lanes.len(), "lane"),
        count(config.upstreams.len(), "upstream"),
        config.server.listen
    );
    let lanes = section("lanes", &table(&["NAME", "MODE", "CHAIN"], lanes.collect()));
    said + &lanes + &section("upstreams", &table(head, upstreams.collect()))
}
