//! The valid configuration: types that are always valid, so that nothing checks them again.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::retry::{ExtraCodes, RetryPolicy};
use eclusa_core::{Level, Name, Spec};

use super::accept::Accept;
use super::alerts::Alerts;
use super::awaited::Async;
use super::cache::CacheKey;
use super::callbacks::Callbacks;
use super::policies::Policy;
use super::reconcile::Reconcile;
use super::request::RequestTemplate;
use super::schedules::Schedule;
use super::ses::SesRules;
use super::traces::TracesConfig;

/// The whole configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// `[server]`.
    pub server: ServerConfig,
    /// `[store]`.
    pub store: StoreConfig,
    /// `[workers]`.
    pub workers: WorkersConfig,
    /// `[log]`.
    pub log: LogConfig,
    /// `[traces]`; without it, no spans are recorded.
    pub traces: Option<TracesConfig>,
    /// `[[auth.keys]]`; without keys, which is possible only on loopback, everybody may do everything.
    pub keys: Vec<Arc<Key>>,
    /// `[callbacks]`; without it, callbacks are off.
    pub callbacks: Option<Callbacks>,
    /// `[alerts]`.
    pub alerts: Alerts,
    /// `[lanes.*]`, without the rules that are in `spec`.
    pub lanes: BTreeMap<Name, Arc<Lane>>,
    /// `[upstreams.*]`, without the rules that are in `spec`.
    pub upstreams: BTreeMap<Name, Upstream>,
    /// `[schedules.*]`.
    pub schedules: BTreeMap<Name, Arc<Schedule>>,
    /// The engine's rules for these lanes and upstreams.
    pub spec: Spec,
}

/// `[server]`: the HTTP server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The address to listen on; port 0 picks a free port.
    pub listen: SocketAddr,
    /// The largest request body, in bytes.
    pub max_body: usize,
    /// The most bytes of bodies being received at the same time.
    pub max_bodies: usize,
    /// The longest `Prefer: wait` and `?timeout=`.
    pub max_wait: Duration,
    /// The most concurrent connections.
    pub max_connections: usize,
    /// How long running jobs may take to finish when the process stops.
    pub shutdown_grace: Duration,
    /// How slow a client may be.
    pub client: ClientBounds,
    /// The public URL of this server, for `{webhook_url}`.
    pub public_url: Option<BaseUrl>,
    /// The listener's certificate; without it, plain HTTP.
    pub tls: Option<ServerTls>,
    /// How long the listener stays open after the process is asked to stop.
    pub drain: Duration,
}

/// The listener's certificate, read and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// The path of the certificate, which is watched for changes.
    pub cert_file: PathBuf,
    /// The path of the key.
    pub key_file: PathBuf,
    /// The certificate and the intermediate certificates, PEM.
    pub certificate: Vec<u8>,
    /// The private key, PEM.
    pub key: Secret,
}

/// How slow a client may be while it sends a request or reads a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientBounds {
    /// The total time that a request or a response may wait for the client.
    pub total: Duration,
    /// The minimum speed in bytes per second.
    pub min_rate: u64,
}

/// `[store]`: where state is stored.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// `embedded:./data`, `memory:` or `redis://…`.
    pub url: StoreUrl,
    /// The prefix of all Redis keys.
    pub prefix: String,
    /// When a change counts as accepted.
    pub ack: Ack,
    /// What to send while Redis does not respond.
    pub when_lost: WhenLost,
    /// Whether processes on one Redis share the gates of upstreams.
    pub shared_gates: bool,
    /// Certificates for `rediss://`.
    pub tls: Tls,
    /// How long Redis and the owner may be silent before callers are refused.
    pub timeout: Duration,
    /// How long the owner may be silent before another process takes over.
    pub term: Duration,
    /// How long something that expired may remain in the journal.
    pub forget_within: Duration,
}

/// How durable a change is when the store acknowledges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Fsynced: it survives a power cut.
    Fsync,
    /// Written to the operating system, or to Redis: it survives the end of this process, even by SIGKILL. A power cut
    /// loses what was written since the last sync, about a second.
    Write,
    /// It has also reached a replica of the Redis server. Only on Redis.
    Replicate,
}

/// What to do while the owner cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenLost {
    /// Each process continues with its share of every limit.
    Share,
    /// Nothing is sent.
    Stop,
}

/// The URL of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// In files in this directory.
    Embedded(PathBuf),
    /// In memory only: lost when the process ends.
    Memory,
    /// On a Redis or Valkey server, shared with all processes that use it.
    Redis(Secret),
}

/// Without user and password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(dir) => write!(f, "embedded:{}", dir.display()),
            Self::Memory => f.write_str("memory:"),
            Self::Redis(url) => {
                let (scheme, rest) = url.reveal().split_once("://").unwrap_or(("redis", ""));
                let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
                write!(f, "{scheme}://{}", address.split(['?', '#']).next().unwrap_or_default())
            }
        }
    }
}

/// `[workers]`: how jobs are executed.
#[derive(Debug, Clone)]
pub struct WorkersConfig {
    /// The most jobs that this process runs at the same time, over all lanes.
    pub concurrency: usize,
    /// How long a job stays with a worker that stopped responding.
    pub lease: Duration,
}

/// `[log]`: how the log is written.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// What is logged: `info`, or a filter such as `eclusa=debug`.
    pub filter: String,
    /// The line format.
    pub format: LogFormat,
    /// Whether each request is logged.
    pub access: bool,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// One JSON object per line.
    Json,
    /// Plain text.
    Text,
}

/// An API key.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The owner's name; appears in the log.
    pub name: String,
    /// What the key may do.
    pub role: Role,
    /// The key.
    pub secret: Secret,
    /// The allowed lanes; all if `None`.
    pub lanes: Option<Vec<Name>>,
    /// The allowed tenants; all if `None`. `*` matches anything.
    pub tenants: Option<Vec<String>>,
    /// The highest priority it may use.
    pub max_priority: Level,
}

/// What a key may do. Each role includes the ones before it, except that a viewer may not enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Enqueue jobs, and read them.
    Producer,
    /// Read everything, change nothing.
    Viewer,
    /// Also pause, cancel, replay, reset.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// All roles, as the config names them.
    pub const ALL: [Role; 4] = [Role::Producer, Role::Viewer, Role::Operator, Role::Admin];

    /// Its name in the config.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Producer => "producer",
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the code that has to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A lane, without the rules that the engine has.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Whether jobs queue or callers wait on the connection.
    pub mode: Mode,
    /// The upstreams in order; empty if there are only `chains`.
    pub chain: Vec<Name>,
    /// Other chains, selected by a value of the job.
    pub chains: Option<Chains>,
    /// The priority of a job by its `type`.
    pub types: BTreeMap<String, Level>,
    /// Required fields. If fields of query, body or params are listed, no others are accepted there.
    pub validate: Vec<(Field, Check)>,
    /// Fields that only admins can see.
    pub mask: Vec<Field>,
    /// Which requests callers may send.
    pub accept: Accept,
    /// Identifies equal requests, so that one response serves all of them.
    pub cache_key: Option<CacheKey>,
    /// When to retry.
    pub retry: RetryPolicy,
    /// The most jobs of this lane that this process runs at the same time.
    pub concurrency: Option<u32>,
}

impl Lane {
    /// All upstreams that its jobs may use, possibly with repetitions.
    pub fn upstreams(&self) -> impl Iterator<Item = &Name> {
        let others = self.chains.iter().flat_map(|chains| chains.chains.values().flatten());
        self.chain.iter().chain(others)
    }
}

/// What to do about times of a schedule at which no process was running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// Nothing.
    Skip,
    /// One job for all of them.
    Once,
    /// A job for each.
    All,
}

/// Which jobs a lane accepts, if it is not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// All.
    All,
    /// Those that can start before they expire.
    InTime,
}

/// Whether jobs queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Jobs are durable, wait for their turn, and are run by workers.
    Queue,
    /// Requests are sent at once or refused, while the caller waits.
    Direct,
}

/// `chains` with `chain_by`.
#[derive(Debug, Clone, PartialEq)]
pub struct Chains {
    /// The field that selects the chain.
    pub by: Field,
    /// The chain for each value; other values use the lane's `chain`, if it has one.
    pub chains: BTreeMap<String, Vec<Name>>,
}

/// A field of a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// `query.cpf`, `query:cpf`.
    Query(String),
    /// `header.x-id`, `header:X-Id`; in lower case.
    Header(String),
    /// `body./pointer`, `body:/pointer` into JSON.
    Body(String),
    /// `params./pointer`, `params:/pointer` into the job's `params`.
    Params(String),
}

/// A check of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// A Brazilian CPF: eleven digits with valid check digits.
    Cpf,
    /// A Brazilian CNPJ, including the new form with letters.
    Cnpj,
    /// Present and not empty.
    Required,
}

/// A text with placeholders for fields: `{query.cpf}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// In order.
    pub parts: Vec<TemplatePart>,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// Literal text.
    Text(String),
    /// The value of a field.
    Field(Field),
    /// `{tenant}`.
    Tenant,
    /// `{method}`.
    Method,
    /// `{path}`.
    Path,
}

/// An upstream, without the rules that the engine has.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
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

impl Upstream {
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
    pub fn keys(&self) -> &[UpstreamKey] {
        self.http().map_or(&[], |rules| &rules.keys)
    }

    /// The key with this name.
    pub fn key(&self, name: &str) -> Option<&UpstreamKey> {
        self.keys().iter().find(|key| key.name.as_str() == name)
    }

    /// Limits by scope.
    pub fn policies(&self) -> &[Policy] {
        self.http().map_or(&[], |rules| &rules.policies)
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
    pub keys: Vec<UpstreamKey>,
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
    /// Never.
    Off,
}

/// One of several accounts at an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamKey {
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

/// Certificates, read and checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tls {
    /// `ca_file`: trusted certificates, PEM.
    pub ca: Option<Vec<u8>>,
    /// `cert_file` and `key_file`: the client certificate and its key, PEM.
    pub client: Option<(Vec<u8>, Secret)>,
}

/// A checked `http://` or `https://` URL without query, fragment or user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// `http` or `https`.
    pub scheme: http::uri::Scheme,
    /// Host and port.
    pub authority: http::uri::Authority,
    /// Without a `/` at the end; may be empty.
    pub prefix: String,
}

impl BaseUrl {
    /// The `Host` header: without the port if it is the default of the scheme.
    pub fn host_header(&self) -> String {
        match (self.scheme.as_str(), self.authority.port_u16()) {
            ("https", Some(443)) | ("http", Some(80)) => self.authority.host().to_owned(),
            _ => self.authority.to_string(),
        }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}
