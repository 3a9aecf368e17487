//! `/v1/lanes`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use eclusa_core::{LaneView, Store, TenantPage, TenantQuery, TenantView};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::audit::audit;
use super::auth::{Caller, Right};
use super::example::example;
use super::extract::{NoQuery, Path, Query};
use super::model::{Lane, LaneFacts, TenantFairnessMetrics};
use super::problem::{Kind, Problem};
use super::state::Api;
use super::store_problem::unavailable;
use super::submit;
use crate::intake::Fault;
use crate::rules::{CurrentRules, Rules};
use crate::store::AnyStore;
use crate::telemetry::{Metrics, Rates};

/// Tenants per page.
const PAGE: usize = 200;

/// State needed by these calls.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Lanes {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    rates: Arc<Rates>,
    #[from_request(via(State))]
    metrics: Arc<Metrics>,
}

/// List all lanes
#[utoipa::path(get, path = "/v1/lanes", tag = "lanes", responses((status = 200, body = Vec<Lane>)))]
pub(super) async fn list(lanes: Lanes, caller: Caller, _: NoQuery) -> Result<Json<Vec<Lane>>, Problem> {
    caller.may(Right::SeeAll)?;
    let views = lanes.store.lanes().await.map_err(|error| unavailable(&error))?;
    let seen = views.iter().filter(|lane| caller.may_use(&lane.name).is_ok());
    Ok(Json(seen.map(|lane| lanes.shown(lane)).collect()))
}

/// Get a lane
#[utoipa::path(get, path = "/v1/lanes/{lane}", tag = "lanes",
    params(("lane" = String, Path, description = "The lane")), responses((status = 200, body = Lane)))]
pub(super) async fn get(
    lanes: Lanes,
    caller: Caller,
    Path(lane): Path<String>,
    _: NoQuery,
) -> Result<Json<Lane>, Problem> {
    caller.may(Right::SeeAll)?;
    lanes.one(&caller, &lane).await
}

impl Lanes {
    async fn one(&self, caller: &Caller, lane: &str) -> Result<Json<Lane>, Problem> {
        let (name, _) = submit::lane(&self.rules, caller, lane)?;
        let lanes = self.store.lanes().await.map_err(|error| unavailable(&error))?;
        let found = lanes.iter().find(|lane| lane.name == name);
        let missing = || Problem::new(Kind::NotFound, format!("There is no lane `{name}`"));
        found.map(|lane| Json(self.shown(lane))).ok_or_else(missing)
    }

    fn shown(&self, lane: &LaneView) -> Lane {
        shown(lane, &self.rules.get(), &self.rates, &self.metrics)
    }

    async fn set_paused(&self, caller: &Caller, lane: &str, paused: bool) -> Result<Json<Lane>, Problem> {
        caller.may(Right::Operate)?;
        caller.may_act_for_all_tenants()?;
        let (name, _) = submit::lane(&self.rules, caller, lane)?;
        self.store.pause(name.clone(), paused).await.map_err(|error| unavailable(&error))?;
        let (action, did) = if paused { ("pause", "Lane paused") } else { ("resume", "Lane resumed") };
        audit!(caller, action, lane = %name, "{did}");
        self.one(caller, lane).await
    }
}

/// A lane as it is shown.
pub(super) fn shown(lane: &LaneView, rules: &Rules, rates: &Rates, metrics: &Metrics) -> Lane {
    let (now, answered) = (Instant::now(), &metrics.answers);
    let (own, answers) = (rules.config.lanes.get(&lane.name), answered.of(&lane.name));
    let unused = lane.totals.accepted == 0 && answers.is_empty();
    let facts = LaneFacts {
        rules: own.map(|lane| &**lane),
        rates: rates.of(lane, answered, now),
        example: own.filter(|_| unused).and_then(|own| example(own, &rules.config)),
        answers,
        quotes: metrics.quoted.of(&lane.name, now),
    };
    Lane::new(lane, facts)
}

/// Stop starting jobs of a lane; new jobs are still accepted
#[utoipa::path(post, path = "/v1/lanes/{lane}/pause", tag = "lanes",
    params(("lane" = String, Path, description = "The lane")), responses((status = 200, body = Lane)))]
pub(super) async fn pause(
    lanes: Lanes,
    caller: Caller,
    Path(lane): Path<String>,
    _: NoQuery,
) -> Result<Json<Lane>, Problem> {
    lanes.set_paused(&caller, &lane, true).await
}

/// Start jobs of a lane again
#[utoipa::path(post, path = "/v1/lanes/{lane}/resume", tag = "lanes",
    params(("lane" = String, Path, description = "The lane")), responses((status = 200, body = Lane)))]
pub(super) async fn resume(
    lanes: Lanes,
    caller: Caller,
    Path(lane): Path<String>,
    _: NoQuery,
) -> Result<Json<Lane>, Problem> {
    lanes.set_paused(&caller, &lane, false).await
}

/// Which tenants to return.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantsQuery {
    /// The `cursor` of the previous page.
    cursor: Option<u32>,
    /// Only this many tenants: the one that is served next, then those with the most waiting jobs, then those served most.
    /// Cannot be combined with `cursor`.
    #[param(minimum = 1, maximum = 200)]
    busiest: Option<usize>,
}

impl TenantsQuery {
    /// How many tenants are asked for, if the query asks for the busiest.
    fn most(&self) -> Result<Option<usize>, Problem> {
        let Some(most) = self.busiest else { return Ok(None) };
        let alone = self.cursor.map(|_| Fault::new("busiest", "cannot be combined with `cursor`"));
        let bounds = format!("must be 1 to {PAGE}");
        let bounds = (!(1..=PAGE).contains(&most)).then(|| Fault::new("busiest", bounds));
        let faults: Vec<_> = alone.into_iter().chain(bounds).collect();
        if faults.is_empty() { Ok(Some(most)) } else { Err(Problem::invalid(&faults)) }
    }
}

/// Tenants of a lane.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TenantList {
    /// In no particular order, unless the busiest are asked for.
    tenants: Vec<TenantFairnessMetrics>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<u32>,
}

/// Get fairness metrics of a lane's tenants
#[utoipa::path(get, path = "/v1/lanes/{lane}/tenants", tag = "lanes",
    params(("lane" = String, Path, description = "The lane"), TenantsQuery),
    responses((status = 200, body = TenantList)))]
pub(super) async fn tenants(
    lanes: Lanes,
    caller: Caller,
    Path(lane): Path<String>,
    Query(query): Query<TenantsQuery>,
) -> Result<Json<TenantList>, Problem> {
    caller.may(Right::SeeAll)?;
    let (name, _) = submit::lane(&lanes.rules, &caller, &lane)?;
    let ask = TenantQuery { names: caller.tenants(), ..TenantQuery::new(name, PAGE) };
    let page = match query.most()? {
        Some(max) => lanes.busiest(TenantQuery { max, busiest: true, ..ask }).await?,
        None => lanes.tenants(TenantQuery { after: query.cursor.unwrap_or_default(), ..ask }).await?,
    };
    let tenants = page.tenants.into_iter().map(Into::into).collect();
    Ok(Json(TenantList { tenants, cursor: page.next }))
}

impl Lanes {
    async fn tenants(&self, query: TenantQuery) -> Result<TenantPage, Problem> {
        self.store.tenants(query).await.map_err(|error| unavailable(&error))
    }

    /// The busiest of all tenants, which the store examines in steps.
    async fn busiest(&self, mut query: TenantQuery) -> Result<TenantPage, Problem> {
        let mut busiest = self.tenants(query.clone()).await?;
        while let Some(after) = busiest.next {
            query.after = after;
            let page = self.tenants(query.clone()).await?;
            busiest.tenants.extend(page.tenants);
            busiest.tenants.sort_by_cached_key(TenantView::urgency);
            busiest.tenants.truncate(query.max);
            busiest.next = page.next;
        }
        // The turn may have passed on between two steps.
        busiest.tenants.iter_mut().skip(1).for_each(|tenant| tenant.next = false);
        Ok(busiest)
    }
}
