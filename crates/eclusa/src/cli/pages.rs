//! Lists that the server returns page by page.

use serde_json::{Value, json};

use super::Exit;
use super::client::{Client, with_query};
use super::exit::note;

/// The default of `--limit`.
pub(super) const SHOWN: usize = 100;

/// Parses `--limit`, at least 1.
pub(super) fn limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|limit| *limit > 0).ok_or_else(|| "write a whole number, 1 or more".into())
}

/// A list, and whether the server may have more of it.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) items: Vec<Value>,
    more: bool,
}

impl Pages {
    /// Reads up to `limit` items that the server lists under `member` at `path`.
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
            // A cursor that does not advance would loop forever.
            let over = next.is_none() || next == cursor;
            if over || items.len() >= limit {
                let more = items.len() > limit || !over;
                items.truncate(limit);
                return Ok(Self { items, more });
            }
            cursor = next;
        }
    }

    /// Keeps only the first `limit` items.
    pub(super) fn keep(&mut self, limit: usize) {
        self.more |= self.items.len() > limit;
        self.items.truncate(limit);
    }

    /// The whole list in the server's format of a page.
    pub(super) fn whole(&self, member: &str) -> Value {
        json!({ member: self.items })
    }

    /// Says that there is more, or nothing.
    pub(super) fn rest(&self, things: &str) -> Option<String> {
        if self.more {
            Some(format!("There may be more {things}: raise --limit"))
        } else {
            self.items.is_empty().then(|| format!("No {things}"))
        }
    }

    /// Prints [`Pages::rest`] to standard error.
    pub(super) fn note_rest(&self, things: &str) {
        self.rest(things).iter().for_each(|said| note(said));
    }
}

/// A cursor is a number in some lists and a string in others.
fn as_text(cursor: &Value) -> Option<String> {
    match cursor {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
