//! `[alerts]`: which conditions fire an alert, and where alerts are sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use eclusa_core::{AlertLimits, DeadLetterRate, Span};
use http::Uri;
use http::uri::Scheme;
use toml::de::DeValue;

use super::callbacks::signing_secret;
use super::read::{FromText, RawValue, Show, Table, Value, ValueKind, Wrong};
use super::types::Secret;
use super::units::{Fraction, PositiveSpan};

const URL: &str = "write it like \"https://ops.example.com/hook\"";
const MEMORY: &str = "write two shares, such as `[0.8, 0.9]`, or `false`";

/// Which conditions fire an alert, and where alerts are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    /// The conditions that the store evaluates.
    pub limits: AlertLimits,
    /// Shares of `maxmemory` that Redis may use before a warning and before a critical alert, in millionths.
    pub redis_memory: Option<[u64; 2]>,
    /// Whether an alert fires when Redis has no append-only file.
    pub redis_aof_off: bool,
    /// Whether an alert fires when Redis may evict keys.
    pub redis_eviction: bool,
    /// The operators' webhook.
    pub webhook: Option<AlertWebhook>,
    /// Webhooks of tenants, for their own alerts.
    pub tenants: BTreeMap<Arc<str>, AlertWebhook>,
}

impl Alerts {
    /// Whether anybody is notified.
    pub(super) fn notifies(&self) -> bool {
        self.webhook.is_some() || !self.tenants.is_empty()
    }
}

/// A webhook that receives alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertWebhook {
    /// The URL. The config is trusted, so the address may be private.
    pub url: WebhookUrl,
    /// Signs the messages.
    pub secret: Secret,
}

/// A URL that may contain a token.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(pub Uri);

impl std::fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WebhookUrl({})", self.0.host().unwrap_or_default())
    }
}

impl FromText for WebhookUrl {
    const WHAT: &'static str = "an address";
    const SECRET: bool = true;
    const HELP: &'static str = URL;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let wrong = |problem| Wrong { hide: true, ..Wrong::new(problem, URL) };
        let uri: Uri = text.parse().map_err(|_| wrong("is not an address"))?;
        let known = uri.scheme().is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        match uri.authority() {
            Some(authority) if authority.as_str().contains('@') => {
                Err(wrong("must not contain a user: messages are signed instead"))
            }
            Some(authority) if known && !authority.host().is_empty() => Ok(Self(uri)),
            _ => Err(wrong("is not an `http://` or `https://` address")),
        }
    }
}

/// `false`, or a value.
struct OrOff<T>(Option<T>);

impl<T: Value> Value for OrOff<T> {
    fn kind() -> ValueKind {
        ValueKind::Either(Box::new(T::kind()), Box::new(ValueKind::Off))
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        match raw.value() {
            DeValue::Boolean(false) => Some(Self(None)),
            _ => T::read(raw).map(|value| Self(Some(value))),
        }
    }
}

impl<T: Show> Show for OrOff<T> {
    fn show(&self) -> String {
        self.0.as_ref().map_or_else(|| "false".to_owned(), Show::show)
    }
}

/// Shares of Redis's memory.
struct Shares(Vec<Fraction>);

impl Value for Shares {
    fn kind() -> ValueKind {
        Vec::<Fraction>::kind()
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        Value::read(raw).map(Self)
    }
}

impl Show for Shares {
    fn show(&self) -> String {
        format!("[{}]", self.0.iter().map(Show::show).collect::<Vec<_>>().join(", "))
    }
}

pub(super) fn alerts(t: &mut Table<'_>) -> Alerts {
    let dead_letters = t.or(
        "dead_letters",
        OrOff(Some(100)),
        "An alert fires when a lane has more than this many dead letters; `false` disables it.",
    );
    let dead_letter_rate = t.switch(
        "dead_letter_rate",
        "An alert fires when more than this share of a lane's jobs become dead letters; `false` disables it.",
        dead_letter_rate,
    );
    let tenant_dead_letters = t.or(
        "tenant_dead_letters",
        OrOff(Some(50)),
        "An alert fires when a tenant has more than this many dead letters in a lane; `false` disables it.",
    );
    let redis_memory = redis_memory(t);
    let oldest_wait = t.or(
        "oldest_wait",
        OrOff(Some(PositiveSpan(Span::from_secs(300)))),
        "An alert fires when a job has waited longer than this in its line; `false` disables it.",
    );
    let mut flag = |key, doc| t.or(key, true, doc);
    let breaker_open = flag("breaker_open", "Whether an alert fires when a breaker opens.");
    let redis_rejected_connections = flag(
        "redis_rejected_connections",
        "Whether an alert fires when Redis refused connections in the last five minutes.",
    );
    let redis_aof_off = flag("redis_aof_off", "Whether an alert fires when Redis keeps no append-only file.");
    let redis_eviction =
        flag("redis_eviction", "Whether an alert fires when Redis evicts keys to free memory.");
    let store_lost_data =
        flag("store_lost_data", "Whether an alert fires, for an hour, when Redis lost acknowledged data.");
    let hold = t.or("for", Span::from_secs(10), "How long a condition must hold before its alert fires.");
    let clear = t.or(
        "keep_firing_for",
        Span::from_secs(30),
        "How long a condition must be gone before its alert resolves.",
    );
    let doc = "A webhook that alerts are posted to, signed as Standard Webhooks. Without it, alerts are only displayed.";
    let webhook = t.table("webhook", doc, webhook_of).flatten();
    let doc = "Webhooks by tenant name, each for the tenant's own `tenant_dead_letters` alerts.";
    let tenants = t.keyed("tenants", doc, webhook_of);
    let limits = AlertLimits {
        dead_letters: dead_letters.0,
        tenant_dead_letters: tenant_dead_letters.0,
        dead_letter_rate,
        oldest_wait: oldest_wait.0.map(|span| span.0),
        breaker_open,
        redis_rejected_connections,
        store_lost_data,
        hold,
        clear,
    };
    Alerts {
        limits,
        redis_memory,
        redis_aof_off,
        redis_eviction,
        webhook,
        tenants: tenants.into_iter().map(|(name, webhook)| (name.into(), webhook)).collect(),
    }
}

fn redis_memory(t: &mut Table<'_>) -> Option<[u64; 2]> {
    let shares = t.or(
        "redis_memory",
        OrOff(Some(Shares([800_000, 900_000].map(|micros| Fraction { micros }).into()))),
        "Shares of its `maxmemory` that Redis may use before a warning and before a critical alert; `false` disables \
         it.",
    );
    match shares.0?.0[..] {
        [Fraction { micros: warning }, Fraction { micros: critical }] if warning < critical => {
            Some([warning, critical])
        }
        _ => {
            t.wrong("redis_memory", "must be two shares, the lower first", MEMORY);
            None
        }
    }
}

fn dead_letter_rate(t: &mut Table<'_>) -> DeadLetterRate {
    let share = t.or("share", Fraction { micros: 20_000 }, "The share.");
    let over = t.or("over", PositiveSpan(Span::from_secs(3600)), "The period whose finished jobs count.");
    let min = t.or("min", 50, "The alert needs at least this many finished jobs.");
    DeadLetterRate { share_micros: share.micros, over: over.0, min }
}

fn webhook_of(t: &mut Table<'_>) -> Option<AlertWebhook> {
    let url: Option<WebhookUrl> =
        t.need("url", "\"https://ops.example.com/hook\"", "The URL. The address may be private.");
    let secret =
        signing_secret(t, "Signs messages: `whsec_` and base64, or any text of at least 16 characters.");
    Some(AlertWebhook { url: url?, secret: secret? })
}
