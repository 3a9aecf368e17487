//! `[upstreams.NAME] keys`: several accounts at one upstream, each with limits of its own.

use eclusa_core::gate::GateSpecs;
use eclusa_core::{Name, UpstreamSpec};
use http::{HeaderName, HeaderValue};

use super::gates::gates;
use super::read::{At, FromText, Table};
use super::request::{Placeholder, TextPart, TextTemplate};
use super::server::secret_text;
use super::types::{Secret, UpstreamKey};
use super::upstreams::{cooldown, header_entries};

/// One is chosen for every call by looking at all of them.
const MAX_KEYS: usize = 100;

/// A key with its limits.
pub(super) struct ReadUpstreamKey {
    name: At<Name>,
    secret: Secret,
    gates: GateSpecs,
}

/// Reads them; none is wrong where there are none.
pub(super) fn keys(t: &mut Table<'_>) -> Vec<ReadUpstreamKey> {
    let doc = "Several accounts at this upstream, each with limits of its own. A call is made with the one that has the fewest calls \
               under way of those that may be used now; its text stands where `headers` or `request` say `{key}`. The upstream's \
               own limits apply to all together; its `cooldown` applies to each.";
    let keys = t.tables("keys", doc, key);
    if t.has("keys") && keys.is_empty() {
        t.wrong("keys", "are none", "add `{ name = \"a\", key = \"${TOKEN}\" }`, or remove it");
    }
    let keys: Vec<ReadUpstreamKey> = keys.into_iter().flatten().collect();
    if keys.len() > MAX_KEYS {
        t.wrong(
            "keys",
            &format!("are more than {MAX_KEYS}"),
            "remove some, or make two upstreams of this one",
        );
    }
    for (at, key) in keys.iter().enumerate() {
        if keys[..at].iter().any(|before| before.name.value == key.name.value) {
            t.context().wrong(
                &key.name.place,
                "is the name of another key too",
                "give each key a name of its own",
            );
        }
    }
    keys
}

fn key(t: &mut Table<'_>) -> Option<ReadUpstreamKey> {
    let name: Option<At<Name>> =
        t.need("name", "\"a\"", "What it is called where its state is shown; not its text.");
    let text: Option<Secret> = t.get("key", "The key itself; better `${VAR}` than the text.");
    let file = t.file("key_file", "A file that holds the key, instead of `key`.");
    let mut gates = gates(t, "max_concurrent", "Calls with this key at the same time, over all workers.");
    gates.cooldown = cooldown(t, "Rests of this key, in place of the upstream's `cooldown`.");
    let (at, secret) = secret_text(t, ("key", "key_file"), text, file)?;
    if secret.reveal().is_empty() {
        t.wrong(at, "is empty", "write the key that the upstream gave you");
        return None;
    }
    Some(ReadUpstreamKey { name: name?, secret, gates })
}

/// The upstream's own `headers`.
pub(super) struct UpstreamHeaders {
    /// Those that all calls share.
    pub(super) shared: Vec<(HeaderName, HeaderValue)>,
    /// Each key with those that hold `{key}`.
    pub(super) keys: Vec<UpstreamKey>,
    /// Whether one holds `{key}`, if only one that is wrong.
    pub(super) hold_key: bool,
}

/// Reads them.
pub(super) fn headers(t: &mut Table<'_>, doc: &'static str, keys: &[ReadUpstreamKey]) -> UpstreamHeaders {
    let (mut shared, mut hold_key) = (Vec::new(), false);
    let plain = |key: &ReadUpstreamKey| UpstreamKey {
        name: key.name.value.clone(),
        secret: key.secret.clone(),
        headers: Vec::new(),
    };
    let mut with_key: Vec<UpstreamKey> = keys.iter().map(plain).collect();
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
                Ok(_) => wrong("may hold no placeholder but `{key}`", "put it into `headers` of `request`"),
                Err(bad) => {
                    wrong(&bad.problem, "write `{key}` where the key belongs; `{{` stands for a brace");
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

/// The rules of an upstream and of its keys, for the engine. Keys rest one by one, so that one which is throttled does not
/// keep the others from being used.
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
