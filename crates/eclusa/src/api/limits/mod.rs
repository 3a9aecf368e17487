//! `/v1/limits`: permits for workers that make their own calls, under the shared gates.

mod ask;
pub(super) mod lease;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use eclusa_core::{Clock, Name};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::auth::Caller;
use super::extract::{Body, NoQuery, Path};
use super::model::HttpRequest;
use super::model::job_request::span;
use super::model::object;
use super::problem::Problem;
use super::state::Api;
use super::store_problem::unavailable;
use super::upstreams::callable;
use crate::config::{ScopeSource, UpstreamConfig};
use crate::decide::Decider;
use crate::ids::Ids;
use crate::intake::{DEFAULT_TENANT, Fault};
use crate::life::Life;
use crate::policy::{Scopes, Subject, Takes, amount};
use crate::request::Request;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::Metrics;
use crate::turns::Turns;

/// State needed by these calls.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct LimitsState {
    #[from_request(via(State))]
    decider: Arc<Decider>,
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    ids: Arc<Ids>,
    #[from_request(via(State))]
    scopes: Arc<Scopes>,
    #[from_request(via(State))]
    turns: Arc<Turns>,
    #[from_request(via(State))]
    life: Arc<Life>,
    #[from_request(via(State))]
    metrics: Arc<Metrics>,
    #[from_request(via(State))]
    clock: Arc<dyn Clock>,
}

/// The permit that a worker requests.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(example = json!({ "wait": "5s", "request": { "method": "GET", "path": "/entries/1" } }))]
#[serde(deny_unknown_fields)]
pub(super) struct AcquireRequest {
    /// How long to wait for the permit, such as `"5s"`; limited by `server.max_wait`. Without it, the response is
    /// immediate.
    #[schema(value_type = Option<String>, example = "5s")]
    #[serde(default)]
    wait: Option<Value>,
    /// The call to be made, which decides what policies apply. Without it, only policies that match every request
    /// apply.
    #[serde(default, deserialize_with = "object::optional")]
    request: Option<HttpRequest>,
    /// The scope value, for policies that would read it from the request.
    #[serde(default)]
    scope: Option<String>,
    /// Tokens to take under each policy, instead of its own `hold`.
    #[schema(value_type = Option<f64>)]
    #[serde(default)]
    hold: Option<Value>,
}

/// A permit for one call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({ "granted": true, "leaseId": "fal:01a1e20c-835f-7f54-a1de-93085b88f45f", "remaining": 9 }))]
#[serde(rename_all = "camelCase")]
pub(super) struct Acquired {
    /// Always `true`.
    granted: bool,
    /// The lease by which the call is settled. Without a settlement it expires.
    lease_id: String,
    /// The name of the upstream's key to make the call with, if the upstream has `keys`.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// What is left of the tightest limit that applies, in whole tokens or calls; `null` if none applies.
    remaining: Option<i64>,
}

/// Acquire a permit for one call to an upstream
///
/// Either all gates of the upstream admit the call, or nothing is taken. While its breaker is half open, a key whose reports do
/// not count there (see settle) gets no permit: its call would decide nothing and keep others from probing.
#[utoipa::path(post, path = "/v1/limits/{upstream}/acquire", tag = "limits", request_body = AcquireRequest,
    params(("upstream" = String, Path, description = "The upstream")),
    responses((status = 200, body = Acquired), (status = 429, description = "Not admitted now; see Retry-After")))]
pub(super) async fn acquire(
    limits: LimitsState,
    caller: Caller,
    Path(upstream): Path<String>,
    _: NoQuery,
    body: Body,
) -> Result<Json<Acquired>, Problem> {
    let upstream = callable(&limits.rules, &caller, &upstream)?;
    let asked: AcquireRequest = if body.0.is_empty() { AcquireRequest::default() } else { body.object()? };
    let wait = span("wait", asked.wait.as_ref()).map_err(|fault| Problem::invalid(&[fault]).in_body())?;
    let wait = wait.map_or(Duration::ZERO, |wait| Duration::from_millis(wait.as_millis()));
    let wait = wait.min(limits.rules.get().config.server.max_wait);
    let takes = limits.takes(&caller, &upstream, asked).await.map_err(Problem::in_body)?;
    let counts = caller.may_change_breaker(&limits.rules.get().config, upstream.as_str()).is_ok();
    let call = ask::WantedCall { upstream: &upstream, takes: &takes, counts };
    let grant = ask::grant(&limits, call, wait).await?;
    Ok(Json(grant.accept()))
}

impl LimitsState {
    /// What a call takes from scoped buckets.
    async fn takes(&self, caller: &Caller, upstream: &Name, asked: AcquireRequest) -> Result<Takes, Problem> {
        let invalid = |faults: Vec<Fault>| Problem::invalid(&faults);
        let request = asked.request.map(HttpRequest::into_request).transpose().map_err(invalid)?;
        let hold = asked.hold.as_ref().map(|hold| {
            amount(hold).ok_or_else(|| invalid(vec![Fault::new("hold", "must be a number of tokens")]))
        });
        let upstreams = &self.rules.get().config.upstreams;
        let policies = upstreams.get(upstream).into_iter().flat_map(UpstreamConfig::policies);
        let by_tenant = policies.into_iter().any(|policy| policy.scope == ScopeSource::Tenant);
        if let Some(scope) = asked.scope.as_deref().filter(|_| by_tenant) {
            caller.may_act_for(scope)?;
        }
        // Without method and path, so that no policy that requires one matches.
        let nothing = || Request {
            method: String::new(),
            path: String::new(),
            query: None,
            headers: Vec::new(),
            body: Vec::new(),
        };
        let request = request.unwrap_or_else(nothing);
        let (scope, hold) = (asked.scope.as_deref(), hold.transpose()?);
        let tenant = caller.own_tenant().unwrap_or(DEFAULT_TENANT);
        let subject = Subject { scope, hold, ..Subject::new(&request, tenant) };
        let takes = self.scopes.takes(upstreams, std::slice::from_ref(upstream), subject).await;
        takes.map_err(|error| unavailable(&error))?.map_err(invalid)
    }
}
