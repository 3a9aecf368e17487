//! Waiting for a job to end, and what the caller is answered if it ended without a response.

use eclusa_core::{DropReason, JobView, Status, Store, Wait};

use super::problem::{Kind, Problem};
use super::store_problem::unavailable;
use super::submit::Intake;

/// Starts `waiting`, then does `work`. Returns the result of the wait, if it is over by then, and of the work.
pub(super) async fn begin_then<W: Future + Unpin, T>(
    waiting: &mut W,
    work: impl Future<Output = T>,
) -> (Option<W::Output>, T) {
    let (mut work, mut early) = (std::pin::pin!(work), None);
    loop {
        tokio::select! {
            biased;
            ended = &mut *waiting, if early.is_none() => early = Some(ended),
            done = &mut work => return (early, done),
        }
    }
}

/// The job once it has ended, or its state when the time is over; `None` if there is no such job.
pub(super) async fn ended(intake: &Intake, ask: Wait) -> Result<Option<JobView>, Problem> {
    let id = ask.job;
    let mut waiting = std::pin::pin!(intake.store.wait(ask));
    let job = tokio::select! {
        biased;
        job = &mut waiting => job,
        () = intake.life.stopping.cancelled() => match intake.store.job(id).await {
            // A process that is stopping finishes running jobs, but starts none.
            Ok(Some(job)) if job.status == Status::Processing => waiting.await,
            job => job,
        },
    };
    job.map_err(|error| unavailable(&error))
}

/// The problem for a job that ended without a response of an upstream.
pub(super) fn without_answer(job: &JobView) -> Problem {
    let id = job.id.to_string();
    let problem = match (job.status, job.dropped) {
        (Status::Dropped, Some(DropReason::TtlExpired)) => {
            Problem::new(Kind::JobDropped, "The job expired before it could be sent")
        }
        (Status::Dropped, _) => {
            Problem::new(Kind::JobDropped, "The job was evicted by one of higher priority")
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::extract::FromRequestParts;
    use eclusa_core::{JobId, Name, NewJob};

    use super::*;
    use crate::clock::SystemClock;
    use crate::config::Config;
    use crate::peers::ProcessRole;
    use crate::process;

    const WAIT: Duration = Duration::from_mins(1);

    /// A lane that forgets jobs when they end, with a job in it.
    async fn waiting_job() -> (Intake, JobId) {
        let text = "[store]\nurl = \"memory:\"\n[lanes.mail]\nchain = [\"up\"]\nkeep = { max = 0 }\n\
                    [upstreams.up]\nurl = \"http://up\"\n";
        let config = Config::parse("test.toml", text, &|_| None).unwrap();
        let api = process::open(config, ProcessRole::All, Arc::new(SystemClock)).unwrap().api;
        let mut request = http::Request::new(()).into_parts().0;
        let Ok(intake) = Intake::from_request_parts(&mut request, &api).await else { unreachable!() };
        let id = intake.ids.job();
        let job = NewJob::new(id, Name::new("mail").unwrap(), "acme", []);
        intake.store.enqueue(vec![job]).await.unwrap();
        (intake, id)
    }

    #[tokio::test]
    async fn a_waiting_caller_gets_a_job_that_is_forgotten_when_it_ends() {
        let (intake, id) = waiting_job().await;
        let wait = Wait::for_end(id, WAIT.into());
        let (job, _) = tokio::join!(biased; ended(&intake, wait), intake.decider.cancel(id));
        assert_eq!(job.unwrap().unwrap().status, Status::Cancelled);
        assert_eq!(ended(&intake, wait).await.unwrap(), None, "it is forgotten");
    }
}
