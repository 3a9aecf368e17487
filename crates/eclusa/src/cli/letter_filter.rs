//! Which dead letters a command is about.

use clap::Args;
use serde_json::Value;

use super::Exit;
use super::client::Client;
use super::pages::Pages;

#[derive(Debug, Clone, Args)]
pub(super) struct LetterFilter {
    /// Only of this lane
    #[arg(long)]
    lane: Option<String>,
    /// Only of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only with this code of the last failure, or of this class (5xx); `none` for dead letters without a code
    #[arg(long)]
    code: Option<String>,
    /// Only jobs given up at or after this time, or within this duration (10m)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only jobs given up at or before this time, or at least this long ago (10m)
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only jobs given up longer ago than this (7d)
    #[arg(long, value_name = "AGE", conflicts_with = "until")]
    older_than: Option<String>,
}

impl LetterFilter {
    /// Up to `limit` dead letters that match.
    pub(super) fn read(&self, client: &Client, limit: usize) -> Result<Pages, Exit> {
        Pages::read(client, "/v1/dead-letters", &self.parameters(), "deadLetters", limit)
    }

    /// The filter as query parameters.
    pub(super) fn parameters(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("lane", self.lane.as_deref()),
            ("tenant", self.tenant.as_deref()),
            ("code", self.code.as_deref()),
            ("since", self.since.as_deref()),
            ("until", self.until.as_deref().or(self.older_than.as_deref())),
        ]
    }

    /// The filter as JSON.
    pub(super) fn body(&self) -> Value {
        let given =
            self.parameters().into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        Value::Object(given.collect())
    }

    /// Whether any filter is set.
    pub(super) fn narrows(&self) -> bool {
        self.parameters().iter().any(|(_, value)| value.is_some())
    }
}
