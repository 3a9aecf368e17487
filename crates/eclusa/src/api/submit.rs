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

/// The store's error as the caller sees it.
pub(super) fn unavailable(error: &StoreError) -> Problem {
    Problem::new(Kind::StoreUnavailable, format!("It could not be asked: {error}")).retry_after(5)
}

/// The same for who wanted something to be kept.
pub(super) fn unconfirmed(error: &StoreError) -> Problem {
    let detail = match error {
        StoreError::Unavailable { .. } => format!("Nothing was accepted: {error}. Send it again later"),
        StoreError::Stopped { .. } | StoreError::Unconfirmed { .. } => format!(
            "It was not confirmed: {error}. It may be stored; sent again with the same `Idempotency-Key`, or the same `id`, it is stored once"
        ),
    };
    Problem::new(Kind::StoreUnavailable, detail).retry_after(5)
}

/// The rules of a lane that the caller may use.
pub(super) fn lane(rules: &CurrentRules, caller: &Caller, lane: &str) -> Result<(Name, Arc<Lane>), Problem> {
    lane_of(&rules.get().config, caller, lane).map(|(name, rules)| (name.clone(), rules.clone()))
}

/// The same of the config in force.
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

/// What taking in jobs needs.
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

/// The job of a submission that the caller may enqueue.
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
        let detail = format!("Lane `{lane}` is direct: it has no queue. Send the request to /proxy/{lane}/…");
        return Err(Problem::new(Kind::Conflict, detail));
    }
    if lane.as_str() == CALLBACKS {
        let detail = "This lane is Eclusa's own: it takes only what `callbackUrl` of other jobs asks for";
        return Err(Problem::new(Kind::Conflict, detail));
    }
    if intake.life.stopping.is_cancelled() {
        return Err(
            Problem::new(Kind::Stopping, "The server is stopping and takes in no more jobs").retry_after(5)
        );
    }
    let config = &intake.rules.get().config;
    check_callback(config, submission.callback.as_deref())?;
    let checked = submission.check(intake.ids.job(), rules, config.into());
    let checked = checked.map_err(|faults| Problem::invalid(&faults))?;
    let subject = Subject::of_job(checked.request(), &checked.shaped, checked.tenant());
    let takes = intake.scopes.takes(&config.upstreams, &checked.chain, subject).await;
    let takes = takes.map_err(|error| unconfirmed(&error))?;
    let Takes { holds, correlation } = takes.map_err(|faults| Problem::invalid(&faults))?;
    Ok(NewJob { holds, correlation, ..checked.into_job(lane) })
}

/// The job that the caller describes in JSON, of which `faults` are known; all others are reported with them.
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
    // What could not be read is not missing, nor are its parts.
    let unread = [
        ("/request", had_request && submission.request.is_none()),
        ("/message", had_message && submission.message.is_none()),
    ];
    let follows = |fault: &Fault| {
        let place = json::pointer(&fault.field).unwrap_or_default();
        unread.iter().any(|(part, unread)| *unread && place.starts_with(part))
    };
    let config = &intake.rules.get().config;
    if let Err(mut wrong) = submission.check(JobId(0), rules, config.into()) {
        wrong.retain(|fault| !follows(fault));
        json::add(&mut faults, wrong);
    }
    Err(Problem::invalid(&faults).in_body())
}

/// Only who is allowed by the config is called back.
fn check_callback(config: &Config, url: Option<&str>) -> Result<(), Problem> {
    let Some(url) = url else { return Ok(()) };
    let checked = match &config.callbacks {
        Some(callbacks) => callbacks.check(url).map(drop),
        None => Err("cannot be called: the config has no `[callbacks]` with `hosts`".to_owned()),
    };
    checked.map_err(|problem| Problem::invalid(&[Fault::new("callbackUrl", problem)]))
}

/// What became of a new job.
pub(super) enum Taken {
    /// It waits, or is known already and may have ended.
    Job(JobId, Option<Accepted>),
    /// The cache answers it.
    Cached(Cached),
}

/// The store's answer for one job, or why it was refused.
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
            let detail = "The key belongs to a job that asked for something else; use a new key";
            Err(Problem::new(Kind::IdempotencyConflict, detail))
        }
        Enqueued::QueueFull => {
            let detail = format!("Lane `{lane}` is full and nothing less urgent could make room");
            Err(Problem::new(Kind::QueueFull, detail).with("lane", lane.as_str()).retry_after(1))
        }
        Enqueued::NotInTime { eta, late } => {
            let quoted = iso(eta).unwrap_or_default();
            let detail = format!(
                "At the present pace it would start at {quoted}, after it expires; send it later, or with a longer `ttl`"
            );
            let problem =
                Problem::new(Kind::NotInTime, detail).with("lane", lane.as_str()).with("eta", quoted);
            Err(problem.retry_after(late.as_millis().div_ceil(1_000).max(1)))
        }
        Enqueued::UnknownLane => Err(Problem::new(Kind::NotFound, format!("There is no lane `{lane}`"))),
        Enqueued::Invalid(error) => Err(Problem::invalid(&[Fault::new(error.field, error.problem)])),
    }
}

/// How long the store may take to keep what comes in now.
pub(super) fn stored_by(rules: &CurrentRules) -> Instant {
    Instant::now() + rules.get().config.server.max_wait
}

/// Puts one job into its lane and, for a caller that waits, says how it ended or how it is after that time.
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
        // The span ends here, however long the caller waits for the job's end.
        if let Some(mut span) = span {
            span.of_job(&lane, id);
            answer.as_ref().err().iter().for_each(|error| span.fail(&error.to_string()));
        }
        let mut answer = answer.map_err(|error| unconfirmed(&error).with("jobId", id.to_string()))?;
        taken(&lane, id, answer.jobs.pop())
    };
    let Some(wait) = wait else { return Ok((told(put.await)?, None)) };
    let mut waiting =
        std::pin::pin!(ended(intake, Wait { allow_unknown: true, ..Wait::for_end(id, wait.into()) }));
    // The wait begins first: a job may have ended, and be forgotten, before its acceptance is heard.
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

/// Whether the lane of a job tells refusals that were waited for from others.
fn answers_matter(intake: &Intake, job: &NewJob) -> bool {
    let rules = intake.rules.get();
    let lane = rules.config.spec.lane(&job.lane);
    lane.and_then(|lane| lane.dead_letters.as_ref()).is_some_and(|rule| !rule.answers())
}

/// 202 for a job that waits, with where to look for it; 200 for one that was there before and has ended.
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

/// The answer for a job that was enqueued before.
pub(super) async fn known(store: &AnyStore, id: JobId) -> Result<(StatusCode, Accepted), Problem> {
    let job = store.job(id).await.map_err(|error| unavailable(&error))?;
    let Some(job) = job else {
        let detail = format!("The key belongs to job {id}, which has ended and is no longer remembered");
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

/// A header whose value is known to be printable.
pub(super) fn header(name: &'static str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_wanted_something_kept_is_told_that_it_was_not() {
        let stopped = StoreError::Stopped { cause: "no space".into() };
        let said = |problem: Problem| problem.into_json()["detail"].as_str().unwrap_or_default().to_owned();
        let (read, enqueued) = (said(unavailable(&stopped)), said(unconfirmed(&stopped)));
        let away = said(unconfirmed(&StoreError::Unavailable { cause: "Redis is away".into() }));
        let silent = said(unconfirmed(&StoreError::Unconfirmed { cause: "Redis is away".into() }));
        assert!(away.starts_with("Nothing was accepted: "), "{away}");
        assert!(silent.contains("It may be stored; sent again with the same `Idempotency-Key`"), "{silent}");
        assert!(enqueued.starts_with("It was not confirmed: the store has stopped: no space"), "{enqueued}");
        assert!(read.starts_with("It could not be asked: the store has stopped: no space"), "{read}");
    }
}
