//! `/v1/upstreams` and `/v1/breakers`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use eclusa_core::gate::{BreakerState, CallResult};
use eclusa_core::{Name, Store, StoreError, UpstreamView};

use super::audit::audit;
use super::auth::{Caller, Right};
use super::extract::{NoQuery, Path};
use super::model::{self, Breaker, Upstream, breaker, breaker_or_closed};
use super::problem::{Kind, Problem};
use super::state::Api;
use super::store_problem::unavailable;
use crate::decide::Decider;
use crate::rules::CurrentRules;
use crate::store::AnyStore;

/// State needed by these calls.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Upstreams {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    decider: Arc<Decider>,
}

impl Upstreams {
    /// The upstreams the caller may see.
    async fn views(&self, caller: &Caller) -> Result<Vec<UpstreamView>, Problem> {
        caller.may(Right::SeeAll)?;
        let mut views = self.store.upstreams().await.map_err(|error| unavailable(&error))?;
        let rules = self.rules.get();
        views.retain(|view| caller.may_reach(&rules.config, view.name.without_key().as_str()).is_ok());
        Ok(views)
    }

    async fn view(&self, caller: &Caller, name: &str) -> Result<UpstreamView, Problem> {
        caller.may(Right::SeeAll)?;
        caller.may_reach(&self.rules.get().config, name)?;
        let view = self.views(caller).await?.into_iter().find(|view| view.name.as_str() == name);
        view.ok_or_else(|| unknown(&self.rules, name))
    }

    /// Converts views to upstreams with their keys; only those in the config.
    fn with_keys(&self, views: &[UpstreamView]) -> Vec<Upstream> {
        let rules = self.rules.get();
        model::upstreams(views, |name| rules.config.spec.upstream(name).is_some())
    }

    /// Counts a call that the caller made itself.
    async fn record(
        &self,
        caller: &Caller,
        upstream: Name,
        result: CallResult,
    ) -> Result<Json<Breaker>, Problem> {
        let call = match result {
            CallResult::Success => ("success", "a reported success"),
            _ => ("failure", "a reported failure"),
        };
        let before = self.breaker(&upstream).await;
        let after = self.decider.record(upstream.clone(), result).await;
        audit_change(caller, call, &upstream, before, &after);
        self.shown(upstream.as_str(), after)
    }

    /// The state of a breaker, if it is known.
    async fn breaker(&self, upstream: &Name) -> Option<BreakerState> {
        let views = self.store.upstreams().await.ok()?;
        views.iter().find(|view| view.name == *upstream).and_then(state)
    }

    fn shown(
        &self,
        name: &str,
        view: Result<Option<UpstreamView>, StoreError>,
    ) -> Result<Json<Breaker>, Problem> {
        let view = view.map_err(|error| unavailable(&error))?;
        let view = view.ok_or_else(|| unknown(&self.rules, name))?;
        Ok(Json(breaker_or_closed(&view)))
    }

    /// The upstream to whose breaker the caller may report; it must have one.
    fn reported(&self, caller: &Caller, name: &str) -> Result<Name, Problem> {
        let upstream = changeable(&self.rules, caller, Right::Enqueue, name)?;
        let rules = self.rules.get();
        let breaker = rules.config.spec.upstream(&upstream).and_then(|spec| spec.gates.breaker.as_ref());
        breaker.map(|_| upstream).ok_or_else(|| without_breaker(name))
    }
}

fn state(view: &UpstreamView) -> Option<BreakerState> {
    view.breaker.as_ref().map(|breaker| breaker.state)
}

/// Writes an audit line if a call by hand opened or closed a breaker. If several calls arrive at the same time, more than
/// one may be logged for one change.
fn audit_change(
    caller: &Caller,
    (action, by_what): (&str, &str),
    upstream: &Name,
    before: Option<BreakerState>,
    after: &Result<Option<UpstreamView>, StoreError>,
) {
    let after = after.as_ref().ok().and_then(Option::as_ref).and_then(state);
    match after.filter(|_| before.is_some() && before != after) {
        Some(BreakerState::Open) => {
            audit!(caller, action, %upstream, state = "open", "Breaker opened by {by_what}");
        }
        Some(BreakerState::Closed) => {
            audit!(caller, action, %upstream, state = "closed", "Breaker closed by {by_what}");
        }
        // Only time makes it half open.
        Some(BreakerState::HalfOpen) | None => {}
    }
}

fn unknown(rules: &CurrentRules, name: &str) -> Problem {
    let rules = rules.get();
    let known: Vec<&str> = rules.config.upstreams.keys().map(Name::as_str).collect();
    Problem::new(
        Kind::NotFound,
        format!("There is no upstream `{name}`; the config has {}", known.join(", ")),
    )
}

fn without_breaker(name: &str) -> Problem {
    let detail = format!("Upstream `{name}` has no breaker; add `breaker = {{ … }}` to it");
    Problem::new(Kind::NotFound, detail)
}

/// List all upstreams with the state of every gate
#[utoipa::path(get, path = "/v1/upstreams", tag = "upstreams", responses((status = 200, body = Vec<Upstream>)))]
pub(super) async fn list(
    upstreams: Upstreams,
    caller: Caller,
    _: NoQuery,
) -> Result<Json<Vec<Upstream>>, Problem> {
    let views = upstreams.views(&caller).await?;
    Ok(Json(upstreams.with_keys(&views)))
}

/// Get an upstream
#[utoipa::path(get, path = "/v1/upstreams/{name}", tag = "upstreams",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Upstream)))]
pub(super) async fn get(
    upstreams: Upstreams,
    caller: Caller,
    Path(name): Path<String>,
    _: NoQuery,
) -> Result<Json<Upstream>, Problem> {
    let views = upstreams.views(&caller).await?;
    caller.may_reach(&upstreams.rules.get().config, &name)?;
    let found = upstreams.with_keys(&views).into_iter().find(|upstream| upstream.name == name);
    found.map(Json).ok_or_else(|| unknown(&upstreams.rules, &name))
}

/// List all breakers
#[utoipa::path(get, path = "/v1/breakers", tag = "breakers", responses((status = 200, body = Vec<Breaker>)))]
pub(super) async fn breakers(
    upstreams: Upstreams,
    caller: Caller,
    _: NoQuery,
) -> Result<Json<Vec<Breaker>>, Problem> {
    Ok(Json(upstreams.views(&caller).await?.iter().filter_map(breaker).collect()))
}

/// Get a breaker
#[utoipa::path(get, path = "/v1/breakers/{name}", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn get_breaker(
    upstreams: Upstreams,
    caller: Caller,
    Path(name): Path<String>,
    _: NoQuery,
) -> Result<Json<Breaker>, Problem> {
    breaker(&upstreams.view(&caller, &name).await?).map(Json).ok_or_else(|| without_breaker(&name))
}

/// Report to a breaker that a call made elsewhere failed
#[utoipa::path(post, path = "/v1/breakers/{name}/failure", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn failure(
    upstreams: Upstreams,
    caller: Caller,
    Path(name): Path<String>,
    _: NoQuery,
) -> Result<Json<Breaker>, Problem> {
    let upstream = upstreams.reported(&caller, &name)?;
    upstreams.record(&caller, upstream, CallResult::Failed).await
}

/// Report to a breaker that a call made elsewhere succeeded
#[utoipa::path(post, path = "/v1/breakers/{name}/success", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn success(
    upstreams: Upstreams,
    caller: Caller,
    Path(name): Path<String>,
    _: NoQuery,
) -> Result<Json<Breaker>, Problem> {
    let upstream = upstreams.reported(&caller, &name)?;
    upstreams.record(&caller, upstream, CallResult::Success).await
}

/// Close a breaker whose open window is over
///
/// A breaker that is open or closed does not change.
#[utoipa::path(post, path = "/v1/breakers/{name}/try-recover", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn try_recover(
    upstreams: Upstreams,
    caller: Caller,
    Path(name): Path<String>,
    _: NoQuery,
) -> Result<Json<Breaker>, Problem> {
    let upstream = upstreams.reported(&caller, &name)?;
    let before = upstreams.breaker(&upstream).await;
    let after = upstreams.decider.recover(upstream.clone()).await;
    audit_change(&caller, ("try_recover", "try-recover"), &upstream, before, &after);
    upstreams.shown(&name, after)
}

/// Close a breaker and clear its upstream's cooldown and Retry-After
///
/// An upstream without a breaker is reset too; its breaker is shown as closed.
#[utoipa::path(post, path = "/v1/breakers/{name}/reset", tag = "breakers",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = Breaker)))]
pub(super) async fn reset(
    upstreams: Upstreams,
    caller: Caller,
    Path(name): Path<String>,
    _: NoQuery,
) -> Result<Json<Breaker>, Problem> {
    let upstream = changeable(&upstreams.rules, &caller, Right::Operate, &name)?;
    let reset = upstreams.decider.reset(upstream.clone()).await;
    if let Ok(Some(_)) = &reset {
        audit!(caller, "reset", %upstream, "Breaker reset");
    }
    upstreams.shown(&name, reset)
}

/// The upstream with this name, if the caller may change its gates.
fn changeable(rules: &CurrentRules, caller: &Caller, right: Right, name: &str) -> Result<Name, Problem> {
    caller.may(right)?;
    let upstream = reachable(rules, caller, name)?;
    caller.may_change_breaker(&rules.get().config, name)?;
    Ok(upstream)
}

/// The upstream with this name, if the caller may acquire permits for it.
pub(super) fn callable(rules: &CurrentRules, caller: &Caller, name: &str) -> Result<Name, Problem> {
    caller.may(Right::Enqueue)?;
    reachable(rules, caller, name)
}

pub(super) fn reachable(rules: &CurrentRules, caller: &Caller, name: &str) -> Result<Name, Problem> {
    let current = rules.get();
    caller.may_reach(&current.config, name)?;
    let found = current.config.upstreams.keys().find(|known| known.as_str() == name);
    found.cloned().ok_or_else(|| unknown(rules, name))
}
