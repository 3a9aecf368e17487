//! The valid configuration: values that cannot be wrong, so that nothing checks them again.

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

/// Everything `eclusa serve` needs to know.
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
    /// `[traces]`; without it no spans are recorded.
    pub traces: Option<TracesConfig>,
    /// `[[auth.keys]]`; none on loopback means that everybody may do everything.
    pub keys: Vec<Arc<Key>>,
    /// `[callbacks]`; without it nobody is called back.
    pub callbacks: Option<Callbacks>,
    /// `[alerts]`.
    pub alerts: Alerts,
    /// `[lanes.*]`: what the program itself must know of a lane.
    pub lanes: BTreeMap<Name, Arc<Lane>>,
    /// `[upstreams.*]`: what the program itself must know of an upstream.
    pub upstreams: BTreeMap<Name, Upstream>,
    /// `[schedules.*]`.
    pub schedules: BTreeMap<Name, Arc<Schedule>>,
    /// The rules for the engine, of the same lanes and upstreams.
    pub spec: Spec,
}

/// How requests come in.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The largest request body.
    pub max_body: usize,
    /// Bytes of bodies that are being received at the same time.
    pub max_bodies: usize,
    /// The longest `Prefer: wait` and `?timeout=`.
    pub max_wait: Duration,
    /// Connections served at the same time.
    pub max_connections: usize,
    /// How long running jobs may take to finish when the process is asked to stop.
    pub shutdown_grace: Duration,
    /// How slow a client may be.
    pub client: ClientBounds,
    /// Where others reach this server, for `{webhook_url}`.
    pub public_url: Option<BaseUrl>,
    /// The listener's certificate; plain HTTP without.
    pub tls: Option<ServerTls>,
    /// How long the listener stays open after the process was asked to stop.
    pub drain: Duration,
}

/// The listener's certificate, read and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// Where the certificate is, to look for a newer one.
    pub cert_file: PathBuf,
    /// Where its key is.
    pub key_file: PathBuf,
    /// The certificate and those that vouch for it, PEM.
    pub certificate: Vec<u8>,
    /// The private key, PEM.
    pub key: Secret,
}

/// How slow a client may be, while it owes bytes or has bytes to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientBounds {
    /// How long a request or an answer may wait for it in all.
    pub total: Duration,
    /// Bytes per second.
    pub min_rate: u64,
}

/// Where the state lives.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// `embedded:./data`, `memory:` or `redis://…`.
    pub url: StoreUrl,
    /// What the names of all keys on Redis begin with.
    pub prefix: String,
    /// What "accepted" means.
    pub ack: Ack,
    /// What to send while Redis does not answer.
    pub when_lost: WhenLost,
    /// Whether processes on one Redis share the gates of upstreams.
    pub shared_gates: bool,
    /// For `rediss://`.
    pub tls: Tls,
    /// How long Redis and the owner may be silent before callers are refused.
    pub timeout: Duration,
    /// How long the owner may be silent before another process takes over.
    pub term: Duration,
    /// How long after something expired it may still be in the journal.
    pub forget_within: Duration,
}

/// What has happened to a change when the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// It was fsynced: it survives a power cut.
    Fsync,
    /// It was handed to the operating system, or to Redis: it survives the death of this process, by SIGKILL too. A power cut
    /// loses what came after the last sync, which is about a second.
    Write,
    /// What was taken in has reached a replica of the Redis server too. Only on Redis.
    Replicate,
}

/// What to do while the fleet cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenLost {
    /// Each process goes on with its part of every limit.
    Share,
    /// Nothing is sent.
    Stop,
}

/// An address of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// In files below this directory.
    Embedded(PathBuf),
    /// Nowhere: gone when the process ends.
    Memory,
    /// On a Redis or Valkey server, shared with all processes that name it.
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

/// How jobs are run.
#[derive(Debug, Clone)]
pub struct WorkersConfig {
    /// Jobs that this process runs at the same time, over all lanes.
    pub concurrency: usize,
    /// How long a job stays with a worker that no longer answers.
    pub lease: Duration,
}

/// How the log is written.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// What is written: `info`, or a filter such as `eclusa=debug`.
    pub filter: String,
    /// How it looks.
    pub format: LogFormat,
    /// Whether each request is logged.
    pub access: bool,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people on a terminal, JSON elsewhere.
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// A key that lets its holder in.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Whose it is; appears in the log.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The key itself.
    pub secret: Secret,
    /// Only these lanes, if any are named.
    pub lanes: Option<Vec<Name>>,
    /// Only these tenants, if any are named; `*` stands for anything.
    pub tenants: Option<Vec<String>>,
    /// No more urgent than this.
    pub max_priority: Level,
}

/// What a key may do; each role may do what those before it may, but a viewer may not enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Enqueue, and look at what was enqueued.
    Producer,
    /// Look at everything, change nothing.
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
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What the program must know of a lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Whether jobs queue or callers wait on the connection.
    pub mode: Mode,
    /// The upstreams in order; none if `chains` are all there are.
    pub chain: Vec<Name>,
    /// Other chains, picked by a value of the job.
    pub chains: Option<Chains>,
    /// The priority of a job by its `type`.
    pub types: BTreeMap<String, Level>,
    /// What a job must contain; where fields are named, no others are accepted.
    pub validate: Vec<(Field, Check)>,
    /// What only admins are shown of a job.
    pub mask: Vec<Field>,
    /// Which requests callers may send.
    pub accept: Accept,
    /// What makes two jobs ask for the same thing, so that one answer serves both.
    pub cache_key: Option<CacheKey>,
    /// When to try again.
    pub retry: RetryPolicy,
    /// Jobs of this lane that this process runs at the same time.
    pub concurrency: Option<u32>,
}

impl Lane {
    /// All upstreams that its jobs may go to; some perhaps more than once.
    pub fn upstreams(&self) -> impl Iterator<Item = &Name> {
        let others = self.chains.iter().flat_map(|chains| chains.chains.values().flatten());
        self.chain.iter().chain(others)
    }
}

/// What to do about moments of a schedule at which no process was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// Nothing.
    Skip,
    /// One job for all of them.
    Once,
    /// A job for each.
    All,
}

/// Which jobs a lane takes in, if there is room.
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
    /// Durable, in turn, by workers.
    Queue,
    /// At once or not at all, while the caller waits.
    Direct,
}

/// `chains` with `chain_by`.
#[derive(Debug, Clone, PartialEq)]
pub struct Chains {
    /// Where the value is.
    pub by: Field,
    /// The chain for each value; others take the lane's own, if it has one.
    pub chains: BTreeMap<String, Vec<Name>>,
}

/// A place in a request.
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

/// What a value must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// A Brazilian CPF: eleven digits with right check digits.
    Cpf,
    /// A Brazilian CNPJ, also of the new kind with letters.
    Cnpj,
    /// Anything that is there and not empty.
    Required,
}

/// A text with fields in it: `{query.cpf}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// In order.
    pub parts: Vec<TemplatePart>,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// As it stands.
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

/// What the program must know of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// From the first byte sent to the last received.
    pub timeout: Duration,
    /// Until a connection is there.
    pub connect_timeout: Duration,
    /// Codes that this upstream means differently.
    pub codes: ExtraCodes,
    /// Certificates, where the usual ones do not do.
    pub tls: Tls,
    /// What only upstreams of its kind have.
    pub kind: UpstreamKind,
}

/// What an upstream speaks, with the rules that only such upstreams have.
#[derive(Debug, Clone, PartialEq)]
pub enum UpstreamKind {
    /// HTTP.
    Http(Box<HttpRules>),
    /// Mail, by SMTP.
    Smtp(Box<SmtpRules>),
    /// Mail, by the API of Amazon SES.
    Ses(Box<SesRules>),
}

impl Upstream {
    /// Whether it takes messages, and not requests.
    pub const fn is_mail(&self) -> bool {
        !matches!(self.kind, UpstreamKind::Http(_))
    }

    /// The rules of one that speaks HTTP.
    pub const fn http(&self) -> Option<&HttpRules> {
        match &self.kind {
            UpstreamKind::Http(rules) => Some(rules),
            UpstreamKind::Smtp(_) | UpstreamKind::Ses(_) => None,
        }
    }

    /// Accounts at it; each call is made with one of them, if there are any.
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

    /// `async`: it takes jobs in and tells later how they went.
    pub fn awaited(&self) -> Option<&Async> {
        self.http()?.awaited.as_ref()
    }

    /// Where it tells its own count of its policies.
    pub fn reconcile(&self) -> Option<&Reconcile> {
        self.http()?.reconcile.as_ref()
    }
}

/// What only an upstream that speaks HTTP has.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpRules {
    /// Where requests go: scheme, host, port and a path prefix.
    pub url: BaseUrl,
    /// Sent with every request, in place of the caller's.
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Accounts at it; each call is made with one of them, if there are any.
    pub keys: Vec<UpstreamKey>,
    /// How a job's `params` become a request; without it the job's own is sent.
    pub request: Option<RequestTemplate>,
    /// `async`: it takes jobs in and tells later how they went.
    pub awaited: Option<Async>,
    /// The largest answer.
    pub max_response: usize,
    /// Limits by scope.
    pub policies: Vec<Policy>,
    /// Where it tells its own count of them.
    pub reconcile: Option<Reconcile>,
}

impl HttpRules {
    /// Of an address that is called as it is, for answers of at most so many bytes.
    pub(crate) fn plain(url: BaseUrl, max_response: usize) -> Self {
        let (headers, keys, policies) = (Vec::new(), Vec::new(), Vec::new());
        Self { url, headers, keys, request: None, awaited: None, max_response, policies, reconcile: None }
    }
}

/// What only an upstream that speaks SMTP has.
#[derive(Debug, Clone, PartialEq)]
pub struct SmtpRules {
    /// Where it is.
    pub url: SmtpUrl,
    /// Who sends.
    pub auth: Option<SmtpAuth>,
    /// Whether the connection is encrypted once it is there.
    pub starttls: StartTls,
    /// Connections of this process at the same time.
    pub max_connections: usize,
}

/// A checked `smtp://` or `smtps://` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmtpUrl {
    /// `smtps`: encrypted from the first byte on.
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

/// Who sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmtpAuth {
    /// `auth.user`.
    pub user: String,
    /// `auth.password`, or what is in `auth.password_file`.
    pub password: Secret,
}

/// Whether a connection that begins in the clear goes on encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTls {
    /// If the server offers it.
    Auto,
    /// Or nothing is sent.
    Required,
    /// Never.
    Off,
}

/// One of several accounts at an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamKey {
    /// What it is called where its state is shown.
    pub name: Name,
    /// Its text.
    pub secret: Secret,
    /// The headers of the upstream that hold it.
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
}

/// How an upstream writes balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFormat {
    /// As the DICT does.
    DictXml,
    /// As Eclusa does.
    Json,
}

/// Certificates, read and checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tls {
    /// `ca_file`: trusted, PEM.
    pub ca: Option<Vec<u8>>,
    /// `cert_file` and `key_file`: shown to the other side, PEM.
    pub client: Option<(Vec<u8>, Secret)>,
}

/// A checked `http://` or `https://` address without query, fragment or user.
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
    /// What a client sends as `Host`: without a port that the scheme has anyway.
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
