//! `/v1/dead-letters`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use eclusa_core::{Callback, DeadLetterView, JobId, Name, Replayed, Store};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Right};
use super::extract::{Path, Query};
use super::find::masks;
use super::model::{DeadLetter, Job, Shown, shown};
use super::problem::{Kind, Problem};
use super::state::Api;
use super::submit::{self, unavailable, unconfirmed};
use crate::config::Field;
use crate::decide::Decider;
use crate::ids::Ids;
use crate::request::Envelope;
use crate::rules::CurrentRules;
use crate::store::AnyStore;

/// How many letters a page shows.
const PAGE: usize = 50;
/// How many letters one step of a search looks at.
const STEP: usize = 1_000;

/// What looking at dead letters needs.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct DeadLetters {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
}

/// Which letters to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Of this lane.
    lane: Option<String>,
    /// Of this tenant.
    tenant: Option<String>,
    /// With this code of the last failure.
    code: Option<String>,
    /// Where the last page said to go on.
    cursor: Option<String>,
}

/// Some dead letters.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterList {
    /// By lane, oldest first.
    pub dead_letters: Vec<DeadLetter>,
    /// Where to go on; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Dead letters, oldest first
///
/// What was to be sent is shown only with a single letter.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead letters", params(ListQuery),
    responses((status = 200, body = DeadLetterList)))]
pub(super) async fn list(
    letters: DeadLetters,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<DeadLetterList>, Problem> {
    caller.may(Right::SeeAll)?;
    let (start, mut after) = query.cursor.as_deref().map(cursor).transpose()?.unwrap_or_default();
    let mut found = Vec::new();
    for lane in letters
        .lanes(&caller, query.lane.as_deref())?
        .into_iter()
        .filter(|lane| lane.as_str() >= start.as_str())
    {
        if lane.as_str() != start {
            after = 0;
        }
        loop {
            let page = letters.store.dead_letters(lane.clone(), after, STEP).await;
            let page = page.map_err(|error| unavailable(&error))?;
            let full = page.len() == STEP;
            for (place, letter) in page {
                after = place;
                if fits(&query, &caller, &letter) {
                    found.push(DeadLetter::from(letter));
                }
                if found.len() == PAGE {
                    let cursor = Some(format!("{lane}:{after}"));
                    return Ok(Json(DeadLetterList { dead_letters: found, cursor }));
                }
            }
            if !full {
                break;
            }
        }
    }
    Ok(Json(DeadLetterList { dead_letters: found, cursor: None }))
}

/// A cursor is the lane and the place in it.
fn cursor(text: &str) -> Result<(String, u64), Problem> {
    let parts = text.rsplit_once(':').and_then(|(lane, place)| Some((lane.to_owned(), place.parse().ok()?)));
    parts.ok_or_else(|| Problem::new(Kind::BadRequest, "The cursor is not one that a page gave"))
}

fn fits(query: &ListQuery, caller: &Caller, view: &DeadLetterView) -> bool {
    let letter = &view.letter;
    let tenant = query.tenant.as_ref().is_none_or(|tenant| **tenant == *letter.tenant);
    let code = query.code.as_ref().is_none_or(|code| letter.last_failure.code.as_deref() == Some(code));
    tenant && code && caller.may_be(&letter.tenant).is_ok()
}

impl DeadLetters {
    /// The lanes that the caller may use, or only this one.
    fn lanes(&self, caller: &Caller, only: Option<&str>) -> Result<Vec<Name>, Problem> {
        if let Some(lane) = only {
            return Ok(vec![submit::lane(&self.rules, caller, lane)?.0]);
        }
        let rules = self.rules.get();
        Ok(rules.config.lanes.keys().filter(|lane| caller.may_use(lane).is_ok()).cloned().collect())
    }

    async fn one(&self, caller: &Caller, id: &str) -> Result<DeadLetterView, Problem> {
        let missing = || {
            let detail = "There is no such dead letter: it never was, was replayed with success, or was kept no longer";
            Problem::new(Kind::NotFound, detail)
        };
        let id: JobId = id.parse().map_err(|_| missing())?;
        let view = self.store.dead_letter(id).await.map_err(|error| unavailable(&error))?;
        let may_see = |view: &DeadLetterView| {
            caller.may_use(&view.lane).is_ok() && caller.may_be(&view.letter.tenant).is_ok()
        };
        view.filter(may_see).ok_or_else(missing)
    }
}

/// One dead letter with what was to be sent
#[utoipa::path(get, path = "/v1/dead-letters/{id}", tag = "dead letters",
    params(("id" = String, Path, description = "The job that failed")), responses((status = 200, body = DeadLetter)))]
pub(super) async fn get(
    letters: DeadLetters,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<DeadLetter>, Problem> {
    caller.may(Right::SeeAll)?;
    let view = letters.one(&caller, &id).await?;
    let masks = masks(&letters.rules, &caller, &view.lane);
    let data = original_data(&view, masks.as_deref());
    Ok(Json(DeadLetter { original_data: data, ..view.into() }))
}

/// What was to be sent, in the form in which a job is enqueued, but for what `masks` hide; nothing if that is not known.
fn original_data(view: &DeadLetterView, masks: Option<&[Field]>) -> Option<serde_json::Value> {
    if let Ok(Callback { url, job }) = Callback::decode(&view.letter.payload) {
        // What follows in the address may be a secret of whoever is called, and the lane of the job masks its params.
        let url = url.split('?').next().unwrap_or_default();
        let job = Job { params: None, ..Job::from(job) };
        return Some(serde_json::json!({ "callbackUrl": url, "job": job }));
    }
    let envelope = Envelope::from_payload(&view.letter.payload).ok()?;
    let kind = envelope.kind.clone();
    let Shown { request, message, params } = shown(envelope, masks?);
    let mut data = serde_json::json!({ "type": kind, "params": params });
    if let Some(request) = request {
        data["request"] = serde_json::json!(request);
    }
    if let Some(message) = message {
        data["message"] = message;
    }
    Some(data)
}

/// Enqueue a dead letter again
///
/// It goes when the replay succeeds.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/replay", tag = "dead letters",
    params(("id" = String, Path, description = "The job that failed")),
    responses((status = 202, body = super::model::Accepted)))]
pub(super) async fn replay(
    State(decider): State<Arc<Decider>>,
    State(ids): State<Arc<Ids>>,
    letters: DeadLetters,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    caller.may(Right::Operate)?;
    let view = letters.one(&caller, &id).await?;
    let replayed = decider.replay(view.lane.clone(), view.job, ids.job()).await;
    match replayed.map_err(|error| unconfirmed(&error))? {
        Replayed::As(job, _) => {
            tracing::info!(jobId = %job, replayOf = %view.job, lane = %view.lane, "Dead letter replayed");
            submit::accepted(&letters.store, job, None).await
        }
        Replayed::QueueFull => {
            let detail = format!("Lane `{}` is full: try again when jobs have left it", view.lane);
            Err(Problem::new(Kind::QueueFull, detail).retry_after(1))
        }
        Replayed::Unknown | Replayed::IdTaken => {
            Err(Problem::new(Kind::NotFound, "The dead letter went while it was asked for"))
        }
    }
}

/// How to count.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct StatsQuery {
    /// `code` (default), `tenant` or `lane`.
    by: Option<By>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// By the code of the last failure.
    Code,
    /// By tenant.
    Tenant,
    /// By lane.
    Lane,
}

/// Numbers of dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stats {
    /// All of them.
    total: u64,
    /// By what was asked for; letters without a code count under `none`.
    counts: BTreeMap<String, u64>,
}

/// Count dead letters
#[utoipa::path(get, path = "/v1/dead-letters/stats", tag = "dead letters", params(StatsQuery),
    responses((status = 200, body = Stats)))]
pub(super) async fn stats(
    letters: DeadLetters,
    caller: Caller,
    Query(query): Query<StatsQuery>,
) -> Result<Json<Stats>, Problem> {
    caller.may(Right::SeeAll)?;
    let by = query.by.unwrap_or(By::Code);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for lane in letters.lanes(&caller, None)? {
        let mut after = 0;
        loop {
            let page = letters.store.dead_letters(lane.clone(), after, STEP).await;
            let page = page.map_err(|error| unavailable(&error))?;
            for (_, view) in page.iter().filter(|(_, view)| caller.may_be(&view.letter.tenant).is_ok()) {
                let key = match by {
                    By::Code => view.letter.last_failure.code.as_deref().unwrap_or("none"),
                    By::Tenant => &view.letter.tenant,
                    By::Lane => lane.as_str(),
                };
                *counts.entry(key.to_owned()).or_default() += 1;
            }
            match page.last() {
                Some((place, _)) if page.len() == STEP => after = *place,
                _ => break,
            }
        }
    }
    Ok(Json(Stats { total: counts.values().sum(), counts }))
}
