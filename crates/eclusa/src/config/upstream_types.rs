//! The valid configuration of upstreams, by kind.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Name;
use eclusa_core::retry::ExtraCodes;

use super::awaited::Async;
use super::policies::Policy;
use super::reconcile::Reconcile;
use super::request::RequestTemplate;
use super::ses::SesRules;
use super::types::{BaseUrl, Secret, Tls};

/// An upstream, without the rules that the engine has.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamConfig {
    /// From the first byte sent to the last byte received.
    pub timeout: Duration,
    /// Until a connection is established.
    pub connect_timeout: Duration,
    /// Additional retryable and permanent codes.
    pub codes: ExtraCodes,
    /// Certificates, if the public ones are not enough.
    pub tls: Tls,
    /// The rules of its kind.
    pub kind: UpstreamKind,
}

/// The kind of an upstream, with the rules specific to it.
#[derive(Debug, Clone, PartialEq)]
pub enum UpstreamKind {
    /// Requests, by HTTP.
    Http(Box<HttpRules>),
    /// Mail, by SMTP.
    Smtp(Box<SmtpRules>),
    /// Mail, by the API of Amazon SES.
    Ses(Box<SesRules>),
}

impl UpstreamConfig {
    /// Whether it takes mail instead of requests.
    pub const fn is_mail(&self) -> bool {
        !matches!(self.kind, UpstreamKind::Http(_))
    }

    /// The rules of an HTTP upstream.
    pub const fn http(&self) -> Option<&HttpRules> {
        match &self.kind {
            UpstreamKind::Http(rules) => Some(rules),
            UpstreamKind::Smtp(_) | UpstreamKind::Ses(_) => None,
        }
    }

    /// Its accounts; if there are any, each call uses one of them.
    pub fn keys(&self) -> &[UpstreamKeyConfig] {
        self.http().map_or(&[], |rules| &rules.keys)
    }

    /// The key with this name.
    pub fn key(&self, name: &str) -> Option<&UpstreamKeyConfig> {
        self.keys().iter().find(|key| key.name.as_str() == name)
    }

    /// Limits by scope.
    pub fn policies(&self) -> &[Policy] {
        self.http().map_or(&[], |rules| &rules.policies)
    }

    /// The places in answers where its policies find the usage, without duplicates.
    pub(crate) fn usage_sources(&self) -> Vec<Arc<str>> {
        let classes = self.policies().iter().flat_map(|policy| &policy.classes);
        let mut sources: Vec<_> = classes.filter_map(|class| class.terms.charge.source().cloned()).collect();
        sources.sort();
        sources.dedup();
        sources
    }

    /// `async`: it accepts jobs and reports their results later.
    pub fn awaited(&self) -> Option<&Async> {
        self.http()?.awaited.as_ref()
    }

    /// How its own balances are requested.
    pub fn reconcile(&self) -> Option<&Reconcile> {
        self.http()?.reconcile.as_ref()
    }
}

/// The rules of an HTTP upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpRules {
    /// The base URL: scheme, host, port and a path prefix.
    pub url: BaseUrl,
    /// Sent with every request, instead of the caller's headers of the same name.
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Its accounts; if there are any, each call uses one of them.
    pub keys: Vec<UpstreamKeyConfig>,
    /// How a job's `params` become a request; without it, the job's own `request` is sent.
    pub request: Option<RequestTemplate>,
    /// `async`: it accepts jobs and reports their results later.
    pub awaited: Option<Async>,
    /// The largest response, in bytes.
    pub max_response: usize,
    /// Limits by scope.
    pub policies: Vec<Policy>,
    /// How its own balances are requested.
    pub reconcile: Option<Reconcile>,
}

impl HttpRules {
    /// The rules of a plain URL, with responses of at most `max_response` bytes.
    pub(crate) fn plain(url: BaseUrl, max_response: usize) -> Self {
        let (headers, keys, policies) = (Vec::new(), Vec::new(), Vec::new());
        Self { url, headers, keys, request: None, awaited: None, max_response, policies, reconcile: None }
    }
}

/// The rules of an SMTP upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct SmtpRules {
    /// The server.
    pub url: SmtpUrl,
    /// The account.
    pub auth: Option<SmtpAuth>,
    /// Whether a plain connection switches to TLS.
    pub starttls: StartTls,
    /// The most concurrent connections of this process.
    pub max_connections: usize,
}

/// A checked `smtp://` or `smtps://` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmtpUrl {
    /// `smtps`: TLS from the first byte.
    pub implicit_tls: bool,
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl SmtpUrl {
    /// Whether it names this machine.
    pub fn is_loopback(&self) -> bool {
        let ip = self.host.parse::<std::net::IpAddr>();
        ip.map_or(self.host == "localhost", |ip| ip.is_loopback())
    }
}

impl fmt::Display for SmtpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.implicit_tls { "smtps" } else { "smtp" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

/// An SMTP account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmtpAuth {
    /// `auth.user`.
    pub user: String,
    /// `auth.password`, or the contents of `auth.password_file`.
    pub password: Secret,
}

/// Whether a plain connection switches to TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTls {
    /// If the server offers it.
    Auto,
    /// Always; otherwise nothing is sent.
    Required,
    /// Never, even if the server offers it.
    Off,
}

/// One of several accounts at an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamKeyConfig {
    /// The name under which its state is shown.
    pub name: Name,
    /// The key.
    pub secret: Secret,
    /// The upstream's headers that contain it.
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
}

/// The format of an upstream's balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFormat {
    /// The XML of the DICT.
    DictXml,
    /// The JSON of Eclusa's own API.
    Json,
}
