//! The rules in force in this process: the config with a client for each upstream, replaced as a whole by a reload.

use std::collections::BTreeMap;
use std::sync::Arc;

use eclusa_core::layout::encode_spec;
use eclusa_core::retry::ExtraCodes;
use eclusa_core::{CALLBACKS, Name};
use http::{HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;
use tokio::sync::watch;

use crate::config::{Config, UpstreamConfig, UpstreamKeyConfig};
use crate::execute::http::TlsError;
use crate::execute::{AlertClient, CallEnd, CallbackClient, Called, Judged, UpstreamClient};
use crate::policy::read_usage;
use crate::request::Response;

/// Certificates cannot be used.
#[derive(Debug, Error)]
#[error("{of}: {source}")]
pub struct BadCertificates {
    of: String,
    source: TlsError,
}

impl BadCertificates {
    fn of_upstream(name: &Name, source: TlsError) -> Self {
        Self { of: format!("upstreams.{name}.tls"), source }
    }

    fn of_alerts(source: TlsError) -> Self {
        Self { of: "alerts".into(), source }
    }

    fn of_callbacks(source: TlsError) -> Self {
        Self { of: "callbacks".into(), source }
    }
}

/// One state of the rules. Code that needs several parts takes one snapshot first.
pub(crate) struct Rules {
    /// The config.
    pub(crate) config: Config,
    /// Clients to the upstreams of the config.
    pub(crate) upstreams: BTreeMap<Name, UpstreamClient>,
    /// The client for callbacks, if configured.
    pub(crate) callbacks: Option<CallbackClient>,
    /// The client for alert webhooks.
    pub(crate) alerts: AlertClient,
    callback_codes: ExtraCodes,
}

impl Rules {
    /// Builds the rules of `config`.
    pub(crate) fn new(config: Config) -> Result<Self, BadCertificates> {
        let client = |(name, rules): (&Name, _)| match UpstreamClient::new(rules) {
            Ok(client) => Ok((name.clone(), client)),
            Err(source) => Err(BadCertificates::of_upstream(name, source)),
        };
        let upstreams = config.upstreams.iter().map(client).collect::<Result<_, _>>()?;
        let callbacks = config.callbacks.as_ref().map(CallbackClient::new).transpose();
        let callbacks = callbacks.map_err(BadCertificates::of_callbacks)?;
        let alerts = AlertClient::new(&config.alerts).map_err(BadCertificates::of_alerts)?;
        Ok(Self { config, upstreams, callbacks, alerts, callback_codes: callback_codes() })
    }

    /// Judges a call to `upstream` by its codes; an upstream that is gone has none. The usage is read from the response
    /// if policies charge by it.
    pub(crate) fn judge(&self, upstream: &Name, called: &Called) -> Judged {
        let none = ExtraCodes::default();
        let codes = match self.config.upstreams.get(upstream) {
            Some(rules) => &rules.codes,
            None if upstream.as_str() == CALLBACKS => &self.callback_codes,
            None => &none,
        };
        let mut judged = Judged::new(upstream.clone(), called, codes);
        let sources = self.usage_sources(upstream);
        if let Some(answer) = called.answer.as_ref().filter(|_| !sources.is_empty()) {
            judged.report.usage = read_usage(sources, &header_map(answer), &answer.body);
        }
        judged
    }

    /// The upstream's key that a call was granted, if it has keys. The owner may have decided under other rules; then
    /// the call cannot be made here.
    pub(crate) fn key(
        &self,
        upstream: &Name,
        granted: Option<&str>,
    ) -> Result<Option<&UpstreamKeyConfig>, CallEnd> {
        let Some(rules) = self.config.upstreams.get(upstream) else { return Ok(None) };
        match granted {
            None if rules.keys().is_empty() => Ok(None),
            None => Err(CallEnd::NotSent("has keys in this config, but none was granted".into())),
            Some(name) => match rules.key(name) {
                None => Err(CallEnd::NotSent(format!("its key `{name}` is not configured here"))),
                key => Ok(key),
            },
        }
    }

    /// Where responses of `upstream` report usage, for policies that charge by it.
    pub(crate) fn usage_sources(&self, upstream: &Name) -> Vec<Arc<str>> {
        self.config.upstreams.get(upstream).map_or(Vec::new(), UpstreamConfig::usage_sources)
    }

    /// A hash of lanes, upstreams and limits: equal for equal rules.
    pub(crate) fn version(&self) -> String {
        let hash = xxhash_rust::xxh3::xxh3_64(&encode_spec(&self.config.spec));
        format!("{:08x}", hash >> 32)
    }
}

/// A callback is acknowledged by 2xx. Everything else is retried, except 410: the receiver is gone.
fn callback_codes() -> ExtraCodes {
    let retryable = (300..=599).filter(|code| *code != 410).map(|code: u16| code.to_string()).collect();
    ExtraCodes { retryable, permanent: vec!["410".into()] }
}

fn header_map(answer: &Response) -> HeaderMap {
    let pairs = answer.headers.iter();
    let pair = |(name, value): &(String, Vec<u8>)| {
        Some((HeaderName::try_from(name.as_str()).ok()?, HeaderValue::from_bytes(value).ok()?))
    };
    pairs.filter_map(pair).collect()
}

/// The rules in force.
pub(crate) struct CurrentRules(watch::Sender<Arc<Rules>>);

impl CurrentRules {
    pub(crate) fn new(rules: Rules) -> Self {
        Self(watch::Sender::new(Arc::new(rules)))
    }

    /// The rules in force now.
    pub(crate) fn get(&self) -> Arc<Rules> {
        self.0.borrow().clone()
    }

    /// A receiver of all later changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Rules>> {
        self.0.subscribe()
    }

    /// Puts other rules in force.
    pub(crate) fn replace(&self, rules: Rules) {
        self.0.send_replace(Arc::new(rules));
    }
}
