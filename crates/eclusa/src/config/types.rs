//! The valid configuration: types that are always valid, so that nothing checks them again.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::retry::RetryPolicy;
use eclusa_core::{Level, Name, Spec};

use super::accept::Accept;
use super::alerts::Alerts;
use super::cache::CacheKey;
use super::callbacks::Callbacks;
use super::schedules::Schedule;
use super::traces::TracesConfig;
use super::upstream_types::UpstreamConfig;

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
    pub lanes: BTreeMap<Name, Arc<LaneConfig>>,
    /// `[upstreams.*]`, without the rules that are in `spec`.
    pub upstreams: BTreeMap<Name, UpstreamConfig>,
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
    /// Everything, including what `mask` hides from others.
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
pub struct LaneConfig {
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

impl LaneConfig {
    /// All upstreams that its jobs may use, possibly with repetitions.
    pub fn upstreams(&self) -> impl Iterator<Item = &Name> {
        let others = self.chains.iter().flat_map(|chains| chains.chains.values().flatten());
        self.chain.iter().chain(others)
    }
}

/// What to do about times of a schedule at which no process was running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// Enqueue nothing for them.
    Skip,
    /// Enqueue one job for all of them.
    Once,
    /// Enqueue a job for each.
    All,
}

/// Which jobs a lane accepts, if it is not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// All jobs.
    All,
    /// Jobs that can start before they expire.
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
