//! `[lanes.NAME.cache]`: which answers are kept, and what they are called.

use std::num::NonZeroU64;

use eclusa_core::{CacheSpec, Span};

use super::policies::MethodText;
use super::read::Table;
use super::types::Template;
use super::units::{PositiveSpan, Size};

const MAX_CACHED: NonZeroU64 = NonZeroU64::new(10_000).unwrap();
const MAX_CACHED_BYTES: Size = Size(64 << 20);

/// What makes two jobs ask for the same thing, so that one answer serves both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheKey {
    /// The key as the config writes it.
    pub template: Template,
    /// What else tells answers apart.
    pub scope: KeyScope,
    /// The methods whose answers are kept.
    pub methods: Vec<String>,
}

/// What tells answers apart besides the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyScope {
    /// The method and the path of the request.
    Request,
    /// Nothing: all requests of the lane share their keys.
    All,
}

pub(super) fn cache(t: &mut Table<'_>) -> Option<(CacheKey, CacheSpec)> {
    let template: Option<Template> = t.need(
        "key",
        "\"{query.ID}\"",
        "What makes two jobs ask for the same thing: a text with `{query.NAME}`, `{header.NAME}`, `{body./POINTER}`, \
         `{params./POINTER}`, `{tenant}`, `{method}` or `{path}` in it.",
    );
    let scope = t.or(
        "key_scope",
        KeyScope::Request,
        "`request`: the method and the path of a request are part of its key. `all`: they are not, so every path and method \
         that the lane accepts must give the same answer for the same key; restrict them with `accept`.",
    );
    let methods: Option<Vec<MethodText>> = t.get(
        "methods",
        "Methods whose answers are kept; only `GET` if not given. Answers to `HEAD` are never kept.",
    );
    let ttl: Option<PositiveSpan> = t.need("ttl", "\"60s\"", "How long an answer is as good as a new one.");
    let stale_if_error =
        t.or("stale_if_error", Span::ZERO, "How long after that it still serves when the upstream fails.");
    let max = t.or("max", MAX_CACHED, "Answers kept at most.").get();
    let max_bytes = t.or("max_bytes", MAX_CACHED_BYTES, "Bytes of answers kept at most.").0;
    let rule = CacheSpec::new(ttl?.0, stale_if_error).and_then(|rule| rule.bounded(max, max_bytes));
    let methods = match methods {
        Some(methods) => methods.into_iter().map(|method| method.0).collect(),
        None => vec!["GET".to_owned()],
    };
    Some((CacheKey { template: template?, scope, methods }, t.rule(rule)?))
}
