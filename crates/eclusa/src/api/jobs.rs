//! `/v1/lanes/{lane}/jobs` and `/v1/jobs`: jobs as JSON.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRef, State};
use axum::response::{IntoResponse, Response};
use eclusa_core::{Cached, Cancelled, Clock, Fallback, JobView, Name, Store, Wait};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::audit::audit;
use super::auth::{Caller, Right};
use super::enqueue::{self, Taken};
use super::extract::{Body, NoQuery, Path, Query};
use super::find::{OfLane, by_given_id, by_own_id, may_see, no_such_job, shown, visible};
use super::headers;
use super::json;
use super::model::JobRequest;
use super::model::vocabulary::{CachedReason, JobStatus, Priority};
use super::model::{Accepted, Job, JobResult, WhyAnswer};
use super::problem::{Kind, Problem};
use super::state::Api;
use super::store_problem::unavailable;
use super::submit::{self, Intake};
use super::wait;
use crate::awaited::{FollowUp, recall};
use crate::decide::Decider;
use crate::intake::Fault;
use crate::life::Life;
use crate::request;
use crate::rules::CurrentRules;
use crate::store::AnyStore;

/// A response from the cache; no job was created.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CachedAnswer {
    /// Always `completed`.
    #[schema(value_type = JobStatus)]
    status: &'static str,
    /// The lane.
    lane: String,
    /// The source of the result: `cache`, or why a stale entry was used.
    #[schema(value_type = CachedReason)]
    reason: &'static str,
    /// The cached response.
    result: JobResult,
}

impl CachedAnswer {
    pub(super) fn new(lane: &Name, cached: &Cached) -> Result<Self, Problem> {
        let response = request::Response::from_payload(&cached.answer)
            .map_err(|error| Problem::new(Kind::Internal, format!("What the cache holds {error}")))?;
        let reason = cached.stale.map_or("cache", Fallback::as_str);
        Ok(Self { status: "completed", lane: lane.to_string(), reason, result: response.into() })
    }
}

/// What is returned instead of 202.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
enum EndedAtOnce {
    /// Answered from the cache.
    Cached(CachedAnswer),
    /// With `Prefer: wait`: the job, after it has ended.
    Job(Box<Job>),
    /// A job that was enqueued before and has ended.
    Known(Accepted),
}

/// Enqueue a job
///
/// With `Prefer: wait=N`, returns the job itself if it ends within N seconds.
#[utoipa::path(post, path = "/v1/lanes/{lane}/jobs", tag = "jobs", request_body = JobRequest,
    params(
        ("lane" = String, Path, description = "The lane"),
        ("Prefer" = Option<String>, Header, description = "`wait=10`: seconds to wait for the job to end"),
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, description = "Same as `id`"),
        ("Eclusa-Tenant" = Option<String>, Header, description = "Same as `tenant`"),
        ("Eclusa-Priority" = Option<Priority>, Header, description = "Same as `priority`"),
        ("Eclusa-Type" = Option<String>, Header, description = "Same as `type`"),
        ("Eclusa-Ttl" = Option<String>, Header, description = "Same as `ttl`"),
    ),
    responses((status = 202, body = Accepted, description = "Accepted; the job waits"),
        (status = 200, body = EndedAtOnce, description = "Answered from the cache, or the job has ended")))]
pub(super) async fn enqueue(
    intake: Intake,
    caller: Caller,
    Path(lane): Path<String>,
    headers: HeaderMap,
    _: NoQuery,
    body: Body,
) -> Result<Response, Problem> {
    let (lane, rules) = submit::lane(&intake.rules, &caller, &lane)?;
    let span = intake.traces.request(&headers);
    let (mut ask, mut faults): (JobRequest, _) = json::partly(&body.0)?;
    headers::apply(&headers, &mut ask, &mut faults)?;
    let trace = (span.as_deref(), &headers);
    let job = submit::described(&intake, &caller, (&lane, &rules), (ask, faults), trace).await?;
    let wait = headers::prefer_wait(&headers).map(|wait| wait.min(intake.rules.get().config.server.max_wait));
    let (taken, ended) = Box::pin(enqueue::enqueue(&intake, job, wait, span)).await?;
    Ok(match taken {
        Taken::Job(id, accepted) => match wait {
            Some(wait) => {
                let whole = |job: JobView| {
                    let id = headers::header("eclusa-job-id", &job.id.to_string());
                    let mut response = Json(shown(&intake.rules, &caller, job)).into_response();
                    response.headers_mut().extend(id);
                    response
                };
                enqueue::answered(&intake.store, id, (wait, ended), whole).await?
            }
            None => enqueue::accepted(&intake.store, id, accepted).await?,
        },
        Taken::Cached(cached) => {
            let mut response = (StatusCode::OK, Json(CachedAnswer::new(&lane, &cached)?)).into_response();
            response.headers_mut().extend(headers::header("cache-status", &headers::cache_hit(&cached)));
            response
        }
    })
}

/// Get a job with its timeline and result
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "The job's id, or the id given by its caller"), OfLane),
    responses((status = 200, body = Job), (status = 409, description = "Jobs in several lanes have this id")))]
pub(super) async fn get(
    State(store): State<Arc<AnyStore>>,
    State(rules): State<Arc<CurrentRules>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(of): Query<OfLane>,
) -> Result<Json<Job>, Problem> {
    let job = visible(&store, &caller, &id, of.lane.as_deref()).await?;
    Ok(Json(shown(&rules, &caller, job)))
}

/// How long to wait, and for which job.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitQuery {
    /// Seconds; limited by `server.max_wait`.
    #[param(default = 10)]
    timeout: Option<f64>,
    /// The lane of the job, if jobs of other lanes have the same id.
    lane: Option<String>,
}

/// Wait until a job has ended
///
/// Responds when the job has ended, or after the timeout with the job's current state.
#[utoipa::path(get, path = "/v1/jobs/{id}/wait", tag = "jobs",
    params(("id" = String, Path, description = "The job's id, or the id given by its caller"), WaitQuery),
    responses((status = 200, body = Job)))]
pub(super) async fn wait(
    intake: Intake,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<WaitQuery>,
) -> Result<Json<Job>, Problem> {
    caller.may(Right::SeeJob)?;
    let seconds = query.timeout.unwrap_or(10.0);
    let Ok(timeout) = Duration::try_from_secs_f64(seconds) else {
        return Err(Problem::invalid(&[Fault::new("timeout", "must be a number of seconds, zero or more")]));
    };
    let timeout = timeout.min(intake.rules.get().config.server.max_wait).into();
    let lane = query.lane.as_deref();
    if let Ok(job) = id.parse()
        && let Some(job) = Box::pin(end_of(&intake, &caller, Wait::for_end(job, timeout), lane)).await?
    {
        return Ok(Json(shown(&intake.rules, &caller, job)));
    }
    let job = by_given_id(&intake.store, &caller, &id, lane).await?.id;
    let ended = Box::pin(end_of(&intake, &caller, Wait::for_end(job, timeout), lane)).await?;
    ended.map(|job| Json(shown(&intake.rules, &caller, job))).ok_or_else(no_such_job)
}

/// The job once it has ended, or its state when the time is over, if the caller may see it.
async fn end_of(
    intake: &Intake,
    caller: &Caller,
    ask: Wait,
    lane: Option<&str>,
) -> Result<Option<JobView>, Problem> {
    let id = ask.job;
    // Start waiting before looking: a job that ends between the two may be forgotten.
    let mut ended = std::pin::pin!(wait::ended(intake, ask));
    let (early, seen) = wait::begin_then(&mut ended, by_own_id(&intake.store, caller, id, lane)).await;
    match (early, seen) {
        // It ended before it was looked up, and may be forgotten: return it as it ended.
        (Some(Ok(Some(job))), _) => Ok(may_see(caller, job, lane)),
        (Some(job), seen) => seen.and(job),
        (None, Ok(Some(_))) => ended.await,
        (None, seen) => seen,
    }
}

/// Explain why a job waits, and until when
#[utoipa::path(get, path = "/v1/jobs/{id}/why", tag = "jobs",
    params(("id" = String, Path, description = "The job's id, or the id given by its caller"), OfLane),
    responses((status = 200, body = WhyAnswer)))]
pub(super) async fn why(
    State(store): State<Arc<AnyStore>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(of): Query<OfLane>,
) -> Result<Json<WhyAnswer>, Problem> {
    let id = visible(&store, &caller, &id, of.lane.as_deref()).await?.id;
    let why = store.why(id).await.map_err(|error| unavailable(&error))?;
    why.map(|why| Json(why.into())).ok_or_else(no_such_job)
}

/// What is needed to notify an upstream of a cancellation.
#[derive(Clone)]
pub(super) struct Canceller {
    rules: Arc<CurrentRules>,
    clock: Arc<dyn Clock>,
    life: Arc<Life>,
}

impl FromRef<Api> for Canceller {
    fn from_ref(api: &Api) -> Self {
        Self { rules: FromRef::from_ref(api), clock: FromRef::from_ref(api), life: FromRef::from_ref(api) }
    }
}

impl Canceller {
    /// Cancels the job at an upstream that works on it, if the upstream has a `cancel`.
    pub(super) fn recall(&self, decider: &Arc<Decider>, job: &JobView) {
        let follow_up = FollowUp { rules: self.rules.get(), clock: self.clock.clone() };
        recall(follow_up, decider, &self.life, job);
    }
}

/// Cancel a job
///
/// A call that is in progress is not aborted, but its result no longer counts. An `async` upstream that works on the
/// job is notified if it has a `cancel`.
#[utoipa::path(delete, path = "/v1/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "The job's id, or the id given by its caller"), OfLane),
    responses((status = 200, body = Job), (status = 409, description = "The job has already ended")))]
pub(super) async fn cancel(
    State(store): State<Arc<AnyStore>>,
    State(rules): State<Arc<CurrentRules>>,
    State(decider): State<Arc<Decider>>,
    State(canceller): State<Canceller>,
    caller: Caller,
    Path(id): Path<String>,
    Query(of): Query<OfLane>,
) -> Result<Json<Job>, Problem> {
    caller.may(Right::Operate)?;
    let running = visible(&store, &caller, &id, of.lane.as_deref()).await?;
    let id = running.id;
    match decider.cancel(id).await.map_err(|error| unavailable(&error))? {
        Cancelled::Yes(ended) => {
            canceller.recall(&decider, &running);
            audit!(caller, "cancel", jobId = %id, lane = %running.lane, "Job cancelled");
            if let Some(job) = ended.forgotten {
                return Ok(Json(shown(&rules, &caller, *job)));
            }
        }
        Cancelled::Unknown => return Err(no_such_job()),
        Cancelled::AlreadyEnded(status) => {
            let detail = format!("The job has already ended: it is {}", status.as_str());
            return Err(Problem::new(Kind::Conflict, detail).with("jobStatus", status.as_str()));
        }
    }
    let job = store.job(id).await.map_err(|error| unavailable(&error))?;
    job.map(|job| Json(shown(&rules, &caller, job))).ok_or_else(no_such_job)
}
