//! `[upstreams.NAME] reconcile`: where an upstream tells its own count of balances.

use std::time::Duration;

use eclusa_core::Span;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};

use super::policies::{Policy, ScopeSource};
use super::read::{FromText, Table, Wrong};
use super::types::StateFormat;
use super::units::{PositiveSpan, duration};
use super::upstreams::headers;

/// Where and how often an upstream is asked for balances.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconcile {
    /// Below the upstream's address.
    pub path: StatePath,
    /// From the end of one question to the next, over all processes.
    pub every: Duration,
    /// Sent with the question.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// What the answer looks like.
    pub format: StateFormat,
}

/// A path with perhaps a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePath {
    /// Starts with `/`.
    pub path: String,
    /// Without the `?`.
    pub query: Option<String>,
}

impl FromText for StatePath {
    const WHAT: &'static str = "a path";
    const HELP: &'static str = "write it like `/policies/`, below the upstream's address";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let leaves = |path: &str| path.split('/').any(|part| matches!(part, "." | ".."));
        let parsed = text.parse::<PathAndQuery>().ok().filter(|_| text.starts_with('/'));
        match parsed {
            Some(parsed) if !text.contains('#') && !text.contains("//") && !leaves(parsed.path()) => {
                Ok(Self { path: parsed.path().to_owned(), query: parsed.query().map(ToOwned::to_owned) })
            }
            _ => Err(Wrong::new("is not a path", Self::HELP)),
        }
    }
}

/// Reads it. Without a policy that has one bucket for all, there is nothing to compare.
pub(super) fn reconcile(t: &mut Table<'_>, policies: &[Policy], shared_gates: bool) -> Option<Reconcile> {
    let doc = "Asks the upstream for its own count of balances and corrects those of policies with the scope `upstream`. The \
               question goes through the upstream's gates and policies like any call; of all processes one asks.";
    let read = t.table("reconcile", doc, |t| {
        let path: Option<StatePath> =
            t.need("path", "\"/policies/\"", "Where it tells them, below its address; asked with `GET`.");
        let every = t.or(
            "every",
            PositiveSpan(Span::from_secs(30)),
            "How long after one answer it is asked again; later while its gates or policies do not allow it.",
        );
        let headers = headers(t, "Sent with the question, besides the upstream's own `headers`.");
        let format: Option<StateFormat> = t.need(
            "format",
            "\"dict-xml\"",
            "What the answer looks like: `dict-xml` (`ListPoliciesResponse` of the DICT) or `json` (`GET /v1/policies` of an \
             Eclusa).",
        );
        Some(Reconcile { path: path?, every: duration(every.0), headers, format: format? })
    });
    if t.has("reconcile") && !policies.iter().any(|policy| policy.scope == ScopeSource::Upstream) {
        let help = "add `[[upstreams.NAME.policies]]` without `scope`, or remove it";
        t.misplaced("reconcile", "has nothing to compare: no policy has one bucket for all", help);
    }
    if t.has("reconcile") && !shared_gates {
        let help = "remove `shared_gates = false`, or `reconcile`";
        t.misplaced("reconcile", "needs gates that processes share (`store.shared_gates`)", help);
    }
    read.flatten()
}
