//! `[upstreams.NAME] keys`: several accounts at one upstream, each with its own limits.

use eclusa_core::gate::GateSpecs;
use eclusa_core::{Name, UpstreamSpec};
use http::{HeaderName, HeaderValue};

use super::gates::gates;
use super::read::{At, FromText, Table};
use super::request::{Placeholder, TextPart, TextTemplate};
use super::server::secret_text;
use super::types::Secret;
use super::upstream_types::UpstreamKeyConfig;
use super::upstreams::{cooldown, header_entries};

/// The most keys of an upstream; each call chooses one by comparing all of them.
const MAX_KEYS: usize = 100;

/// A key with its limits.
pub(super) struct ReadUpstreamKey {
    name: At<Name>,
    secret: Secret,
    gates: GateSpecs,
}

/// Reads the keys; they are optional.
pub(super) fn keys(t: &mut Table<'_>) -> Vec<ReadUpstreamKey> {
    let doc = "Several accounts at this upstream, each with its own limits. A call uses the available key with the fewest calls \
               in flight; `{key}` in `headers` or `request` is replaced by it. The upstream's \
               own limits apply to all keys together; its `cooldown` applies to each key.";
    let keys = t.tables("keys", doc, key);
    if t.has("keys") && keys.is_empty() {
        t.wrong("keys", "is empty", "add `{ name = \"a\", key = \"${TOKEN}\" }`, or remove it");
    }
    let keys: Vec<ReadUpstreamKey> = keys.into_iter().flatten().collect();
    if keys.len() > MAX_KEYS {
        t.wrong("keys", &format!("are more than {MAX_KEYS}"), "remove some, or split this upstream in two");
    }
    for (at, key) in keys.iter().enumerate() {
        if keys[..at].iter().any(|before| before.name.value == key.name.value) {
            t.context().wrong(
                &key.name.place,
                "is also the name of another key",
                "give each key a different name",
            );
        }
    }
    keys
}

fn key(t: &mut Table<'_>) -> Option<ReadUpstreamKey> {
    let name: Option<At<Name>> =
        t.need("name", "\"a\"", "The name under which its state is shown; not the key itself.");
    let text: Option<Secret> = t.get("key", "The key; prefer `${VAR}` to the plain text.");
    let file = t.file("key_file", "A file that contains the key, instead of `key`.");
    let mut gates = gates(t, "max_concurrent", "The most concurrent calls with this key, over all workers.");
    gates.cooldown = cooldown(t, "Pauses of this key, instead of the upstream's `cooldown`.");
    let (at, secret) = secret_text(t, ("key", "key_file"), text, file)?;
    if secret.reveal().is_empty() {
        t.wrong(at, "is empty", "write the key that the upstream gave you");
        return None;
    }
    Some(ReadUpstreamKey { name: name?, secret, gates })
}

/// The upstream's `headers`.
pub(super) struct UpstreamHeaders {
    /// Headers that all calls share.
    pub(super) shared: Vec<(HeaderName, HeaderValue)>,
    /// The keys, each with the headers that contain `{key}`.
    pub(super) keys: Vec<UpstreamKeyConfig>,
    /// Whether a header contains `{key}`, even an invalid one.
    pub(super) hold_key: bool,
}

/// Reads `headers`.
pub(super) fn headers(t: &mut Table<'_>, doc: &'static str, keys: &[ReadUpstreamKey]) -> UpstreamHeaders {
    let (mut shared, mut hold_key) = (Vec::new(), false);
    let plain = |key: &ReadUpstreamKey| UpstreamKeyConfig {
        name: key.name.value.clone(),
        secret: key.secret.clone(),
        headers: Vec::new(),
    };
    let mut with_key: Vec<UpstreamKeyConfig> = keys.iter().map(plain).collect();
    for (name, At { value: text, place }) in header_entries::<Secret>(t, doc) {
        let wrong = |problem: &str, help: &str| t.context().wrong(&place, problem, help);
        let unsendable = || wrong("cannot be sent in a header", "remove line breaks and control characters");
        let holds_key = text.reveal().contains("{key}");
        hold_key |= holds_key;
        if holds_key && !t.has("keys") {
            wrong(
                "uses `{key}`, but the upstream has no `keys`",
                "add `keys = [{ name = \"a\", key = \"${TOKEN}\" }]`",
            );
        } else if !holds_key {
            match sensitive(text.reveal()) {
                Some(value) => shared.push((name, value)),
                None => unsendable(),
            }
        } else {
            match TextTemplate::from_text(text.reveal()) {
                Ok(template) if template.placeholders().all(|used| *used == Placeholder::Key) => {
                    for key in &mut with_key {
                        match sensitive(&rendered(&template, key.secret.reveal())) {
                            Some(value) => key.headers.push((name.clone(), value)),
                            None => unsendable(),
                        }
                    }
                }
                Ok(_) => wrong("may use only the placeholder `{key}`", "use it in `request.headers`"),
                Err(bad) => {
                    wrong(&bad.problem, "put `{key}` where the key belongs; `{{` is a literal brace");
                }
            }
        }
    }
    UpstreamHeaders { shared, keys: with_key, hold_key }
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn rendered(template: &TextTemplate, key: &str) -> String {
    let part = |part: &TextPart| match part {
        TextPart::Text(text) => text.clone(),
        TextPart::Value(_) => key.to_owned(),
    };
    template.parts.iter().map(part).collect()
}

/// The engine's rules for an upstream and its keys. Each key has its own cooldown, so that a throttled key does not block
/// the others.
pub(super) fn specs(name: &Name, mut own: GateSpecs, keys: Vec<ReadUpstreamKey>) -> Vec<UpstreamSpec> {
    let ladder = if keys.is_empty() { None } else { own.cooldown.take() };
    let mut specs = vec![UpstreamSpec::new(name.clone(), own)];
    specs.extend(keys.into_iter().map(|key| {
        let mut gates = key.gates;
        gates.cooldown = gates.cooldown.or_else(|| ladder.clone());
        UpstreamSpec::new(name.with_key(&key.name.value), gates)
    }));
    specs
}
