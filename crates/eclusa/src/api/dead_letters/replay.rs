//! Replay of one dead letter.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use eclusa_core::{DeadLetterView, NewJob, Replay, Replayed};
use serde_json::Value;

use super::super::audit::audit;
use super::super::auth::{Caller, Right};
use super::super::extract::{Body, NoQuery, Path};
use super::super::problem::{Kind, Problem};
use super::super::submit::{self, Intake, unconfirmed};
use super::DeadLetters;
use super::edit::edited;
use crate::decide::Decider;
use crate::intake::Fault;

/// Replay a dead letter
///
/// The letter is deleted when the replay succeeds. A body is a merge patch (RFC 7396) over `originalData`, validated
/// like a new job. Masked values need not be repeated.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/replay", tag = "dead-letters",
    params(("id" = String, Path, description = "The job that failed")),
    request_body(content = Option<Value>, content_type = "application/merge-patch+json"),
    responses((status = 202, body = super::super::model::Accepted),
        (status = 200, body = super::super::model::Accepted, description = "The replay has already ended")))]
pub(in super::super) async fn replay(
    State(decider): State<Arc<Decider>>,
    intake: Intake,
    letters: DeadLetters,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
    body: Body,
) -> Result<Response, Problem> {
    caller.may(Right::Operate)?;
    let view = letters.one(&caller, &id).await?;
    let edit = if body.0.is_empty() { None } else { edit(&letters, &intake, &caller, &view, &body).await? };
    let was_edited = edit.is_some();
    let (letter, lane) = (view.job, view.lane.clone());
    let ask = Replay { lane, letter, id: intake.ids.job(), edit: edit.map(Box::new) };
    match decider.replay(ask).await.map_err(|error| unconfirmed(&error))? {
        Replayed::As(job, _) => {
            let lane = &view.lane;
            audit!(caller, "replay", jobId = %job, replayOf = %letter, %lane, edited = was_edited, "Dead letter replayed");
            submit::accepted(&letters.store, job, None).await
        }
        Replayed::QueueFull => {
            let detail = format!("Lane `{}` is full: try again later", view.lane);
            Err(Problem::new(Kind::QueueFull, detail).retry_after(1))
        }
        Replayed::Invalid(error) => Err(Problem::invalid(&[Fault::new(error.field, error.problem)])),
        Replayed::Unknown | Replayed::IdTaken => {
            Err(Problem::new(Kind::NotFound, "The dead letter was deleted meanwhile"))
        }
    }
}

/// The job to send in place of the letter's content.
async fn edit(
    letters: &DeadLetters,
    intake: &Intake,
    caller: &Caller,
    view: &DeadLetterView,
    body: &Body,
) -> Result<Option<NewJob>, Problem> {
    let patch: Value = body.json()?;
    if patch.is_null() || patch.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(None);
    }
    if view.letter.replay.is_some() {
        let detail =
            "It is being replayed: wait for the end, or cancel the job that replays it (`replayedBy`)";
        return Err(Problem::new(Kind::Conflict, detail));
    }
    let (lane, rules) = submit::lane(&letters.rules, caller, view.lane.as_str())?;
    let masks = letters.masks(caller, view).unwrap_or_default();
    let submission = edited(view, patch, &masks)?;
    submit::job(intake, caller, (&lane, &rules), submission).await.map(Some)
}
