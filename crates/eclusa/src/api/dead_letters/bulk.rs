//! Bulk replay: many dead letters, enqueued again as their lanes have room.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use eclusa_core::{BulkAnswer, BulkAsk, BulkView, JobId, Store};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::audit::audit;
use super::super::auth::{Caller, Right};
use super::super::extract::{Body, NoQuery, Path};
use super::super::model::object;
use super::super::model::vocabulary::ReplayStatus;
use super::super::problem::{Kind, Problem};
use super::super::store_problem::{unavailable, unconfirmed};
use super::DeadLetters;
use super::filter::{FilterBody, reaches};
use crate::ids::Ids;
use crate::words::iso;

/// Which letters to replay.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BulkRequest {
    /// The letters to replay; all if empty.
    #[serde(default, deserialize_with = "object::required")]
    pub filter: FilterBody,
    /// Whether to only count them.
    #[serde(default)]
    pub dry_run: bool,
}

/// A bulk replay of dead letters.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkReplay {
    /// Its id.
    pub replay_id: String,
    /// `counting`, `running`, `done` or `stopped`.
    #[schema(value_type = ReplayStatus)]
    pub status: String,
    /// Letters that matched when it began; while `counting`, those found so far.
    pub total: u64,
    /// Letters replayed successfully, which are deleted.
    pub replayed: u64,
    /// Letters that failed again, which are kept.
    pub failed: u64,
    /// Letters that wait in their lane or are being processed.
    pub running: u64,
    /// Letters not enqueued yet.
    pub remaining: u64,
    /// When it began.
    #[schema(format = DateTime)]
    pub started_at: Option<String>,
    /// When it finished or was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
    /// The letters it replays.
    pub filter: FilterBody,
}

impl From<BulkView> for BulkReplay {
    fn from(view: BulkView) -> Self {
        Self {
            replay_id: view.id.to_string(),
            status: view.status.as_str().into(),
            total: view.total,
            replayed: view.replayed,
            failed: view.failed,
            running: view.running,
            remaining: view.remaining,
            started_at: iso(view.began),
            ended_at: view.ended.and_then(iso),
            filter: FilterBody::shown(&view.filter),
        }
    }
}

/// Bulk replays of dead letters.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BulkList {
    /// Newest first. The last twenty are kept.
    pub replays: Vec<BulkReplay>,
}

/// How many letters would be replayed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Counted {
    /// Letters that match.
    matched: u64,
    /// Always `true`.
    dry_run: bool,
}

/// Replay all dead letters that match
///
/// The letters that exist now are enqueued again as their lanes have room, by the process that owns the store. The
/// replay survives crashes. See `/v1/dead-letters/replays/{id}`.
#[utoipa::path(post, path = "/v1/dead-letters/replay", tag = "dead-letters", request_body = BulkRequest,
    responses((status = 202, body = BulkReplay), (status = 200, body = Counted, description = "With `dryRun`")))]
pub(in super::super) async fn begin(
    letters: DeadLetters,
    State(ids): State<Arc<Ids>>,
    caller: Caller,
    _: NoQuery,
    body: Body,
) -> Result<Response, Problem> {
    caller.may(Right::Operate)?;
    let BulkRequest { filter, dry_run } =
        if body.0.is_empty() { BulkRequest::default() } else { body.object()? };
    let filter = filter.read(&letters.rules, &caller, letters.now())?;
    if dry_run {
        let matched = letters.count_all(filter, true).await?;
        return Ok(Json(Counted { matched, dry_run }).into_response());
    }
    let ask = BulkAsk::Begin { id: ids.job(), filter };
    let answer = letters.store.bulk(ask).await.map_err(|error| unconfirmed(&error))?;
    let BulkAnswer::Replays(mut begun) = answer else {
        let detail =
            "Twenty replays are in progress: stop one (`DELETE /v1/dead-letters/replays/{id}`), or wait";
        return Err(Problem::new(Kind::Conflict, detail));
    };
    let Some(view) = begun.pop() else {
        return Err(Problem::new(Kind::Internal, "The store answered nothing"));
    };
    let replay = BulkReplay::from(view);
    let (id, total, filter) = (&replay.replay_id, replay.total, replay.filter.to_string());
    audit!(caller, "replay", replayId = %id, letters = total, filter, "Bulk replay of dead letters started");
    let location = HeaderValue::try_from(format!("/v1/dead-letters/replays/{id}"));
    let mut response = (StatusCode::ACCEPTED, Json(replay)).into_response();
    response.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
    Ok(response)
}

/// List bulk replays, newest first
#[utoipa::path(get, path = "/v1/dead-letters/replays", tag = "dead-letters",
    responses((status = 200, body = BulkList)))]
pub(in super::super) async fn show_all(
    letters: DeadLetters,
    caller: Caller,
    _: NoQuery,
) -> Result<Json<BulkList>, Problem> {
    caller.may(Right::SeeAll)?;
    let views = ask(&letters, &caller, BulkAsk::List).await?;
    Ok(Json(BulkList { replays: views.into_iter().map(BulkReplay::from).collect() }))
}

/// Get the progress of a bulk replay
#[utoipa::path(get, path = "/v1/dead-letters/replays/{id}", tag = "dead-letters",
    params(("id" = String, Path, description = "The replay")), responses((status = 200, body = BulkReplay)))]
pub(in super::super) async fn show(
    letters: DeadLetters,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<BulkReplay>, Problem> {
    caller.may(Right::SeeAll)?;
    let view = ask(&letters, &caller, BulkAsk::Show(parse(&id)?)).await?.pop();
    view.map(|view| Json(view.into())).ok_or_else(missing)
}

/// Stop a bulk replay
///
/// No more letters are enqueued. Those already in their lanes continue; cancel their jobs to stop them too.
#[utoipa::path(delete, path = "/v1/dead-letters/replays/{id}", tag = "dead-letters",
    params(("id" = String, Path, description = "The replay")), responses((status = 200, body = BulkReplay)))]
pub(in super::super) async fn stop(
    letters: DeadLetters,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<BulkReplay>, Problem> {
    caller.may(Right::Operate)?;
    let id = parse(&id)?;
    if ask(&letters, &caller, BulkAsk::Show(id)).await?.is_empty() {
        return Err(missing());
    }
    let view = ask(&letters, &caller, BulkAsk::Stop(id)).await?.pop().ok_or_else(missing)?;
    audit!(caller, "stop_replay", replayId = %id, "Bulk replay of dead letters stopped");
    Ok(Json(view.into()))
}

/// The requested replays, restricted to letters that the caller may access.
async fn ask(letters: &DeadLetters, caller: &Caller, ask: BulkAsk) -> Result<Vec<BulkView>, Problem> {
    let answer = letters.store.bulk(ask).await.map_err(|error| unavailable(&error))?;
    let BulkAnswer::Replays(views) = answer else { return Ok(Vec::new()) };
    Ok(views.into_iter().filter(|view| reaches(caller, &view.filter)).collect())
}

fn parse(id: &str) -> Result<JobId, Problem> {
    id.parse().map_err(|_| missing())
}

fn missing() -> Problem {
    Problem::new(Kind::NotFound, "There is no such replay: it never existed, or is no longer kept")
}
