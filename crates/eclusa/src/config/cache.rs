//! `[lanes.NAME.cache]`: which responses are cached, and under which keys.

use std::num::NonZeroU64;

use eclusa_core::{CacheSpec, Span};

use super::policies::MethodText;
use super::read::Table;
use super::types::Template;
use super::units::{PositiveSpan, Size};

const MAX_CACHED: NonZeroU64 = NonZeroU64::new(10_000).unwrap();
const MAX_CACHED_BYTES: Size = Size(64 << 20);

/// Identifies equal requests, so that one response serves all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheKey {
    /// The key template.
    pub template: Template,
    /// What is part of the key besides the template.
    pub scope: KeyScope,
    /// The methods whose responses are cached.
    pub methods: Vec<String>,
}

/// What is part of a cache key besides the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyScope {
    /// The method and the path of the request.
    Request,
    /// Nothing: all requests of the lane share keys.
    All,
}

pub(super) fn cache(t: &mut Table<'_>) -> Option<(CacheKey, CacheSpec)> {
    let template: Option<Template> = t.need(
        "key",
        "\"{query.ID}\"",
        "The cache key; jobs with the same key share a response. A template with `{query.NAME}`, `{header.NAME}`, `{body./POINTER}`, \
         `{params./POINTER}`, `{tenant}`, `{method}` or `{path}`.",
    );
    let scope = t.or(
        "key_scope",
        KeyScope::Request,
        "`request`: the method and the path of a request are part of its key. `all`: they are not, so every path and method \
         that the lane accepts must have the same response for the same key; restrict them with `accept`.",
    );
    let methods: Option<Vec<MethodText>> = t.get(
        "methods",
        "Methods whose responses are cached; only `GET` if not given. Responses to `HEAD` are never cached.",
    );
    let ttl: Option<PositiveSpan> = t.need("ttl", "\"60s\"", "How long a response is fresh.");
    let stale_if_error = t.or(
        "stale_if_error",
        Span::ZERO,
        "How long after that a stale response may be used when the upstream fails.",
    );
    let max = t.or("max", MAX_CACHED, "The most responses to keep.").get();
    let max_bytes = t.or("max_bytes", MAX_CACHED_BYTES, "The most bytes of responses to keep.").0;
    let rule = CacheSpec::new(ttl?.0, stale_if_error).and_then(|rule| rule.bounded(max, max_bytes));
    let methods = match methods {
        Some(methods) => methods.into_iter().map(|method| method.0).collect(),
        None => vec!["GET".to_owned()],
    };
    Some((CacheKey { template: template?, scope, methods }, t.rule(rule)?))
}
