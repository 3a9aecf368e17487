//! Checks whether upstreams can be reached from this machine.

use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{Exit, client};
use crate::config::{BaseUrl, Config, UpstreamConfig, UpstreamKind};
use crate::execute::http::tls::client_config;

/// The result of connecting to an upstream, or why it failed.
pub(super) type Probed = Result<(), String>;

/// Connects to all upstreams at once, over TLS if they use it, and sends nothing. The results are in the order of the
/// config.
pub(super) fn upstreams(config: &Config) -> Result<Vec<Probed>, Exit> {
    let runtime = client::runtime()?;
    Ok(runtime.block_on(async {
        let mut probes = JoinSet::new();
        for (at, upstream) in config.upstreams.values().enumerate() {
            let upstream = upstream.clone();
            probes.spawn(async move {
                let probed = timeout(upstream.connect_timeout, connect(&upstream)).await;
                let late = || Err(format!("no connection within {:?}", upstream.connect_timeout));
                (at, probed.unwrap_or_else(|_| late()))
            });
        }
        let mut found = probes.join_all().await;
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, probed)| probed).collect()
    }))
}

async fn connect(upstream: &UpstreamConfig) -> Probed {
    let (host, port, tls) = match &upstream.kind {
        UpstreamKind::Http(rules) => http_target(&rules.url),
        UpstreamKind::Ses(rules) => http_target(&rules.url),
        // With STARTTLS, TLS begins only after commands, and a probe sends none.
        UpstreamKind::Smtp(rules) => (rules.url.host.as_str(), rules.url.port, rules.url.implicit_tls),
    };
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    if tls {
        let config = client_config(&upstream.tls).map_err(|error| error.to_string())?;
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let shake_hands = TlsConnector::from(Arc::new(config)).connect(name, stream);
        shake_hands.await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn http_target(url: &BaseUrl) -> (&str, u16, bool) {
    let tls = url.scheme == http::uri::Scheme::HTTPS;
    // IPv6 addresses have brackets only in URLs.
    let host = url.authority.host().trim_start_matches('[').trim_end_matches(']');
    (host, url.authority.port_u16().unwrap_or(if tls { 443 } else { 80 }), tls)
}

/// The upstream's address, without the path, which may contain a token.
pub(super) fn address(upstream: &UpstreamConfig) -> String {
    match &upstream.kind {
        UpstreamKind::Http(rules) => without_path(&rules.url),
        UpstreamKind::Ses(rules) => without_path(&rules.url),
        UpstreamKind::Smtp(rules) => rules.url.to_string(),
    }
}

fn without_path(url: &BaseUrl) -> String {
    format!("{}://{}", url.scheme, url.authority)
}
