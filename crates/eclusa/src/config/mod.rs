//! The configuration: one TOML file, read key by key into types that are always valid.
//!
//! Reading returns a valid configuration, or all mistakes in the file, each with its location and a fix.
//! Variables (`${VAR}`) are replaced inside strings only, and no error shows their values.

mod accept;
mod alerts;
mod awaited;
mod aws_credentials;
mod cache;
mod callbacks;
mod changes;
mod check;
mod error;
mod gates;
mod interpolate;
mod json;
mod keys;
mod lanes;
mod mail;
mod policies;
mod read;
mod reconcile;
mod reference;
mod request;
mod schedules;
mod schema;
mod server;
mod ses;
mod targets;
mod template;
mod texts;
mod tls;
mod traces;
mod types;
mod units;
mod upstream_types;
mod upstreams;
mod warnings;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use eclusa_core::{LaneSpec, Name, Spec, UpstreamSpec};
use toml::de::DeTable;

pub use accept::Accept;
pub use alerts::{AlertWebhook, Alerts, WebhookUrl};
pub use awaited::{Async, Encoding, OnFailure, Poll, Signature, Signed, SignedPart, States, Verify, Webhook};
pub use aws_credentials::AwsCredentials;
pub(crate) use aws_credentials::credentials_of_profile;
pub use cache::{CacheKey, KeyScope};
pub use callbacks::{Callbacks, Host};
pub(crate) use changes::{Changes, need_restart};
pub use error::{ConfigError, ConfigErrors, LineColumn};
pub use policies::{
    HoldRule, PathPattern, PathSegment, Pattern, Policy, PolicyClass, Presence, RequestMatch, ScopeSource,
};
pub(crate) use read::suggest;
pub use reconcile::{Reconcile, StatePath};
pub use reference::reference;
pub use request::{JsonTemplate, Placeholder, RequestTemplate, TextPart, TextTemplate};
pub use schedules::Schedule;
pub use schema::schema;
pub use server::FORGET_WITHIN;
pub(crate) use server::SHORTEST_FORGET_WITHIN;
pub use ses::{ContainerToken, CredentialSource, MetadataSource, SesRules};
pub use targets::Targets;
pub use tls::CertificateError;
pub use traces::TracesConfig;
pub use types::*;
pub use units::parse_duration;
pub(crate) use units::{DURATION_HELP, on_or_off};
pub use upstream_types::*;
pub use warnings::Warning;

use read::{Context, KeyDoc, Table};

/// What `eclusa init` writes: short, commented and valid.
pub const INIT: &str = include_str!("init.toml");

/// The largest config file.
const MAX_FILE_BYTES: usize = 8 << 20;

/// Whether a lane accepts the job of a schedule; `Err` says why not.
pub(crate) type JobCheck = fn(&serde_json::Value, &LaneConfig, Targets<'_>) -> Result<(), String>;

/// Reads `text`, the contents of the file `name`. `check` is applied to the jobs of schedules.
pub(crate) fn parse(
    name: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
    check: JobCheck,
) -> Result<Config, ConfigErrors> {
    if text.len() > MAX_FILE_BYTES {
        return Err(ConfigErrors::unreadable(name, "is too large", "it may have at most 8 MiB"));
    }
    let (document, syntax) = DeTable::parse_recoverable(text);
    let ctx = Context::new(name, text, env);
    let mut root = Table::root(&ctx, document.get_ref());
    let config = config(&mut root, check);
    root.close();
    let (mut mistakes, mut secrets) = ctx.finish();
    if !syntax.is_empty() {
        // Errors about the contents of broken TOML would mislead, but the secrets found in it are still hidden.
        mistakes = syntax.iter().map(error::bad_syntax).collect();
        secrets.extend(mistakes.iter().flat_map(|mistake| error::possible_secrets(text, mistake.span.start)));
    }
    match config {
        Some(config) if mistakes.is_empty() => Ok(config),
        _ => Err(ConfigErrors::new(name, text, mistakes, &secrets)),
    }
}

/// Reads the whole file; `None` only if a mistake was noted.
fn config(t: &mut Table<'_>, check: JobCheck) -> Option<Config> {
    let (lane_names, upstream_names) = (t.names_under("lanes"), t.names_under("upstreams"));
    t.context().add_public_names(&lane_names);
    t.context().add_public_names(&upstream_names);
    let has_keys = t.lists("auth", "keys");
    let server = t.section("server", "The HTTP server.", |t| server::server(t, has_keys));
    let store = t.section("store", "Where state is stored.", server::store);
    let workers = t.section("workers", "How jobs are executed.", server::workers);
    let log = t.section("log", "Logging.", server::log);
    let traces = t
        .table("traces", "Tracing: where spans of requests and jobs are exported.", traces::traces)
        .flatten();
    let keys = t.section("auth", "Authentication.", |t| server::auth(t, &lane_names));
    let callbacks =
        t.table("callbacks", "Callbacks when jobs end (`callbackUrl` of a job).", callbacks::callbacks);
    let callbacks = callbacks.flatten();
    let alerts = t.section(
        "alerts",
        "Alerts: when they fire (see `GET /v1/alerts` and `eclusa alerts`), and where they are sent.",
        alerts::alerts,
    );
    let Routes { mut lanes, upstreams, mut lane_specs, mut upstream_specs } =
        routes(t, (&server, &store), &upstream_names);
    let targets = Targets { upstreams: &upstreams, public_url: server.public_url.as_ref() };
    let schedules = t.named("schedules", "A job that is enqueued on a schedule.", |_, t| {
        schedules::schedule(t, (&lanes, &lane_names), |job, lane| check(job, lane, targets))
    });
    if callbacks.is_some() || alerts.notifies() {
        let (name, own, lane, upstream) = callbacks::lane()?;
        lanes.insert(name, Arc::new(own));
        lane_specs.push(lane);
        upstream_specs.push(upstream);
    }
    // Clashing and unknown names were noted where they occur.
    let spec = Spec::new(lane_specs, upstream_specs).ok()?;
    let keys = keys.into_iter().filter_map(|read| read.key).map(Arc::new).collect();
    let schedules = schedules.into_iter().collect();
    Some(Config {
        server,
        store,
        workers,
        log,
        traces,
        keys,
        callbacks,
        alerts,
        lanes,
        upstreams,
        schedules,
        spec,
    })
}

/// Where jobs go: the lanes and upstreams of the file, with the rules that the engine has.
struct Routes {
    lanes: BTreeMap<Name, Arc<LaneConfig>>,
    upstreams: BTreeMap<Name, UpstreamConfig>,
    lane_specs: Vec<LaneSpec>,
    upstream_specs: Vec<UpstreamSpec>,
}

/// Reads lanes and upstreams, which are checked against each other.
fn routes(
    t: &mut Table<'_>,
    (server, store): (&ServerConfig, &StoreConfig),
    upstream_names: &[String],
) -> Routes {
    let uses = mail::Uses::default();
    let lanes =
        t.named("lanes", "A queue and its rules.", |name, t| lanes::lane(name, t, upstream_names, &uses));
    let context = upstreams::UpstreamContext {
        policy_names: policies::PolicyNames::default(),
        shared_gates: store.shared_gates || !matches!(store.url, StoreUrl::Redis(_)),
        public_url: server.public_url.is_some(),
        direct: lanes
            .iter()
            .filter(|(_, (lane, _))| lane.mode == Mode::Direct)
            .flat_map(|(_, (lane, _))| lane.upstreams().cloned())
            .collect(),
    };
    let upstreams = t.named("upstreams", "A third party that jobs are sent to.", |name, t| {
        upstreams::upstream(name, t, &context)
    });
    let lanes = lanes.into_iter().map(|(name, (own, spec))| (name, (Arc::new(own), spec))).collect();
    let (lanes, lane_specs) = split_specs(lanes);
    let (upstreams, upstream_specs): (_, Vec<Vec<_>>) = split_specs(upstreams);
    uses.check(t.context(), &upstreams);
    Routes { lanes, upstreams, lane_specs, upstream_specs: upstream_specs.concat() }
}

/// Describes every key, by running the readers on an empty file.
fn describe() -> Vec<KeyDoc> {
    let (ctx, nothing) = (Context::describing(), DeTable::new());
    let mut root = Table::root(&ctx, &nothing);
    config(&mut root, |_, _, _| Ok(()));
    root.close()
}

/// Separates what the program keeps, by name, from the specs for the engine.
fn split_specs<N: Ord, A, B>(read: Vec<(N, (A, B))>) -> (BTreeMap<N, A>, Vec<B>) {
    read.into_iter().map(|(name, (own, spec))| ((name, own), spec)).unzip()
}
