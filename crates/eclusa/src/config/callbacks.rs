//! `[callbacks]`: requests that report the end of a job to its caller.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use eclusa_core::gate::GateSpecs;
use eclusa_core::retry::RetryPolicy;
use eclusa_core::{
    CALLBACKS, Capacity, Chain, DeadLetterSpec, Fairness, Keep, LaneSpec, Name, Span, UpstreamSpec,
};
use http::Uri;
use http::uri::Scheme;

use super::accept::Accept;
use super::read::{FromText, Table, Wrong};
use super::server::secret;
use super::types::{LaneConfig, Mode, Secret};
use crate::standard_webhooks;

/// The longest callback URL in bytes; it is stored with every job.
const MAX_URL: usize = 2048;
/// The capacity of the lane that delivers callbacks.
const MAX_WAITING: u64 = 100_000;
/// Attempts per callback, over about eight hours.
const ATTEMPTS: u32 = 20;
const FIRST_WAIT: Span = Span::from_secs(1);
const LONGEST_WAIT: Span = Span::from_secs(3600);
const TTL: Span = Span::from_secs(24 * 3600);
/// Delivered callbacks that are kept.
const KEPT: u64 = 1_000;

/// Where callbacks may be sent, and how they are signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callbacks {
    /// The allowed hosts.
    pub hosts: Arc<[Host]>,
    /// Signs the callbacks.
    pub secret: Secret,
}

/// A host that may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// By name, in lower case; its addresses must be public, or listed themselves.
    Name(String),
    /// By address, public or private.
    Address(IpAddr),
}

impl FromText for Host {
    const WHAT: &'static str = "a host";
    const HELP: &'static str =
        "write it like `app.example.com` or `10.0.0.7`, without `https://`, port and path";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Ok(Self::Address(address));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let named = !text.is_empty() && text.len() <= 253 && text.bytes().all(allowed);
        if named {
            Ok(Self::Name(text.to_ascii_lowercase()))
        } else {
            Err(Wrong::new("is not a host", Self::HELP))
        }
    }
}

impl Callbacks {
    /// Returns `url` if it may be called, or what is wrong with it.
    pub(crate) fn check(&self, url: &str) -> Result<Uri, String> {
        let bad = || "must be an address such as \"https://app.example.com/done\"".to_owned();
        if url.len() > MAX_URL {
            return Err(format!("is longer than {MAX_URL} bytes"));
        }
        let uri: Uri = url.parse().map_err(|_| bad())?;
        if !uri.scheme().is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme)) {
            return Err(bad());
        }
        let authority = uri.authority().ok_or_else(bad)?;
        if authority.as_str().contains('@') {
            return Err("must not have a user: callbacks are signed instead".into());
        }
        if self.allows(authority.host()) {
            return Ok(uri);
        }
        Err("names a host that is not allowed: add it to `hosts` of `[callbacks]`".into())
    }

    fn allows(&self, host: &str) -> bool {
        match host.trim_matches(['[', ']']).parse() {
            Ok(address) => self.hosts.contains(&Host::Address(address)),
            Err(_) => self.hosts.contains(&Host::Name(host.to_ascii_lowercase())),
        }
    }
}

pub(super) fn callbacks(t: &mut Table<'_>) -> Option<Callbacks> {
    let hosts: Option<Vec<Host>> = t.need(
        "hosts",
        "[\"app.example.com\"]",
        "Hosts that `callbackUrl` may name. A host that resolves to a private address is not called, unless the address itself is \
         also listed.",
    );
    if hosts.as_ref().is_some_and(Vec::is_empty) {
        t.wrong("hosts", "is empty, so no callback is possible", "name a host, or remove `[callbacks]`");
    }
    let doc =
        "Signs callbacks as Standard Webhooks: `whsec_` and base64, or any text of at least 16 characters.";
    let secret = signing_secret(t, doc);
    Some(Callbacks { hosts: hosts?.into(), secret: secret? })
}

/// Reads `secret` or `secret_file`, which signs webhooks.
pub(super) fn signing_secret(t: &mut Table<'_>, doc: &'static str) -> Option<Secret> {
    let text: Option<Secret> = t.get("secret", doc);
    let file = t.file("secret_file", "A file that contains the secret, instead of `secret`.");
    let secret = secret(t, ("secret", "secret_file"), text, file)?;
    if standard_webhooks::key(secret.reveal()).is_none() {
        let key = if t.has("secret") { "secret" } else { "secret_file" };
        t.wrong(
            key,
            "begins with `whsec_`, but what follows is not base64",
            "copy the whole secret, or omit the prefix",
        );
        return None;
    }
    Some(secret)
}

/// The lane that delivers callbacks, and its upstream, which represents all callback hosts.
pub(super) fn lane() -> Option<(Name, LaneConfig, LaneSpec, UpstreamSpec)> {
    let name = Name::new(CALLBACKS).ok()?;
    let chain = Chain::new(vec![name.clone()]).ok()?;
    let retry =
        RetryPolicy::new(ATTEMPTS, FIRST_WAIT, LONGEST_WAIT, RetryPolicy::default().jitter_percent()).ok()?;
    let own = LaneConfig {
        mode: Mode::Queue,
        chain: vec![name.clone()],
        chains: None,
        types: BTreeMap::new(),
        validate: Vec::new(),
        accept: Accept::default(),
        mask: Vec::new(),
        cache_key: None,
        retry,
        concurrency: None,
    };
    let spec = LaneSpec {
        capacity: Capacity::new(MAX_WAITING, Capacity::default().bytes()).ok()?,
        ttl: Some(TTL),
        fairness: Some(Fairness::default()),
        retry,
        dead_letters: Some(DeadLetterSpec::default()),
        keep: Keep { max: KEPT, ..Keep::default() },
        ..LaneSpec::new(name.clone(), chain)
    };
    Some((name.clone(), own, spec, UpstreamSpec::new(name, GateSpecs::default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callbacks(hosts: &[&str]) -> Callbacks {
        let hosts = hosts.iter().map(|host| Host::from_text(host).unwrap()).collect();
        Callbacks { hosts, secret: Secret::new("0123456789abcdef") }
    }

    #[test]
    fn only_listed_hosts_may_be_called() {
        let rules = callbacks(&["App.example.com", "10.0.0.7", "[::1]"]);
        let good = [
            "https://app.example.com/done?id=1",
            "http://APP.example.com:8443",
            "http://10.0.0.7/x",
            "http://[::1]:9000/",
        ];
        for url in good {
            assert!(rules.check(url).is_ok(), "{url}");
        }
        let bad = [
            "https://example.com/",
            "https://app.example.com.evil.example/",
            "https://evil.app.example.com/",
            "http://10.0.0.8/",
            "http://127.0.0.1/",
            "http://167772167/",
            "http://0x0a.0.0.7/",
            "http://[::ffff:10.0.0.7]/",
        ];
        for url in bad {
            assert!(rules.check(url).unwrap_err().contains("not allowed"), "{url}");
        }
    }

    #[test]
    fn invalid_urls_are_refused() {
        let rules = callbacks(&["app.example.com"]);
        for url in ["", "/done", "app.example.com", "ftp://app.example.com/", "https:///done", "https://a b/"]
        {
            assert!(rules.check(url).unwrap_err().contains("must be an address"), "{url}");
        }
        assert!(rules.check("https://me:pw@app.example.com/").unwrap_err().contains("user"));
        let long = format!("https://app.example.com/{}", "x".repeat(MAX_URL));
        assert!(rules.check(&long).unwrap_err().contains("longer"));
    }
}
