//! Health and metrics: `/livez`, `/readyz`, `/v1/health`, `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use eclusa_core::{Store, StoreError, Tokens};
use http::header::{ACCEPT, CONTENT_TYPE, VARY};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::{Caller, Right};
use super::extract::NoQuery;
use super::fleet::{Fleet, FleetFault, Instance, Owner, StoreHealth};
use super::model::breaker;
use super::model::vocabulary::HealthStatus;
use super::problem::{Kind, Problem};
use super::state::Api;
use super::store_problem::unavailable;
use crate::life::Life;
use crate::peers::Peers;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::{Exposition, Metrics, Snapshot, policy_levels};

/// How long `/metrics` waits for the store.
const METRICS_WAIT: Duration = Duration::from_secs(1);

/// Check whether the process runs
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, body = String)))]
pub(super) async fn livez(_: NoQuery) -> &'static str {
    "ok\n"
}

/// Check whether the process accepts jobs
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = String), (status = 503, description = "Stopping, or the store does not answer")))]
pub(super) async fn readyz(
    State(life): State<Arc<Life>>,
    State(store): State<Arc<AnyStore>>,
    _: NoQuery,
) -> Result<&'static str, Problem> {
    if life.draining.is_cancelled() || life.stopping.is_cancelled() {
        return Err(Problem::new(Kind::Stopping, "The server is stopping"));
    }
    store.lanes().await.map_err(|error| unavailable(&error))?;
    Ok("ok\n")
}

/// State needed by `/v1/health`.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct HealthState {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    peers: Arc<Peers>,
}

/// The state of the process, the store and the gates.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Health {
    /// `ok`, or `degraded` while a breaker is open or the store does not answer.
    #[schema(value_type = HealthStatus)]
    status: &'static str,
    /// The store.
    store: StoreHealth,
    /// The process that owns the store; absent while none is known.
    owner: Option<Owner>,
    /// Processes that share the store.
    instances: Vec<Instance>,
    /// Breakers by upstream.
    circuit_breakers: BTreeMap<String, BreakerHealth>,
    /// Limits by upstream.
    rate_limiters: BTreeMap<String, LimiterHealth>,
    /// The version of the process that answers.
    version: &'static str,
    /// When the process that answers was started.
    #[schema(format = DateTime)]
    started_at: Option<String>,
    /// What went wrong lately with the store and between its processes, as the process that answers saw it: at most 50, the
    /// newest first.
    faults: Vec<FleetFault>,
}

/// A breaker, in the names of the older services.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BreakerHealth {
    failures: u32,
    degraded: bool,
    #[schema(format = DateTime)]
    degraded_until: Option<String>,
}

/// A rate limit, in the names of the older services.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LimiterHealth {
    /// Absent if the upstream has no bucket.
    tokens_available: Option<f64>,
    /// Calls started in the last 60 seconds: exact below 128, above that each may count for up to a second longer.
    requests_last_minute: u64,
}

/// Get the state of the process, the store and the gates
#[utoipa::path(get, path = "/v1/health", tag = "health", responses((status = 200, body = Health)))]
pub(super) async fn health(state: HealthState, caller: Caller, _: NoQuery) -> Result<Json<Health>, Problem> {
    caller.may(Right::SeeAll)?;
    let mut upstreams = state.store.upstreams().await.map_err(|error| unavailable(&error))?;
    let rules = state.rules.get();
    upstreams.retain(|view| {
        view.name.key().is_none() && caller.may_reach(&rules.config, view.name.as_str()).is_ok()
    });
    let breakers: BTreeMap<String, BreakerHealth> = upstreams
        .iter()
        .filter_map(breaker)
        .map(|breaker| {
            let (failures, degraded) = (breaker.failures, breaker.degraded);
            (breaker.name, BreakerHealth { failures, degraded, degraded_until: breaker.degraded_until })
        })
        .collect();
    let limiters = upstreams.iter().map(|view| {
        let (tokens_available, requests_last_minute) = (view.tokens.map(tokens), view.starts_last_minute);
        (view.name.to_string(), LimiterHealth { tokens_available, requests_last_minute })
    });
    let Fleet { store, owner, instances, version, started_at, faults } =
        Fleet::of(&state.peers, &rules.config.store);
    let degraded = state.peers.is_cut_off() || breakers.values().any(|breaker| breaker.degraded);
    Ok(Json(Health {
        status: if degraded { "degraded" } else { "ok" },
        store,
        owner,
        instances,
        version,
        started_at,
        faults,
        rate_limiters: limiters.collect(),
        circuit_breakers: breakers,
    }))
}

#[expect(clippy::cast_precision_loss, reason = "balances are far below 2^53 micro-tokens")]
fn tokens(tokens: Tokens) -> f64 {
    tokens.as_micro() as f64 / 1e6
}

/// Get metrics for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, content((String = "text/plain"), (String = "application/openmetrics-text")))))]
pub(super) async fn metrics(
    State(store): State<Arc<AnyStore>>,
    State(metrics): State<Arc<Metrics>>,
    State(peers): State<Arc<Peers>>,
    State(rules): State<Arc<CurrentRules>>,
    (caller, _): (Caller, NoQuery),
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may(Right::SeeAll)?;
    caller.may_use_all_lanes()?;
    caller.may_act_for_all_tenants()?;
    // Without the store, the counters of this process are still reported.
    let taken = async {
        if !peers.owns() {
            store.upstreams().await?;
            return Ok(Snapshot::of_asker(true));
        }
        let policies = policy_levels(&*store, &rules.get().config.upstreams).await?;
        let alerts = if peers.owns() { store.alerts().await?.firing } else { Vec::new() };
        let taken = Snapshot::take(&*store, store.now()).await?;
        Ok::<_, StoreError>(taken.with_policies(policies).with_alerts(alerts))
    };
    let snapshot = match tokio::time::timeout(METRICS_WAIT, taken).await {
        Ok(Err(error)) if !error.is_transient() => return Err(unavailable(&error)),
        Ok(Ok(snapshot)) => snapshot,
        Ok(Err(_)) | Err(_) => Snapshot::default(),
    };
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Exposition::accepted(accept);
    let text = metrics.encode(snapshot.with_counts(peers.losses(), peers.waits()), format);
    let text = text.map_err(|_| Problem::new(Kind::Internal, "The metrics could not be written"))?;
    Ok((StatusCode::OK, [(CONTENT_TYPE, format.content_type()), (VARY, "Accept")], text).into_response())
}
