//! The configuration: one TOML file, read key by key, then made into values that cannot be wrong.
//!
//! [`Config::load`] gives a valid configuration or everything that is wrong with the file, each thing with its place
//! and how to mend it. Variables (`${VAR}`) are replaced inside strings only, and no error shows what they hold.

mod accept;
mod alerts;
mod awaited;
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
mod template;
mod texts;
mod tls;
mod traces;
mod types;
mod units;
mod upstreams;
mod warnings;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use eclusa_core::Spec;
use toml::de::DeTable;

pub use accept::Accept;
pub use alerts::{AlertWebhook, Alerts, WebhookUrl};
pub use awaited::{Async, Encoding, OnFailure, Poll, Signature, Signed, SignedPart, States, Verify, Webhook};
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
pub use ses::{ContainerToken, CredentialSource, MetadataSource, SesRules};
pub use tls::CertificateError;
pub use traces::TracesConfig;
pub use types::*;
pub use units::parse_duration;
pub(crate) use units::{DURATION_HELP, on_or_off};
pub use warnings::Warning;

use read::{Context, KeyDoc, Table};

use crate::execute::http::shape::Targets;

/// What `eclusa init` writes: short, commented, and valid as it stands.
pub const INIT: &str = include_str!("init.toml");

/// More is not a configuration.
const MAX_FILE_BYTES: usize = 8 << 20;

impl Config {
    /// Reads the file at `path`; `env` gives the value of a variable.
    pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let help = match error.kind() {
                std::io::ErrorKind::NotFound => "`eclusa init` writes one to begin with",
                std::io::ErrorKind::InvalidData => "save it as UTF-8",
                _ => "",
            };
            ConfigErrors::unreadable(&name, &format!("cannot be read: {error}"), help)
        })?;
        Self::parse(&name, &text, env)
    }

    /// Reads `text`, the contents of the file `name`: files that it mentions are relative to the folder of that.
    pub fn parse(name: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        if text.len() > MAX_FILE_BYTES {
            return Err(ConfigErrors::unreadable(name, "is too large", "it may have at most 8 MiB"));
        }
        let (document, syntax) = DeTable::parse_recoverable(text);
        let ctx = Context::new(name, text, env);
        let mut root = Table::root(&ctx, document.get_ref());
        let config = config(&mut root);
        root.close();
        let (mut mistakes, mut secrets) = ctx.finish();
        if !syntax.is_empty() {
            // What was read from broken text says little; but most of its secrets are known now.
            mistakes = syntax.iter().map(error::bad_syntax).collect();
            secrets.extend(
                mistakes.iter().flat_map(|mistake| error::possible_secrets(text, mistake.span.start)),
            );
        }
        match config {
            Some(config) if mistakes.is_empty() => Ok(config),
            _ => Err(ConfigErrors::new(name, text, mistakes, &secrets)),
        }
    }
}

/// The whole file; `None` only once something wrong was noted.
fn config(t: &mut Table<'_>) -> Option<Config> {
    let (lane_names, upstream_names) = (t.names_under("lanes"), t.names_under("upstreams"));
    t.context().add_public_names(&lane_names);
    t.context().add_public_names(&upstream_names);
    let has_keys = t.lists("auth", "keys");
    let server = t.section("server", "How requests come in.", |t| server::server(t, has_keys));
    let store = t.section("store", "Where the state lives.", server::store);
    let workers = t.section("workers", "How jobs are run.", server::workers);
    let log = t.section("log", "How the log is written.", server::log);
    let traces = t.table("traces", "Where spans of requests and jobs are sent.", traces::traces).flatten();
    let keys = t.section("auth", "Who may come in.", |t| {
        let doc = "A key that lets its holder in, sent as `Authorization: Bearer`. Without any, Eclusa listens on \
                   loopback only.";
        let keys = t.tables("keys", doc, |t| server::key(t, &lane_names));
        server::check_keys_differ(t, &keys);
        keys
    });
    let callbacks = t.table(
        "callbacks",
        "Whom the ends of jobs may be told to: `callbackUrl` of a job.",
        callbacks::callbacks,
    );
    let callbacks = callbacks.flatten();
    let alerts = t.section(
        "alerts",
        "When somebody must hear of the state: `GET /v1/alerts`, `eclusa alerts`, and a webhook.",
        alerts::alerts,
    );
    let uses = mail::Uses::default();
    let lanes =
        t.named("lanes", "A queue with its rules.", |name, t| lanes::lane(name, t, &upstream_names, &uses));
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
    let (mut lanes, mut lane_specs): (BTreeMap<_, _>, Vec<_>) = split_specs(lanes);
    let (upstreams, upstream_specs): (_, Vec<Vec<_>>) = split_specs(upstreams);
    uses.check(t.context(), &upstreams);
    let mut upstream_specs = upstream_specs.concat();
    let targets = Targets { upstreams: &upstreams, public_url: server.public_url.as_ref() };
    let schedules = t.named("schedules", "A job that is enqueued again and again.", |_, t| {
        schedules::schedule(t, &lanes, &lane_names, targets)
    });
    if callbacks.is_some() || alerts.notifies() {
        let (name, own, lane, upstream) = callbacks::lane()?;
        lanes.insert(name, Arc::new(own));
        lane_specs.push(lane);
        upstream_specs.push(upstream);
    }
    // Names that clash or are unknown were noted where they stand.
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

/// Every key there is, as the readers tell it when they are given nothing to read.
fn describe() -> Vec<KeyDoc> {
    let (ctx, nothing) = (Context::describing(), DeTable::new());
    let mut root = Table::root(&ctx, &nothing);
    config(&mut root);
    root.close()
}

/// What the program keeps, by name, and what goes to the engine.
fn split_specs<N: Ord, A, B>(read: Vec<(N, (A, B))>) -> (std::collections::BTreeMap<N, A>, Vec<B>) {
    read.into_iter().map(|(name, (own, spec))| ((name, own), spec)).unzip()
}
