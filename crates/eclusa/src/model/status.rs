//! The state of everything in a sentence.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::vocabulary::Severity;

/// The state of everything in a sentence, and what needs attention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "code": "held",
    "args": { "lane": "score", "reason": "window", "upstream": "bureau", "limit": 60, "waiting": 22,
        "opensAt": "2026-11-16T14:03:02.000Z", "lastStart": "2026-11-16T14:03:24.000Z" },
    "text": "`bureau` has used its 60 requests for this minute: 22 jobs wait, the last starts at 14:03:24 UTC.",
    "also": [{ "code": "rest_flows", "args": {}, "text": "Everything else flows." }],
    "needs": [],
}))]
pub struct ServiceStatus {
    /// The sentence.
    #[serde(flatten)]
    pub remark: Remark,
    /// What else can be said.
    pub also: Vec<Remark>,
    /// What a person should look at, most serious first.
    pub needs: Vec<Need>,
}

/// A sentence as a code with arguments, for translation, and in English.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Remark {
    /// What is said.
    pub code: String,
    /// The names, numbers and times of the sentence.
    #[schema(value_type = Object)]
    pub args: Value,
    /// The sentence in English.
    pub text: String,
}

/// Something that a person should look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Need {
    /// What it is.
    #[serde(flatten)]
    pub remark: Remark,
    /// How serious it is.
    #[schema(value_type = Severity)]
    pub severity: String,
    /// Since when, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    pub since: Option<String>,
    /// The page of the dashboard that shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub link: Option<String>,
}
