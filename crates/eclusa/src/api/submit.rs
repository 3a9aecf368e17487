//! Enqueueing, shared by `/v1/lanes/{lane}/jobs` and `/proxy`: rights, ids and the store's answer.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use eclusa_core::{
    CALLBACKS, Cached, EnqueueAnswer, Enqueued, JobId, JobView, Name, NewJob, Store, StoreError, Wait,
};
use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::auth::{Caller, Right};
use super::job_request::JobRequest;
use super::json;
use super::model::{Accepted, iso};
use super::problem::{Kind, Problem};
use super::state::{Api, Parts};
use super::wait::{begin_then, ended};
use crate::config::{Config, Lane, Mode};
use crate::decide::Decider;
use crate::ids::Ids;
use crate::intake::{Fault, Submission};
use crate::life::Life;
use crate::policy::{Scopes, Subject, Takes};
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::traces::{OpenSpan, Traces};

/// The problem for a failed read.
pub(super) fn unavailable(error: &StoreError) -> Problem {
    Problem::new(Kind::StoreUnavailable, format!("The store could not be read: {error}")).retry_after(5)
}

/// The problem for a failed write.
pub(super) fn unconfirmed(error: &StoreError) -> Problem {
    let detail = match error {
        StoreError::Unavailable { .. } => format!("Nothing was accepted: {error}. Try again later"),
        StoreError::Stopped { .. } | StoreError::Unconfirmed { .. } => format!(
            "Not confirmed: {error}. It may have been stored; send it again with the same `Idempotency-Key` or `id`, and it is stored once"
        ),
    };
    Problem::new(Kind::StoreUnavailable, detail).retry_after(5)
}

/// The rules of a lane that the caller may use.
pub(super) fn lane(rules: &CurrentRules, caller: &Caller, lane: &str) -> Result<(Name, Arc<Lane>), Problem> {
    lane_of(&rules.get().config, caller, lane).map(|(name, rules)| (name.clone(), rules.clone()))
}

/// Same, borrowed from `config`.
pub(super) fn lane_of<'a>(
    config: &'a Config,
    caller: &Caller,
    lane: &str,
) -> Result<(&'a Name, &'a Arc<Lane>), Problem> {
    let lanes = &config.lanes;
    let Some((name, rules)) = lanes.get_key_value(lane) else {
        let known = lanes.keys().filter(|name| caller.may_use(name).is_ok());
        let known: Vec<&str> = known.map(Name::as_str).collect();
        let detail = format!("There is no lane `{lane}`; the config has {}", known.join(", "));
        return Err(Problem::new(Kind::NotFound, detail));
    };
    caller.may_use(name)?;
    Ok((name, rules))
}

/// State needed to enqueue jobs.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Intake {
    #[from_request(via(State))]
    pub(super) decider: Arc<Decider>,
    #[from_request(via(State))]
    pub(super) store: Arc<AnyStore>,
    #[from_request(via(State))]
    pub(super) rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    pub(super) ids: Arc<Ids>,
    #[from_request(via(State))]
    pub(super) scopes: Arc<Scopes>,
    #[from_request(via(State))]
    pub(super) life: Arc<Life>,
    #[from_request(via(State))]
    pub(super) traces: Arc<Traces>,
}

impl From<&Parts> for Intake {
    fn from(parts: &Parts) -> Self {
        let Parts { decider, store, rules, ids, scopes, life, traces, .. } = parts;
        Self {
            decider: decider.clone(),
            store: store.clone(),
            rules: rules.clone(),
            ids: ids.clone(),
            scopes: scopes.clone(),
            life: life.clone(),
            traces: traces.clone(),
        }
    }
}

/// Converts a submission to a job, if the caller may enqueue it.
pub(super) async fn job(
    intake: &Intake,
    caller: &Caller,
    (lane, rules): (&Name, &Lane),
    submission: Submission,
) -> Result<NewJob, Problem> {
    caller.may(Right::Enqueue)?;
    caller.may_act_for(&submission.tenant)?;
    let submission = caller.cap_default_priority(submission, rules);
    caller.may_use_priority(submission.level(rules))?;
    if rules.mode == Mode::Direct {
        let detail =
            format!("Lane `{lane}` is a direct lane and has no queue; send the request to /proxy/{lane}/…");
        return Err(Problem::new(Kind::Conflict, detail));
    }
    if lane.as_str() == CALLBACKS {
        let detail =
            "This lane is internal: it only holds callbacks, which the `callbackUrl` of other jobs creates";
        return Err(Problem::new(Kind::Conflict, detail));
    }
    if intake.life.stopping.is_cancelled() {
        return Err(
            Problem::new(Kind::Stopping, "The server is stopping and accepts no more jobs").retry_after(5)
        );
    }
    let config = &intake.rules.get().config;
    let callback = callback_fault(config, submission.callback.as_deref());
    let checked = match (submission.check(intake.ids.job(), rules, config.into()), callback) {
        (Ok(checked), None) => checked,
        (checked, callback) => {
            let faults: Vec<Fault> = checked.err().into_iter().flatten().chain(callback).collect();
            return Err(Problem::invalid(&faults));
        }
    };
    let subject = Subject::of_job(checked.request(), &checked.shaped, checked.tenant());
    let takes = intake.scopes.takes(&config.upstreams, &checked.chain, subject).await;
    let takes = takes.map_err(|error| unconfirmed(&error))?;
    let Takes { holds, correlation } = takes.map_err(|faults| Problem::invalid(&faults))?;
    Ok(NewJob { holds, correlation, ..checked.into_job(lane) })
}

/// Converts a job described in JSON. `faults` are already known; all others are reported with them.
pub(super) async fn described(
    intake: &Intake,
    caller: &Caller,
    (lane, rules): (&Name, &Lane),
    (ask, mut faults): (JobRequest, Vec<Fault>),
    (span, headers): (Option<&OpenSpan>, &HeaderMap),
) -> Result<NewJob, Problem> {
    caller.may(Right::Enqueue)?;
    let mut wrong = Vec::new();
    let (had_request, had_message) = (ask.request.is_some(), ask.message.is_some());
    let mut submission = ask.into_readable_part(caller.own_tenant(), &mut wrong);
    submission.trace_under(span, headers);
    json::add(&mut faults, wrong);
    if faults.is_empty() {
        return job(intake, caller, (lane, rules), submission).await.map_err(Problem::in_body);
    }
    // A part that could not be read is not missing, nor are its members.
    let unread = [
        ("/request", had_request && submission.request.is_none()),
        ("/message", had_message && submission.message.is_none()),
    ];
    let follows = |fault: &Fault| {
        let place = json::pointer(&fault.field).unwrap_or_default();
        unread.iter().any(|(part, unread)| *unread && place.starts_with(part))
    };
    let config = &intake.rules.get().config;
    json::add(&mut faults, callback_fault(config, submission.callback.as_deref()).into_iter().collect());
    if let Err(mut wrong) = submission.check(JobId(0), rules, config.into()) {
        wrong.retain(|fault| !follows(fault));
        json::add(&mut faults, wrong);
    }
    Err(Problem::invalid(&faults).in_body())
}

/// What is wrong with a `callbackUrl`: callbacks go only to hosts that the config allows.
fn callback_fault(config: &Config, url: Option<&str>) -> Option<Fault> {
    let url = url?;
    let checked = match &config.callbacks {
        Some(callbacks) => callbacks.check(url).map(drop),
        None => Err("is not allowed: the config has no `[callbacks]` with `hosts`".to_owned()),
    };
    checked.err().map(|problem| Fault::new("callbackUrl", problem))
}

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
    let told = |answer: Result<EnqueueAnswer, StoreError>| {
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
    let Some(wait) = wait else { return Ok((told(put.await)?, None)) };
    let mut waiting =
        std::pin::pin!(ended(intake, Wait { allow_unknown: true, ..Wait::for_end(id, wait.into()) }));
    // Start waiting first: a job may end, and be forgotten, before its acceptance is known.
    let (early, answer) = begin_then(&mut waiting, put).await;
    let taken = told(answer)?;
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

/// A header whose value is printable.
pub(super) fn header(name: &'static str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_says_whether_it_may_have_been_stored() {
        let stopped = StoreError::Stopped { cause: "no space".into() };
        let said = |problem: Problem| problem.into_json()["detail"].as_str().unwrap_or_default().to_owned();
        let (read, enqueued) = (said(unavailable(&stopped)), said(unconfirmed(&stopped)));
        let away = said(unconfirmed(&StoreError::Unavailable { cause: "Redis is unreachable".into() }));
        let silent = said(unconfirmed(&StoreError::Unconfirmed { cause: "Redis is unreachable".into() }));
        assert!(away.starts_with("Nothing was accepted: "), "{away}");
        assert!(
            silent.contains("It may have been stored; send it again with the same `Idempotency-Key`"),
            "{silent}"
        );
        assert!(enqueued.starts_with("Not confirmed: the store has stopped: no space"), "{enqueued}");
        assert!(read.starts_with("The store could not be read: the store has stopped: no space"), "{read}");
    }
}
