//! Puts a job into the store and waits for what the caller is answered, shared by `/v1/lanes/{lane}/jobs` and `/proxy`.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use eclusa_core::{
    Cached, EnqueueAnswer, Enqueued, JobId, JobView, Name, NewJob, Status, Store, StoreError, Wait,
};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use super::headers::header;
use super::model::{Accepted, iso};
use super::problem::{Kind, Problem};
use super::store_problem::{unavailable, unconfirmed};
use super::submit::Intake;
use super::wait::{begin_then, ended};
use crate::intake::Fault;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::traces::OpenSpan;

/// The result of enqueueing a job.
pub(super) enum Taken {
    /// Accepted; or, without `Accepted`, already known under this id and maybe ended.
    Job(JobId, Option<Accepted>),
    /// Answered from the cache.
    Cached(Cached),
}

/// Interprets the store's answer for one job.
pub(super) fn taken(lane: &Name, id: JobId, enqueued: Option<Enqueued>) -> Result<Taken, Problem> {
    let Some(enqueued) = enqueued else {
        return Err(Problem::new(Kind::Internal, "The store answered nothing"));
    };
    match enqueued {
        Enqueued::Accepted(place) => {
            let accepted = Accepted {
                job_id: id.to_string(),
                status: place.status.as_str().into(),
                lane: lane.to_string(),
                position: Some(place.position),
                eta: place.eta.and_then(iso),
                expires_at: iso(place.expires_at),
            };
            Ok(Taken::Job(id, Some(accepted)))
        }
        Enqueued::Existing(first) => Ok(Taken::Job(first, None)),
        Enqueued::Cached(cached) => Ok(Taken::Cached(cached)),
        Enqueued::Conflict(_) => {
            let detail = "The key belongs to a job with another payload; use a new key";
            Err(Problem::new(Kind::IdempotencyConflict, detail))
        }
        Enqueued::QueueFull => {
            let detail = format!("Lane `{lane}` is full and holds no job of lower priority to evict");
            Err(Problem::new(Kind::QueueFull, detail).with("lane", lane.as_str()).retry_after(1))
        }
        Enqueued::NotInTime { eta, late } => {
            let quoted = iso(eta).unwrap_or_default();
            let detail = format!(
                "At the current pace the job would start at {quoted}, after it expires; send it later, or with a longer `ttl`"
            );
            let problem =
                Problem::new(Kind::NotInTime, detail).with("lane", lane.as_str()).with("eta", quoted);
            Err(problem.retry_after(late.as_millis().div_ceil(1_000).max(1)))
        }
        Enqueued::UnknownLane => Err(Problem::new(Kind::NotFound, format!("There is no lane `{lane}`"))),
        Enqueued::Invalid(error) => Err(Problem::invalid(&[Fault::new(error.field, error.problem)])),
    }
}

/// Until when the store may take to confirm what is enqueued now.
pub(super) fn stored_by(rules: &CurrentRules) -> Instant {
    Instant::now() + rules.get().config.server.max_wait
}

/// Enqueues one job. For a caller that waits, also returns the job after it ended or the time is over.
pub(super) async fn enqueue(
    intake: &Intake,
    job: NewJob,
    wait: Option<Duration>,
    span: Option<Box<OpenSpan>>,
) -> Result<(Taken, Option<JobView>), Problem> {
    let job = NewJob { caller_waits: wait.filter(|_| answers_matter(intake, &job)).map(Into::into), ..job };
    let (id, lane) = (job.id, job.lane.clone());
    let put = intake.decider.enqueue(vec![job], stored_by(&intake.rules));
    let interpret = |answer: Result<EnqueueAnswer, StoreError>| {
        let failed = answer.as_ref().err().map(ToString::to_string);
        let answer = answer.map_err(|error| unconfirmed(&error).with("jobId", id.to_string()));
        let taken = answer.and_then(|mut answer| taken(&lane, id, answer.jobs.pop()));
        // The span ends here, not when the job does.
        if let Some(mut span) = span {
            let job = match &taken {
                Ok(Taken::Job(job, _)) => Some(*job),
                // It may be stored.
                Err(_) if failed.is_some() => Some(id),
                Ok(Taken::Cached(_)) | Err(_) => None,
            };
            span.of_intake(&lane, job);
            failed.iter().for_each(|error| span.fail(error));
        }
        taken
    };
    let Some(wait) = wait else { return Ok((interpret(put.await)?, None)) };
    let mut waiting =
        std::pin::pin!(ended(intake, Wait { allow_unknown: true, ..Wait::for_end(id, wait.into()) }));
    // Start waiting first: a job may end, and be forgotten, before its acceptance is known.
    let (early, answer) = begin_then(&mut waiting, put).await;
    let taken = interpret(answer)?;
    let job = match (&taken, early) {
        (Taken::Cached(_), _) => None,
        (Taken::Job(known, _), _) if *known != id => {
            ended(intake, Wait::for_end(*known, wait.into())).await?
        }
        (Taken::Job(..), Some(job)) => job?,
        (Taken::Job(..), None) => waiting.await?,
    };
    Ok((taken, job))
}

/// Whether the job's lane distinguishes jobs whose caller waits for the answer.
fn answers_matter(intake: &Intake, job: &NewJob) -> bool {
    let rules = intake.rules.get();
    let lane = rules.config.spec.lane(&job.lane);
    lane.and_then(|lane| lane.dead_letters.as_ref()).is_some_and(|rule| !rule.answers())
}

/// 202 with the location of a job that waits; 200 for a known job that has ended.
pub(super) async fn accepted(
    store: &AnyStore,
    id: JobId,
    accepted: Option<Accepted>,
) -> Result<Response, Problem> {
    let (status, accepted) = match accepted {
        Some(accepted) => (StatusCode::ACCEPTED, accepted),
        None => known(store, id).await?,
    };
    let location = HeaderValue::try_from(format!("/v1/jobs/{id}"));
    let job_id = header("eclusa-job-id", &accepted.job_id);
    let mut response = (status, axum::Json(accepted)).into_response();
    response.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
    response.headers_mut().extend(job_id);
    Ok(response)
}

/// The response for a job that was enqueued before.
pub(super) async fn known(store: &AnyStore, id: JobId) -> Result<(StatusCode, Accepted), Problem> {
    let job = store.job(id).await.map_err(|error| unavailable(&error))?;
    let Some(job) = job else {
        let detail = format!("The key belongs to job {id}, which has ended and is no longer kept");
        return Err(Problem::new(Kind::Conflict, detail).with("jobId", id.to_string()));
    };
    let status = if job.status.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let accepted = Accepted {
        job_id: id.to_string(),
        status: job.status.as_str().into(),
        lane: job.lane.to_string(),
        position: None,
        eta: None,
        expires_at: iso(job.expires_at),
    };
    Ok((status, accepted))
}

/// Responds with `answer` for a job that has ended, else with 202 and its state after the wait.
pub(super) async fn answered(
    store: &AnyStore,
    id: JobId,
    (wait, job): (Duration, Option<JobView>),
    answer: impl FnOnce(JobView) -> Response,
) -> Result<Response, Problem> {
    let mut response = match job {
        Some(job) if job.status.is_final() => answer(job),
        Some(job) => accepted(store, id, Some(unfinished(store, &job).await?)).await?,
        None => {
            let detail = format!("Job {id} has ended, and its result is no longer kept (`keep`)");
            return Err(Problem::new(Kind::NotFound, detail).with("jobId", id.to_string()));
        }
    };
    response.headers_mut().extend(header("preference-applied", &format!("wait={}", wait.as_secs())));
    Ok(response)
}

/// A job that has not ended, with its position if it waits.
async fn unfinished(store: &AnyStore, job: &JobView) -> Result<Accepted, Problem> {
    let why = match job.status {
        Status::Processing => None,
        _ => store.why(job.id).await.map_err(|error| unavailable(&error))?,
    };
    Ok(Accepted {
        job_id: job.id.to_string(),
        status: job.status.as_str().into(),
        lane: job.lane.to_string(),
        position: why.as_ref().map(|why| why.position),
        eta: why.and_then(|why| why.eta).and_then(iso),
        expires_at: iso(job.expires_at),
    })
}
