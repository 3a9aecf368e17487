//! `/v1/history`: what happened in each of the last minutes.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use eclusa_core::{HistoryOf, HistoryQuery, MAX_MINUTES, Store};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Caller, Right};
use super::extract::Query;
use super::model::History;
use super::problem::Problem;
use super::state::Api;
use super::store_problem::unavailable;
use super::submit;
use super::upstreams::reachable;
use crate::intake::Fault;
use crate::rules::CurrentRules;
use crate::store::AnyStore;

/// The number of minutes of an answer, unless the caller says otherwise.
const DEFAULT_MINUTES: u32 = 60;

/// State needed by this call.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct HistoryState {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
}

/// Of what, and how far back.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryParameters {
    /// Of this lane. Without `lane` and `upstream`: of all lanes that the caller may see, together.
    lane: Option<String>,
    /// Of this upstream.
    upstream: Option<String>,
    /// How many minutes, with the running one: 60 if absent.
    #[param(minimum = 1, maximum = 1440)]
    minutes: Option<u32>,
}

/// Get what happened in each of the last minutes
///
/// Points are kept for a day, across restarts. The last one is of the running minute (`partial`). Of a lane, or of lanes, points
/// are `LanePoint`s; of an upstream, they are `UpstreamPoint`s.
#[utoipa::path(get, path = "/v1/history", tag = "health", params(HistoryParameters),
    responses((status = 200, body = History)))]
pub(super) async fn history(
    state: HistoryState,
    caller: Caller,
    Query(query): Query<HistoryParameters>,
) -> Result<Json<History>, Problem> {
    caller.may(Right::SeeAll)?;
    let minutes = query.minutes.unwrap_or(DEFAULT_MINUTES);
    let faults = faults(&query, minutes);
    if !faults.is_empty() {
        return Err(Problem::invalid(&faults));
    }
    let of = match (&query.lane, &query.upstream) {
        (Some(lane), _) => HistoryOf::Lanes(vec![submit::lane(&state.rules, &caller, lane)?.0]),
        (None, Some(upstream)) => HistoryOf::Upstream(reachable(&state.rules, &caller, upstream)?),
        (None, None) => caller.lanes().map_or(HistoryOf::AllLanes, HistoryOf::Lanes),
    };
    let view = state.store.history(HistoryQuery { of, minutes }).await;
    view.map(|view| Json(History::from(view))).map_err(|error| unavailable(&error))
}

fn faults(query: &HistoryParameters, minutes: u32) -> Vec<Fault> {
    let both = query.lane.is_some() && query.upstream.is_some();
    let both = both.then(|| Fault::new("upstream", "cannot be combined with `lane`; ask for one of them"));
    let bounds = format!("must be 1 to {MAX_MINUTES}: a day is kept");
    let minutes = (!(1..=MAX_MINUTES).contains(&minutes)).then(|| Fault::new("minutes", bounds));
    both.into_iter().chain(minutes).collect()
}
