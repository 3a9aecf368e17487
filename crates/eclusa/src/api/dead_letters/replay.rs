//! Replay of one dead letter.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use eclusa_core::{DeadLetterView, JobId, Name, NewJob, Replay, Replayed, Status};
use serde_json::Value;

use super::super::audit::audit;
use super::super::auth::{Caller, Right};
use super::super::enqueue;
use super::super::extract::{Body, NoQuery, Path};
use super::super::model::Accepted;
use super::super::problem::{Kind, Problem};
use super::super::store_problem::unconfirmed;
use super::super::submit::{self, Intake};
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
    responses((status = 202, body = Accepted),
        (status = 200, body = Accepted, description = "It was replayed before, and that job has ended")))]
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
    let (letter, lane, id) = (view.job, view.lane.clone(), intake.ids.job());
    let ask = Replay { lane, letter, id, edit: edit.map(Box::new) };
    match decider.replay(ask).await.map_err(|error| unconfirmed(&error))? {
        Replayed::As(job, _) => {
            let lane = &view.lane;
            audit!(caller, "replay", jobId = %job, replayOf = %letter, %lane, edited = was_edited, "Dead letter replayed");
            // The new job may have ended, and be forgotten, before this answer leaves: it is not looked up.
            enqueue::accepted(&letters.store, job, (job == id).then(|| queued(lane, job))).await
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

fn queued(lane: &Name, job: JobId) -> Accepted {
    Accepted {
        job_id: job.to_string(),
        status: Status::Queued.as_str().into(),
        lane: lane.to_string(),
        position: None,
        eta: None,
        expires_at: None,
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
