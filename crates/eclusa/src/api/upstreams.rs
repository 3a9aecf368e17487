//! `/v1/upstreams` and `/v1/breakers`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use eclusa_core::gate::CallResult;
use eclusa_core::{Name, Store, UpstreamView};

use super::auth::{Caller, Right};
use super::extract::Path;
use super::model::{Breaker, Upstream, breaker};
use super::problem::{Kind, Problem};
use super::submit::unavailable;
use crate::gateway::Gateway;

async fn views(gateway: &Gateway) -> Result<Vec<UpstreamView>, Problem> {
    gateway.store.upstreams().await.map_err(|error| unavailable(&error))
}

fn unknown(gateway: &Gateway, name: &str) -> Problem {
    let rules = gateway.rules.get();
    let known: Vec<&str> = rules.config.upstreams.keys().map(Name::as_str).collect();
    Problem::new(
        Kind::NotFound,
        format!("There is no upstream `{name}`; the config has {}", known.join(", ")),
    )
}

fn no_breaker(name: &str) -> Problem {
    Problem::new(Kind::NotFound, format!("Upstream `{name}` has no breaker; add `breaker = {{ … }}` to it"))
}

/// All upstreams with every gate's state
#[utoipa::path(get, path = "/v1/upstreams", tag = "upstreams", responses((status = 200, body = Vec<Upstream>)))]
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
) -> Result<Json<Vec<Upstream>>, Problem> {
    caller.may(Right::SeeAll)?;
    let views = views(&gateway).await?.into_iter();
    let seen = views.filter(|view| caller.may_reach(&gateway.rules.get().config, view.name.as_str()).is_ok());
    Ok(Json(seen.map(Upstream::from).collect()))
}

/// One upstream
#[utoipa::path(get, path = "/v1/upstreams/{name}", tag = "upstreams",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Upstream)))]
pub(super) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Upstream>, Problem> {
    caller.may(Right::SeeAll)?;
    caller.may_reach(&gateway.rules.get().config, &name)?;
    let view = views(&gateway).await?.into_iter().find(|view| view.name.as_str() == name);
    view.map(|view| Json(view.into())).ok_or_else(|| unknown(&gateway, &name))
}

/// All breakers
#[utoipa::path(get, path = "/v1/breakers", tag = "breakers", responses((status = 200, body = Vec<Breaker>)))]
pub(super) async fn breakers(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
) -> Result<Json<Vec<Breaker>>, Problem> {
    caller.may(Right::SeeAll)?;
    let views = views(&gateway).await?;
    let seen =
        views.iter().filter(|view| caller.may_reach(&gateway.rules.get().config, view.name.as_str()).is_ok());
    Ok(Json(seen.filter_map(breaker).collect()))
}

/// One breaker
#[utoipa::path(get, path = "/v1/breakers/{name}", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn get_breaker(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Breaker>, Problem> {
    caller.may(Right::SeeAll)?;
    caller.may_reach(&gateway.rules.get().config, &name)?;
    let view = views(&gateway).await?.into_iter().find(|view| view.name.as_str() == name);
    let view = view.ok_or_else(|| unknown(&gateway, &name))?;
    breaker(&view).map(Json).ok_or_else(|| no_breaker(&name))
}

/// Tell a breaker of a failed call that was made elsewhere
#[utoipa::path(post, path = "/v1/breakers/{name}/failure", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn failure(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Breaker>, Problem> {
    record(&gateway, &caller, &name, CallResult::Failed).await
}

/// Tell a breaker of a call made elsewhere that succeeded
#[utoipa::path(post, path = "/v1/breakers/{name}/success", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn success(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Breaker>, Problem> {
    record(&gateway, &caller, &name, CallResult::Success).await
}

/// Close a breaker whose open window is over
///
/// One that is open or closed stays as it is.
#[utoipa::path(post, path = "/v1/breakers/{name}/try-recover", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn try_recover(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Breaker>, Problem> {
    let upstream = callable(&gateway, &caller, &name)?;
    let view = gateway.store.recover(upstream.clone()).await.map_err(|error| unavailable(&error))?;
    gateway.turns.ring(&upstream);
    shown(&gateway, &name, view)
}

/// Close a breaker and clear its upstream's cooldown and Retry-After
#[utoipa::path(post, path = "/v1/breakers/{name}/reset", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn reset(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Breaker>, Problem> {
    caller.may(Right::Operate)?;
    caller.may_reach(&gateway.rules.get().config, &name)?;
    let upstream = known(&gateway, &name)?;
    let view = gateway.store.reset(upstream.clone()).await.map_err(|error| unavailable(&error))?;
    gateway.turns.ring(&upstream);
    tracing::info!(upstream = %upstream, "Breaker reset");
    shown(&gateway, &name, view)
}

async fn record(
    gateway: &Gateway,
    caller: &Caller,
    name: &str,
    result: CallResult,
) -> Result<Json<Breaker>, Problem> {
    let upstream = callable(gateway, caller, name)?;
    let view = gateway.store.record(upstream.clone(), result).await.map_err(|error| unavailable(&error))?;
    gateway.turns.ring(&upstream);
    shown(gateway, name, view)
}

/// The upstream with this name, if the caller may make calls of its own to it.
pub(super) fn callable(gateway: &Gateway, caller: &Caller, name: &str) -> Result<Name, Problem> {
    caller.may(Right::Enqueue)?;
    caller.may_reach(&gateway.rules.get().config, name)?;
    known(gateway, name)
}

fn known(gateway: &Gateway, name: &str) -> Result<Name, Problem> {
    let rules = gateway.rules.get();
    let found = rules.config.upstreams.keys().find(|known| known.as_str() == name);
    found.cloned().ok_or_else(|| unknown(gateway, name))
}

fn shown(gateway: &Gateway, name: &str, view: Option<UpstreamView>) -> Result<Json<Breaker>, Problem> {
    let view = view.ok_or_else(|| unknown(gateway, name))?;
    breaker(&view).map(Json).ok_or_else(|| no_breaker(name))
}
