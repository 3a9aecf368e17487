//! `/v1/lanes/{lane}/jobs/batch`: many jobs in one call, an answer each.

use axum::Json;
use eclusa_core::{Name, NewJob};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::auth::{Caller, Right};
use super::extract::{Body, Path};
use super::job_request::JobRequest;
use super::jobs::CachedAnswer;
use super::model::Accepted;
use super::problem::Problem;
use super::submit::{self, Intake, Taken, unconfirmed};
use crate::config::Lane;
use crate::intake::Fault;

/// The most jobs in one batch.
const MAX_JOBS: usize = 1_000;

/// What became of one job of a batch.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum BatchAnswer {
    /// Taken in.
    Accepted(Accepted),
    /// Answered from the cache.
    Completed(CachedAnswer),
    /// Refused, as problem details.
    Problem(Value),
}

/// Enqueue up to 1000 jobs
///
/// Each stands for itself: one that is refused does not hinder the others. Answers are in the order of the jobs.
#[utoipa::path(post, path = "/v1/lanes/{lane}/jobs/batch", tag = "jobs", request_body = Vec<JobRequest>,
    params(("lane" = String, Path, description = "The lane")), responses((status = 200, body = Vec<BatchAnswer>)))]
pub(super) async fn enqueue(
    intake: Intake,
    caller: Caller,
    Path(lane): Path<String>,
    body: Body,
) -> Result<Json<Vec<BatchAnswer>>, Problem> {
    caller.may(Right::Enqueue)?;
    let (lane, rules) = submit::lane(&intake.rules, &caller, &lane)?;
    let asks: Vec<&RawValue> = body.json()?;
    if asks.is_empty() || asks.len() > MAX_JOBS {
        let fault = Fault::new("body", format!("must be an array of 1 to {MAX_JOBS} jobs"));
        return Err(Problem::invalid(&[fault]));
    }
    let parsed: Vec<Result<NewJob, Problem>> =
        asks.into_iter().map(|ask| job(&intake, &caller, (&lane, &rules), ask)).collect();
    let jobs: Vec<NewJob> = parsed.iter().filter_map(|job| job.as_ref().ok().cloned()).collect();
    let enqueued = intake.decider.enqueue(jobs, submit::stored_by(&intake.rules)).await;
    let enqueued = enqueued.map_err(|error| unconfirmed(&error))?;
    let mut enqueued = enqueued.jobs.into_iter();
    let mut answers = Vec::with_capacity(parsed.len());
    for job in parsed {
        let taken = job.and_then(|job| submit::taken(&lane, job.id, enqueued.next()));
        let answer = answer(&intake, &lane, taken).await;
        answers.push(answer.unwrap_or_else(|problem| BatchAnswer::Problem(problem.into_json())));
    }
    Ok(Json(answers))
}

fn job(intake: &Intake, caller: &Caller, lane: (&Name, &Lane), ask: &RawValue) -> Result<NewJob, Problem> {
    let ask: JobRequest = serde_json::from_str(ask.get())
        .map_err(|error| Problem::invalid(&[Fault::new("body", error.to_string())]))?;
    let submission = ask.into_submission(caller).map_err(|faults| Problem::invalid(&faults))?;
    submit::job(intake, caller, lane, submission)
}

async fn answer(intake: &Intake, lane: &Name, taken: Result<Taken, Problem>) -> Result<BatchAnswer, Problem> {
    match taken? {
        Taken::Job(_, Some(accepted)) => Ok(BatchAnswer::Accepted(accepted)),
        Taken::Job(id, None) => {
            submit::known(&intake.store, id).await.map(|(_, accepted)| BatchAnswer::Accepted(accepted))
        }
        Taken::Cached(cached) => CachedAnswer::new(lane, &cached).map(BatchAnswer::Completed),
    }
}
