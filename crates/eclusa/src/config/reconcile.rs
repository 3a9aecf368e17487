//! `[upstreams.NAME] reconcile`: correcting balances with the upstream's own numbers.

use std::time::Duration;

use eclusa_core::Span;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};

use super::policies::{Policy, ScopeSource};
use super::read::{FromText, Table, Wrong};
use super::units::{PositiveSpan, duration};
use super::upstream_types::StateFormat;
use super::upstreams::headers;

/// Where and how often an upstream is asked for its balances.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconcile {
    /// The path below the upstream's URL.
    pub path: StatePath,
    /// From the end of one request to the next, over all processes.
    pub every: Duration,
    /// Sent with the request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The format of the response.
    pub format: StateFormat,
}

/// A path with an optional query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePath {
    /// Starts with `/`.
    pub path: String,
    /// Without the `?`.
    pub query: Option<String>,
}

impl FromText for StatePath {
    const WHAT: &'static str = "a path";
    const HELP: &'static str = "write a path below the upstream's `url`, such as `/policies/`";

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

/// Reads the table. It needs a policy with the scope `upstream`; otherwise there is nothing to compare.
pub(super) fn reconcile(t: &mut Table<'_>, policies: &[Policy], shared_gates: bool) -> Option<Reconcile> {
    let doc = "Asks the upstream for its own balances, and corrects those of policies with the scope `upstream`. The \
               request passes the upstream's gates and policies like any call. Only one process asks.";
    let read = t.table("reconcile", doc, |t| {
        let path: Option<StatePath> =
            t.need("path", "\"/policies/\"", "The path of the balances below the upstream's `url`; requested with `GET`.");
        let every = t.or(
            "every",
            PositiveSpan(Span::from_secs(30)),
            "The interval between a response and the next request; longer while gates or policies do not admit the request.",
        );
        let headers = headers(t, "Sent with the request, in addition to the upstream's `headers`.");
        let format: Option<StateFormat> = t.need(
            "format",
            "\"dict-xml\"",
            "The format of the response: `dict-xml` (`ListPoliciesResponse` of the DICT) or `json` (`GET /v1/policies` of \
             Eclusa).",
        );
        Some(Reconcile { path: path?, every: duration(every.0), headers, format: format? })
    });
    if t.has("reconcile") && !policies.iter().any(|policy| policy.scope == ScopeSource::Upstream) {
        let help = "add `[[upstreams.NAME.policies]]` without `scope`, or remove it";
        t.misplaced("reconcile", "has nothing to compare: no policy has the scope `upstream`", help);
    }
    if t.has("reconcile") && !shared_gates {
        let help = "remove `shared_gates = false`, or `reconcile`";
        t.misplaced("reconcile", "needs shared gates (`store.shared_gates`)", help);
    }
    read.flatten()
}
