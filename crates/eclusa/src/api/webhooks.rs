//! Webhooks: an upstream reports the result of a job it worked on. They need no key, but must be authentic.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, Request, State};
use eclusa_core::{Clock, Completed, JobId, JobView, Name, Settled, Status, Store};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Body, Path, Query};
use super::find::no_such_job;
use super::model::vocabulary::JobStatus;
use super::problem::{Kind, Problem};
use super::state::Api;
use super::store_problem::unavailable;
use crate::awaited::{JobProgress, completion, progress};
use crate::config::{Async, Webhook};
use crate::decide::Decider;
use crate::ids::own_nonce;
use crate::life::Life;
use crate::request::Response;
use crate::rules::{CurrentRules, Rules};
use crate::store::AnyStore;
use crate::verify::{Incoming, verify};

/// Webhook bodies may use this fraction (1/N) of `server.max_bodies`, separate from callers with keys: anybody can send
/// one.
const SHARE: usize = 8;

/// State needed by this call.
#[derive(Clone)]
pub(super) struct WebhookState {
    store: Arc<AnyStore>,
    decider: Arc<Decider>,
    rules: Arc<CurrentRules>,
    life: Arc<Life>,
    clock: Arc<dyn Clock>,
}

impl FromRef<Api> for WebhookState {
    fn from_ref(api: &Api) -> Self {
        let (store, decider, life) = (FromRef::from_ref(api), FromRef::from_ref(api), FromRef::from_ref(api));
        Self { store, decider, rules: FromRef::from_ref(api), life, clock: FromRef::from_ref(api) }
    }
}

/// The query of a webhook URL.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookQuery {
    /// With `verify = "token"`: the token that is part of `{webhook_url}`.
    token: Option<String>,
}

/// The effect of a webhook.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WebhookReceipt {
    /// The job's id.
    job_id: String,
    /// Whether the webhook changed the job. `false` if it is a repetition, if the job has ended or moved on, or if the
    /// upstream reports that it still works.
    changed: bool,
    /// The job's status afterwards.
    #[schema(value_type = JobStatus)]
    status: &'static str,
}

/// Report the result of a job, as its upstream
///
/// Needs no key: the webhook must be signed or carry the token, as the upstream's `async.webhook` requires. Repeating
/// it is harmless.
#[utoipa::path(post, path = "/v1/webhooks/{upstream}/{jobId}", tag = "webhooks",
    params(("upstream" = String, Path, description = "The upstream that reports"),
        ("jobId" = String, Path, description = "The job's id"),
        WebhookQuery),
    request_body(content = serde_json::Value, description = "Becomes `result.body` of the job"),
    responses((status = 200, body = WebhookReceipt), (status = 401, description = "Not authentic, or too old"),
        (status = 404, description = "Unknown job, or the upstream sends no webhooks"),
        (status = 413, description = "The body is too large")))]
pub(super) async fn receive(
    State(WebhookState { store, decider, rules, life, clock }): State<WebhookState>,
    Path((upstream, job)): Path<(String, String)>,
    Query(query): Query<WebhookQuery>,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<WebhookReceipt>, Problem> {
    let rules = rules.get();
    let (upstream, awaited, webhook) = receiver(&rules, &upstream)?;
    let job: JobId = job.parse().map_err(|_| no_such_job())?;
    let server = &rules.config.server;
    let received = life.webhooks.begin(server.max_bodies / SHARE);
    let body = Body::receive(request.into_body(), server, received).await?;
    let incoming =
        Incoming { upstream, job, headers: &headers, body: &body.0, token: query.token.as_deref() };
    let message = verify(&webhook.verify, &incoming, clock.now()).map_err(|untrue| {
        tracing::warn!(jobId = %job, %upstream, reason = untrue.problem(), "Webhook refused");
        Problem::new(Kind::Unauthorized, untrue.problem())
    })?;
    let view = store.job(job).await.map_err(|error| unavailable(&error))?.ok_or_else(no_such_job)?;
    let progress = progress(webhook.states.as_ref(), &body.0);
    let noted = |status: Status, changed| {
        Json(WebhookReceipt { job_id: job.to_string(), changed, status: status.as_str() })
    };
    if progress == JobProgress::Running {
        tracing::debug!(jobId = %job, %upstream, "Webhook received: the upstream still works on the job");
        return Ok(noted(view.status, false));
    }
    let content = (progress, answer(&headers, &body.0));
    let Some(mut completion) = finished(&rules, upstream, awaited, &view, content) else {
        return Ok(noted(view.status, false));
    };
    completion.message = message;
    let at = (view.lane, view.attempts);
    match decider.complete(at, completion).await.map_err(|error| unavailable(&error))? {
        Completed::Settled(settled) => Ok(noted(status_after(settled), true)),
        Completed::Kept => Ok(noted(Status::Processing, true)),
        Completed::NotAwaited(status) => Ok(noted(status, false)),
        Completed::Unknown => Err(no_such_job()),
    }
}

/// The upstream whose webhooks are received, and its rules.
fn receiver<'a>(rules: &'a Rules, name: &str) -> Result<(&'a Name, &'a Async, &'a Webhook), Problem> {
    let found = rules.config.upstreams.iter().find(|(known, _)| known.as_str() == name);
    let receiver = found.and_then(|(name, upstream)| {
        let awaited = upstream.awaited()?;
        Some((name, awaited, awaited.webhook.as_ref()?))
    });
    receiver.ok_or_else(|| Problem::new(Kind::NotFound, "No upstream of this name sends webhooks"))
}

/// The completion that a webhook reports, under the rules of the job's lane.
fn finished(
    rules: &Rules,
    upstream: &Name,
    awaited: &Async,
    job: &JobView,
    content: (JobProgress, Response),
) -> Option<eclusa_core::Completion> {
    let lane = rules.config.lanes.get(&job.lane);
    let retry = lane.map_or_else(Default::default, |lane| lane.retry);
    completion(upstream, awaited, content, (job.id, job.attempts), &retry, own_nonce())
}

/// The job's result.
fn answer(headers: &HeaderMap, body: &[u8]) -> Response {
    let kind = headers.get(CONTENT_TYPE).map(|kind| ("content-type".to_owned(), kind.as_bytes().to_vec()));
    Response { status: 200, headers: kind.into_iter().collect(), body: body.to_vec() }
}

const fn status_after(settled: Settled) -> Status {
    match settled {
        Settled::Ended(status) => status,
        Settled::RetryAt(_) => Status::Pending,
        Settled::Requeued => Status::Queued,
        Settled::Awaiting(_) | Settled::Released | Settled::Stale => Status::Processing,
    }
}
