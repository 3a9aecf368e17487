//! `/v1/alerts`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use eclusa_core::{AlertKey, AlertsView, Store};
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::{Caller, Right};
use super::extract::NoQuery;
use super::model::Alert;
use super::problem::Problem;
use super::store_problem::unavailable;
use crate::config::Config;
use crate::rules::CurrentRules;
use crate::store::AnyStore;

/// Alerts that fire, and those that resolved recently.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AlertList {
    /// Alerts that fire now.
    alerts: Vec<Alert>,
    /// The last hundred that resolved, newest first.
    recent: Vec<Alert>,
}

/// List the alerts that fire, and those that resolved recently
///
/// A key restricted to some lanes sees alerts about these lanes and their upstreams. A key restricted to some tenants
/// sees only alerts about these tenants.
#[utoipa::path(get, path = "/v1/alerts", tag = "alerts", responses((status = 200, body = AlertList)))]
pub(super) async fn list(
    State(store): State<Arc<AnyStore>>,
    State(rules): State<Arc<CurrentRules>>,
    caller: Caller,
    _: NoQuery,
) -> Result<Json<AlertList>, Problem> {
    caller.may(Right::SeeAll)?;
    let view = store.alerts().await.map_err(|error| unavailable(&error))?;
    Ok(Json(shown(&view, &caller, &rules.get().config)))
}

/// The alerts that the caller may see.
pub(super) fn shown(view: &AlertsView, caller: &Caller, config: &Config) -> AlertList {
    let shown = |alerts: &[eclusa_core::Alert]| {
        let own = alerts.iter().filter(|alert| may_see(caller, config, &alert.condition.key));
        own.map(Alert::from).collect()
    };
    AlertList { alerts: shown(&view.firing), recent: shown(&view.recent) }
}

pub(super) fn may_see(caller: &Caller, config: &Config, key: &AlertKey) -> bool {
    let tenant = match &key.tenant {
        Some(tenant) => caller.may_act_for(tenant),
        None => caller.may_act_for_all_tenants(),
    };
    let place = match (&key.lane, &key.upstream) {
        (Some(lane), _) => caller.may_use(lane),
        (None, Some(upstream)) => caller.may_reach(config, upstream.as_str()),
        (None, None) => caller.may_use_all_lanes(),
    };
    tenant.is_ok() && place.is_ok()
}
