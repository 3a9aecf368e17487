//! What both ways in have in common: rights, ids, the store's answer, and waiting for the job to end.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use eclusa_core::{Cached, DropReason, Enqueued, JobId, JobView, Name, NewJob, Status, Store, StoreError};
use http::header::LOCATION;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::auth::{Caller, Right};
use super::model::{Accepted, iso};
use super::problem::{Kind, Problem};
use crate::config::{Lane, Mode};
use crate::gateway::Gateway;
use crate::intake::{Fault, Submission};
use crate::wake::Waiting;

/// How often somebody who waits for a job looks by himself: the safety net under the wake-up.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The store's error as the caller sees it.
pub(super) fn unavailable(error: &StoreError) -> Problem {
    Problem::new(Kind::StoreUnavailable, format!("It could not be asked: {error}")).retry_after(5)
}

/// The same for who wanted something to be kept.
pub(super) fn unconfirmed(error: &StoreError) -> Problem {
    let detail = format!(
        "It was not confirmed: {error}. With an Idempotency-Key, or an `id` in a batch, it is safe to repeat"
    );
    Problem::new(Kind::StoreUnavailable, detail).retry_after(5)
}

/// The rules of a lane that the caller may use.
pub(super) fn lane<'a>(
    gateway: &'a Gateway,
    caller: &Caller,
    lane: &str,
) -> Result<(Name, &'a Lane), Problem> {
    let found = gateway.config.lanes.iter().find(|(name, _)| name.as_str() == lane);
    let Some((name, rules)) = found else {
        let known = gateway.config.lanes.keys().filter(|name| caller.may_use(name).is_ok());
        let known: Vec<&str> = known.map(Name::as_str).collect();
        let detail = format!("There is no lane `{lane}`; the config has {}", known.join(", "));
        return Err(Problem::new(Kind::NotFound, detail));
    };
    caller.may_use(name)?;
    Ok((name.clone(), rules))
}

/// The job of a submission that the caller may enqueue.
pub(super) fn job(
    gateway: &Gateway,
    caller: &Caller,
    (lane, rules): (&Name, &Lane),
    submission: Submission,
) -> Result<NewJob, Problem> {
    caller.may(Right::Enqueue)?;
    caller.may_be(&submission.tenant)?;
    let submission = caller.by_default_not_too_urgent(submission, rules);
    caller.may_be_as_urgent_as(submission.level(rules))?;
    if rules.mode == Mode::Direct {
        let detail = format!("Lane `{lane}` is direct: it has no queue. Send the request to /proxy/{lane}/…");
        return Err(Problem::new(Kind::Conflict, detail));
    }
    if gateway.stopping.is_cancelled() {
        return Err(
            Problem::new(Kind::Stopping, "The server is stopping and takes in no more jobs").retry_after(5)
        );
    }
    submission.into_job(gateway.new_job_id(), lane, rules).map_err(|faults| Problem::invalid(&faults))
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
        Enqueued::UnknownLane => Err(Problem::new(Kind::NotFound, format!("There is no lane `{lane}`"))),
        Enqueued::Invalid(error) => Err(Problem::invalid(&[Fault::new(error.field, error.problem)])),
    }
}

/// Puts one job into its lane, for somebody who will `wait` for its end.
pub(super) async fn enqueue(
    gateway: &Arc<Gateway>,
    job: NewJob,
    wait: Option<Duration>,
) -> Result<Taken, Problem> {
    let (id, lane) = (job.id, job.lane.clone());
    let wanted = async {
        if let Some(wait) = wait {
            gateway.want(&lane, id, wait).await;
        }
    };
    // Both at a time, so that a refusal is not late, and in this order.
    let ((), answer) = tokio::join!(biased; wanted, gateway.enqueue(lane.clone(), vec![job]));
    taken(&lane, id, answer.map_err(|error| unconfirmed(&error))?.jobs.pop())
}

/// 202 for a job that waits, with where to look for it; 200 for one that was there before and has ended.
pub(super) async fn accepted(
    gateway: &Gateway,
    id: JobId,
    accepted: Option<Accepted>,
) -> Result<Response, Problem> {
    let (status, accepted) = match accepted {
        Some(accepted) => (StatusCode::ACCEPTED, accepted),
        None => known(gateway, id).await?,
    };
    let location = HeaderValue::try_from(format!("/v1/jobs/{id}"));
    let job_id = header("eclusa-job-id", &accepted.job_id);
    let mut response = (status, axum::Json(accepted)).into_response();
    response.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
    response.headers_mut().extend(job_id);
    Ok(response)
}

/// The answer for a job that was enqueued before.
pub(super) async fn known(gateway: &Gateway, id: JobId) -> Result<(StatusCode, Accepted), Problem> {
    let job = gateway.store.job(id).await.map_err(|error| unavailable(&error))?;
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

/// The job once it has ended, or as it is after `wait`; `None` if there is no such job.
pub(super) async fn ended(gateway: &Gateway, id: JobId, wait: Duration) -> Result<Option<JobView>, Problem> {
    let deadline = Instant::now() + wait;
    let (waiting, mut woken, mut wanted) = (gateway.waiters.wait_for(id), false, false);
    loop {
        let job = gateway.store.job(id).await.map_err(|error| unavailable(&error))?;
        let Some(job) = job else {
            let gone = match handed_over(&waiting).await {
                None => gateway.gone(id).await.map_err(|error| unavailable(&error))?,
                here => here,
            };
            return Ok(gone);
        };
        // A process that is stopping still finishes what runs, but begins nothing.
        let stopping = gateway.stopping.is_cancelled();
        let over = job.status.is_final() || (stopping && job.status != Status::Processing);
        let now = Instant::now();
        if over || now >= deadline {
            return Ok(Some(job));
        }
        if !wanted {
            gateway.want(&job.lane, id, wait).await;
            wanted = true;
            continue;
        }
        tokio::select! {
            // Once woken there is nothing more to hear.
            () = waiting.woken(), if !woken => woken = true,
            () = gateway.stopping.cancelled(), if !stopping => {}
            () = tokio::time::sleep_until(deadline.min(now + LOOK_AGAIN)) => {}
        }
    }
}

/// A job that the store forgot as it ended, if it ended in this process, which may be just about to tell, or is known to have
/// ended elsewhere.
async fn handed_over(waiting: &Waiting<'_>) -> Option<JobView> {
    let _ = tokio::time::timeout(LOOK_AGAIN, waiting.woken()).await;
    waiting.forgotten()
}

/// What `answer` makes of the job if it ends in time; else what is known of it.
pub(super) async fn answered(
    gateway: &Gateway,
    id: JobId,
    known: Option<Accepted>,
    wait: Duration,
    answer: impl FnOnce(JobView) -> Response,
) -> Result<Response, Problem> {
    let wait = wait.min(gateway.config.server.max_wait);
    let mut response = match ended(gateway, id, wait).await? {
        Some(job) if job.status.is_final() => answer(job),
        Some(_) => accepted(gateway, id, known).await?,
        None => {
            let detail = format!("Job {id} has ended, and its lane keeps its answer no longer (`keep`)");
            return Err(Problem::new(Kind::NotFound, detail).with("jobId", id.to_string()));
        }
    };
    response.headers_mut().extend(header("preference-applied", &format!("wait={}", wait.as_secs())));
    Ok(response)
}

/// Why a job that ended has no answer of an upstream to show.
pub(super) fn without_answer(job: &JobView) -> Problem {
    let id = job.id.to_string();
    let problem = match (job.status, job.dropped) {
        (Status::Dropped, Some(DropReason::TtlExpired)) => {
            Problem::new(Kind::JobDropped, "The job expired before it could be sent")
        }
        (Status::Dropped, _) => Problem::new(Kind::JobDropped, "More urgent jobs took the place of this one"),
        (Status::Cancelled, _) => Problem::new(Kind::JobDropped, "The job was cancelled"),
        _ => match &job.last_failure {
            Some(failure) if failure.code.as_deref() == Some("timeout") => {
                Problem::new(Kind::UpstreamTimeout, failure.reason.as_str())
            }
            Some(failure) => Problem::new(Kind::UpstreamFailed, failure.reason.as_str()),
            None => Problem::new(Kind::UpstreamFailed, "The job failed"),
        },
    };
    let problem = problem.with("jobId", id).with("jobStatus", job.status.as_str());
    match job.dropped {
        Some(reason) => problem.with("reason", reason.as_str()),
        None => problem,
    }
}

/// A header whose value is known to be printable.
pub(super) fn header(name: &'static str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
}

#[cfg(test)]
mod tests {
    use eclusa_core::Cancelled;

    use super::*;
    use crate::clock::SystemClock;
    use crate::config::Config;
    use crate::gateway::Duty;

    const WAIT: Duration = Duration::from_mins(1);

    /// A lane that forgets jobs as they end, with a job in it.
    async fn waiting_job() -> (Arc<Gateway>, JobId) {
        let text = "[store]\nurl = \"memory:\"\n[lanes.mail]\nchain = [\"up\"]\nkeep = { max = 0 }\n\
                    [upstreams.up]\nurl = \"http://up\"\n";
        let config = Config::parse("test.toml", text, &|_| None).unwrap();
        let gateway = Gateway::open(config, Duty::All, Arc::new(SystemClock)).unwrap();
        let id = gateway.new_job_id();
        let job = NewJob::new(id, Name::new("mail").unwrap(), "acme", []);
        gateway.store.enqueue(vec![job]).await.unwrap();
        (gateway, id)
    }

    #[test]
    fn only_who_wanted_something_kept_is_told_that_it_was_not() {
        let stopped = StoreError::Stopped { cause: "no space".into() };
        let said = |problem: Problem| problem.into_json()["detail"].as_str().unwrap_or_default().to_owned();
        let (read, enqueued) = (said(unavailable(&stopped)), said(unconfirmed(&stopped)));
        assert!(enqueued.starts_with("It was not confirmed: the store has stopped: no space"), "{enqueued}");
        assert!(read.starts_with("It could not be asked: the store has stopped: no space"), "{read}");
    }

    #[tokio::test]
    async fn who_waits_is_given_a_job_that_is_forgotten_as_it_ends() {
        let (gateway, id) = waiting_job().await;
        let (job, _) = tokio::join!(biased; ended(&gateway, id, WAIT), gateway.cancel(id));
        assert_eq!(job.unwrap().unwrap().status, Status::Cancelled);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_is_forgotten_before_its_end_is_told_is_given_when_it_is() {
        let (gateway, id) = waiting_job().await;
        let Cancelled::Yes(last) = gateway.store.cancel(id).await.unwrap() else { panic!("it waits") };
        let tell = async { gateway.note(&[*last]) };
        let (job, ()) = tokio::join!(biased; ended(&gateway, id, WAIT), tell);
        assert_eq!(job.unwrap().unwrap().status, Status::Cancelled);
        let began = Instant::now();
        assert_eq!(ended(&gateway, id, WAIT).await.unwrap(), None);
        assert_eq!(began.elapsed().as_secs(), LOOK_AGAIN.as_secs(), "nobody tells of it any more");
    }
}
