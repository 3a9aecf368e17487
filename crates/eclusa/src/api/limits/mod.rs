//! `/v1/limits`: leave for workers that make their own calls, under the gates that all share.

mod ask;
pub(super) mod lease;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use eclusa_core::Clock;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::auth::Caller;
use super::extract::{Body, Path};
use super::job_request::span;
use super::problem::Problem;
use super::state::Api;
use super::upstreams::callable;
use crate::decide::Decider;
use crate::ids::Ids;
use crate::life::Life;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::Metrics;
use crate::turns::Turns;

/// What these calls need.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Limits {
    #[from_request(via(State))]
    decider: Arc<Decider>,
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    ids: Arc<Ids>,
    #[from_request(via(State))]
    turns: Arc<Turns>,
    #[from_request(via(State))]
    life: Arc<Life>,
    #[from_request(via(State))]
    metrics: Arc<Metrics>,
    #[from_request(via(State))]
    clock: Arc<dyn Clock>,
}

/// What a worker wants.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AcquireRequest {
    /// How long to wait for leave: `"5s"`, or milliseconds; as much as the server allows, if it allows less. Without it the
    /// answer comes at once.
    #[schema(value_type = Option<String>)]
    #[serde(default)]
    wait: Option<Value>,
}

/// Leave to make one call.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Acquired {
    /// `true`.
    granted: bool,
    /// Under which the call is settled. Without that it ends by itself.
    lease_id: String,
    /// Whole tokens that the upstream's bucket holds now; `null` if it has none.
    remaining: Option<i64>,
}

/// Ask for leave to make one call to an upstream
///
/// All gates of the upstream let it through, or nothing is taken.
#[utoipa::path(post, path = "/v1/limits/{upstream}/acquire", tag = "limits", request_body = AcquireRequest,
    params(("upstream" = String, Path, description = "The upstream")),
    responses((status = 200, body = Acquired), (status = 429, description = "Not now; Retry-After says when")))]
pub(super) async fn acquire(
    limits: Limits,
    caller: Caller,
    Path(upstream): Path<String>,
    body: Body,
) -> Result<Json<Acquired>, Problem> {
    let upstream = callable(&limits.rules, &caller, &upstream)?;
    let asked: AcquireRequest = if body.0.is_empty() { AcquireRequest::default() } else { body.json()? };
    let wait = span("wait", asked.wait.as_ref()).map_err(|fault| Problem::invalid(&[fault]))?;
    let wait = wait.map_or(Duration::ZERO, |wait| Duration::from_millis(wait.as_millis()));
    let wait = wait.min(limits.rules.get().config.server.max_wait);
    let grant = ask::grant(&limits, &upstream, wait).await?;
    Ok(Json(grant.accept()))
}
