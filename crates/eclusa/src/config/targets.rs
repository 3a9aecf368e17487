//! Where jobs may be sent.

use std::collections::BTreeMap;

use eclusa_core::Name;

use super::types::{BaseUrl, Config};
use super::upstream_types::UpstreamConfig;

/// The upstreams, and the base of their webhook addresses.
#[derive(Clone, Copy)]
pub struct Targets<'a> {
    /// All upstreams of the config.
    pub upstreams: &'a BTreeMap<Name, UpstreamConfig>,
    /// `server.public_url`.
    pub public_url: Option<&'a BaseUrl>,
}

impl<'a> From<&'a Config> for Targets<'a> {
    fn from(config: &'a Config) -> Self {
        Self { upstreams: &config.upstreams, public_url: config.server.public_url.as_ref() }
    }
}

impl Targets<'_> {
    /// Whether the upstreams of `chain` accept messages; all upstreams of a chain are of one kind.
    pub fn take_mail(&self, chain: &[Name]) -> bool {
        chain.first().and_then(|name| self.upstreams.get(name)).is_some_and(UpstreamConfig::is_mail)
    }
}
