//! What retries did to failures, by code.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::vocabulary::{CodeClass, CodeClassifiedBy};

/// The codes that calls to an upstream failed with.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamCodes {
    /// The upstream.
    pub upstream: String,
    /// Most frequent first; at most 64.
    pub codes: Vec<CodeOutcome>,
    /// The configured list with the proposed codes added.
    pub retryable: Vec<String>,
    /// The configured list with the proposed codes added.
    pub permanent: Vec<String>,
    /// Both lists as TOML for the config; absent while nothing is proposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toml: Option<String>,
}

/// One code.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CodeOutcome {
    /// The status, or a word for a failure without one.
    pub code: String,
    /// How it is classified now: `retryable` or `permanent`.
    #[schema(value_type = CodeClass)]
    pub class: String,
    /// The source of the classification: `config`, `built_in`, or `default` for a general rule.
    #[schema(value_type = CodeClassifiedBy)]
    pub classified_by: String,
    /// Calls that failed with it.
    pub seen: u64,
    /// Failures followed by another call for the same job, or by a replay of its dead letter.
    pub retried: u64,
    /// Retries that succeeded.
    pub cured: u64,
    /// Retries that failed.
    pub failed_again: u64,
    /// Failures without a retry, or without one yet.
    pub not_retried: u64,
    /// `cured / retried`; absent without retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure_share: Option<f64>,
    /// The proposed classification: `retryable` or `permanent`. Only for codes classified by `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<CodeClass>)]
    pub proposed: Option<String>,
}
