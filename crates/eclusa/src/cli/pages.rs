//! Lists that the server gives page by page.

use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};

use super::Exit;
use super::client::{Client, with_query};
use super::exit::note;

/// How many things a list shows unless told otherwise.
pub(super) const SHOWN: usize = 100;

/// Reads `--limit`: to show nothing is a mistake.
pub(super) fn limit() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// A list, and whether the server may have more of it.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) items: Vec<Value>,
    more: bool,
}

impl Pages {
    /// Up to `limit` of what the server lists under `member` at `path`.
    pub(super) fn read(
        client: &Client,
        path: &str,
        filter: &[(&str, Option<&str>)],
        member: &str,
        limit: usize,
    ) -> Result<Self, Exit> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut parameters = filter.to_vec();
            parameters.push(("cursor", cursor.as_deref()));
            let mut page = client.get(&with_query(path, &parameters))?;
            if let Some(Value::Array(found)) = page.get_mut(member).map(Value::take) {
                items.extend(found);
            }
            let next = page.get("cursor").and_then(as_text);
            // A place that does not move on would be asked for without end.
            let over = next.is_none() || next == cursor;
            if over || items.len() >= limit {
                let more = items.len() > limit || !over;
                items.truncate(limit);
                return Ok(Self { items, more });
            }
            cursor = next;
        }
    }

    /// Drops all but the first `limit`.
    pub(super) fn keep(&mut self, limit: usize) {
        self.more |= self.items.len() > limit;
        self.items.truncate(limit);
    }

    /// The whole list in the form in which the server gives a page.
    pub(super) fn whole(&self, member: &str) -> Value {
        json!({ member: self.items })
    }

    /// What the list itself does not say.
    pub(super) fn rest(&self, things: &str) -> Option<String> {
        if self.more {
            Some(format!("There may be more {things}: raise --limit"))
        } else {
            self.items.is_empty().then(|| format!("No {things}"))
        }
    }

    /// Says that.
    pub(super) fn note_rest(&self, things: &str) {
        self.rest(things).iter().for_each(|said| note(said));
    }
}

/// A cursor is a number for some lists and a text for others.
fn as_text(cursor: &Value) -> Option<String> {
    match cursor {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
