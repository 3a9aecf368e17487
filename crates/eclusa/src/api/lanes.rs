//! `/v1/lanes`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use eclusa_core::{LaneView, Store};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Right};
use super::extract::{Path, Query};
use super::model::{Lane, TenantFairnessMetrics};
use super::problem::{Kind, Problem};
use super::submit::{self, unavailable};
use crate::gateway::Gateway;

/// How many tenants a page shows.
const PAGE: usize = 200;

/// All lanes
#[utoipa::path(get, path = "/v1/lanes", tag = "lanes", responses((status = 200, body = Vec<Lane>)))]
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
) -> Result<Json<Vec<Lane>>, Problem> {
    caller.may(Right::SeeAll)?;
    let lanes = gateway.store.lanes().await.map_err(|error| unavailable(&error))?;
    let seen = lanes.into_iter().filter(|lane| caller.may_use(&lane.name).is_ok());
    Ok(Json(seen.map(|lane| shown(&gateway, &lane)).collect()))
}

/// One lane
#[utoipa::path(get, path = "/v1/lanes/{lane}", tag = "lanes",
    params(("lane" = String, Path, description = "The lane")), responses((status = 200, body = Lane)))]
pub(super) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(lane): Path<String>,
) -> Result<Json<Lane>, Problem> {
    caller.may(Right::SeeAll)?;
    one(&gateway, &caller, &lane).await
}

async fn one(gateway: &Gateway, caller: &Caller, lane: &str) -> Result<Json<Lane>, Problem> {
    let (name, _) = submit::lane(gateway, caller, lane)?;
    let lanes = gateway.store.lanes().await.map_err(|error| unavailable(&error))?;
    let found = lanes.into_iter().find(|lane| lane.name == name);
    let missing = || Problem::new(Kind::NotFound, format!("There is no lane `{name}`"));
    found.map(|lane| Json(shown(gateway, &lane))).ok_or_else(missing)
}

fn shown(gateway: &Gateway, lane: &LaneView) -> Lane {
    Lane::new(lane, gateway.rates.of(lane, Instant::now()))
}

/// Stop starting jobs of a lane; jobs are still taken in
#[utoipa::path(post, path = "/v1/lanes/{lane}/pause", tag = "lanes",
    params(("lane" = String, Path, description = "The lane")), responses((status = 200, body = Lane)))]
pub(super) async fn pause(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(lane): Path<String>,
) -> Result<Json<Lane>, Problem> {
    set_paused(&gateway, &caller, &lane, true).await
}

/// Start jobs of a lane again
#[utoipa::path(post, path = "/v1/lanes/{lane}/resume", tag = "lanes",
    params(("lane" = String, Path, description = "The lane")), responses((status = 200, body = Lane)))]
pub(super) async fn resume(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(lane): Path<String>,
) -> Result<Json<Lane>, Problem> {
    set_paused(&gateway, &caller, &lane, false).await
}

async fn set_paused(
    gateway: &Gateway,
    caller: &Caller,
    lane: &str,
    paused: bool,
) -> Result<Json<Lane>, Problem> {
    caller.may(Right::Operate)?;
    caller.may_act_for_all_tenants()?;
    let (name, _) = submit::lane(gateway, caller, lane)?;
    gateway.store.pause(name.clone(), paused).await.map_err(|error| unavailable(&error))?;
    tracing::info!(lane = %name, paused, "Lane paused or resumed");
    one(gateway, caller, lane).await
}

/// Where to go on.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantsQuery {
    /// Where the last page said to go on.
    cursor: Option<u32>,
}

/// Tenants of a lane.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TenantList {
    /// In no particular order.
    tenants: Vec<TenantFairnessMetrics>,
    /// Where to go on; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<u32>,
}

/// How fair a lane is to its tenants
#[utoipa::path(get, path = "/v1/lanes/{lane}/tenants", tag = "lanes",
    params(("lane" = String, Path, description = "The lane"), TenantsQuery),
    responses((status = 200, body = TenantList)))]
pub(super) async fn tenants(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(lane): Path<String>,
    Query(query): Query<TenantsQuery>,
) -> Result<Json<TenantList>, Problem> {
    caller.may(Right::SeeAll)?;
    let (name, _) = submit::lane(&gateway, &caller, &lane)?;
    let from = query.cursor.unwrap_or_default();
    let page = gateway.store.tenants(name, from, PAGE).await.map_err(|error| unavailable(&error))?;
    let cursor = if page.len() == PAGE { page.last().map(|(place, _)| place + 1) } else { None };
    let tenants = page.into_iter().map(|(_, tenant)| tenant);
    let tenants = tenants.filter(|tenant| caller.may_be(&tenant.tenant).is_ok()).map(Into::into).collect();
    Ok(Json(TenantList { tenants, cursor }))
}
