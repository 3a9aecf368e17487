//! `GET /v1/events`: changes as server-sent events.
//!
//! One task per process ([`watcher`]) asks the store for changes while there are listeners. It keeps the latest state of everything
//! with the number of the update in which it last changed ([`feed`]). A stream ([`stream`]) sends what changed since the last
//! update it sent, so a slow client skips updates instead of queueing them.

mod feed;
mod stream;
#[cfg(test)]
mod tests;
mod watcher;

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::response::sse::Sse;
use axum::response::{IntoResponse, Response};
use eclusa_core::Name;
use futures_util::StreamExt;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use self::feed::Cursor;
pub(crate) use self::feed::Live;
use self::stream::{Listener, Subscription, Topics};
use self::watcher::Watcher;
use super::alerts::AlertList;
use super::auth::{Caller, Right};
use super::extract::Query;
use super::fleet::Fleet;
use super::model::{Lane, Upstream};
use super::problem::Problem;
use super::state::Api;
use super::status::StatusParts;
use super::submit;
use crate::intake::Fault;
use crate::life::Life;
use crate::peers::Peers;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::{Metrics, Rates};

/// Streams that one process holds open.
pub(super) const MAX_STREAMS: usize = 200;

/// State needed by this call.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct LiveState {
    #[from_request(via(State))]
    live: Arc<Live>,
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    rates: Arc<Rates>,
    #[from_request(via(State))]
    metrics: Arc<Metrics>,
    #[from_request(via(State))]
    peers: Arc<Peers>,
    #[from_request(via(State))]
    life: Arc<Life>,
    status: StatusParts,
}

/// Which events to send.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Any of `lanes`, `upstreams`, `jobs`, `alerts`, `fleet` and `status`, separated by commas; all if absent.
    #[param(value_type = Option<String>, pattern = "^(lanes|upstreams|jobs|alerts|fleet|status)(,(lanes|upstreams|jobs|alerts|fleet|status))*$")]
    topics: Option<String>,
    /// Only this lane, and jobs of it.
    lane: Option<String>,
    /// Only jobs of this tenant.
    tenant: Option<String>,
    /// The id of the last event received, for clients that cannot send `Last-Event-ID`.
    cursor: Option<String>,
}

/// The current state of the requested topics, sent when a stream begins.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LiveSnapshot {
    /// The store's time.
    #[schema(format = DateTime)]
    at: String,
    /// The lanes.
    lanes: Option<Vec<Lane>>,
    /// The upstreams.
    upstreams: Option<Vec<Upstream>>,
    /// The alerts.
    alerts: Option<AlertList>,
    /// The store and the processes that share it.
    fleet: Option<Fleet>,
}

/// Follow everything
///
/// Server-sent events. The first is a `snapshot` (a `LiveSnapshot`). Then, at most twice a second and only if something changed:
/// `lanes` and `upstreams` (arrays of those that changed; a removed one is `{name, removed: true}`), `alerts` and `fleet`
/// (whole), `status` (whole, as `GET /v1/status`) and `jobs` (an array of `LiveJob`, in order). `gap` says that job events were
/// missed; a `snapshot` follows. The `id` of an event is an opaque cursor: a client that sends it as `Last-Event-ID` gets what
/// came after it, if that is still known. A key restricted to lanes or tenants gets only their events.
#[utoipa::path(get, path = "/v1/events", tag = "health",
    params(EventsQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event received")),
    responses((status = 200, body = String, content_type = "text/event-stream", description = "Events"),
        (status = 503, description = "Too many streams are open")))]
pub(super) async fn listen(
    state: LiveState,
    caller: Caller,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may(Right::SeeAll)?;
    let topics = Topics::parse(query.topics.as_deref())
        .map_err(|problem| Problem::invalid(&[Fault::new("topics", problem)]))?;
    let lane: Option<Name> = match &query.lane {
        Some(lane) => Some(submit::lane(&state.rules, &caller, lane)?.0),
        None => None,
    };
    let LiveState { live, store, rules, rates, metrics, peers, life, status } = state;
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    // A cursor that cannot be parsed is treated like one that is no longer covered.
    let cursor = last.or(query.cursor.as_deref()).map(|text| text.parse().unwrap_or(Cursor::UNKNOWN));
    let seat = live.open()?;
    let watcher = Watcher {
        live: live.clone(),
        store,
        rules: rules.clone(),
        rates,
        metrics,
        peers,
        life: life.clone(),
    };
    watcher.start_if_needed();
    let scope = Subscription { caller, topics, lane, tenant: query.tenant };
    let listener = Listener::new(live, (life, status), rules, scope, cursor, seat);
    Ok(Sse::new(listener.events().map(Ok::<_, Infallible>)).into_response())
}
