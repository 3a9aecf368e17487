//! `/v1/lanes/{lane}/jobs/batch`: many jobs in one call, with one result each.

use std::sync::Arc;

use axum::Json;
use eclusa_core::{EnqueueAnswer, Enqueued, Name, NewJob, StoreError};
use http::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::auth::{Caller, Right};
use super::enqueue::{self, Taken};
use super::extract::{Body, NoQuery, Path};
use super::headers;
use super::jobs::CachedAnswer;
use super::json;
use super::model::Accepted;
use super::model::JobRequest;
use super::problem::Problem;
use super::store_problem::unconfirmed;
use super::submit::{self, Intake};
use crate::config::LaneConfig;
use crate::intake::Fault;
use crate::telemetry::traces::OpenSpan;

/// The most jobs in one batch.
const MAX_JOBS: usize = 1_000;
/// Bytes of a batch given to the store at once, unless a single job is larger. Bigger parts would delay other callers.
const PART_BYTES: usize = 1 << 20;
/// Approximate bytes of a job besides its payload and keys.
const JOB_BYTES: usize = 256;

/// The result for one job of a batch.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum BatchAnswer {
    /// Accepted.
    Accepted(Accepted),
    /// Answered from the cache.
    Completed(CachedAnswer),
    /// Refused, as problem details.
    #[schema(value_type = super::problem::ProblemDetails)]
    Problem(Value),
}

/// Enqueue up to 1000 jobs
///
/// Jobs are independent: a refused job does not affect the others. Results are in the order of the jobs. If the store
/// fails partway, the jobs before that point are stored, and the result of each other job says whether it may be
/// stored.
#[utoipa::path(post, path = "/v1/lanes/{lane}/jobs/batch", tag = "jobs", request_body = Vec<JobRequest>,
    params(("lane" = String, Path, description = "The lane's name")), responses((status = 200, body = Vec<BatchAnswer>)))]
pub(super) async fn enqueue(
    intake: Intake,
    caller: Caller,
    Path(lane): Path<String>,
    headers: HeaderMap,
    _: NoQuery,
    body: Body,
) -> Result<Json<Vec<BatchAnswer>>, Problem> {
    caller.may(Right::Enqueue)?;
    headers::refuse_key(&headers)?;
    let (lane, rules) = submit::lane(&intake.rules, &caller, &lane)?;
    let span = intake.traces.request(&headers);
    let asks: Vec<&RawValue> = body.list()?;
    if asks.is_empty() || asks.len() > MAX_JOBS {
        let fault = Fault::new("body", format!("must be an array of 1 to {MAX_JOBS} jobs"));
        return Err(Problem::invalid(&[fault]).in_body());
    }
    let mut parsed: Vec<Result<NewJob, Problem>> = Vec::with_capacity(asks.len());
    for ask in asks {
        parsed.push(job(&intake, &caller, (&lane, &rules), ask, (span.as_deref(), &headers)).await);
    }
    let jobs: Vec<NewJob> = parsed.iter().filter_map(|job| job.as_ref().ok().cloned()).collect();
    let until = enqueue::stored_by(&intake.rules);
    let enqueued = in_parts(jobs, |part| intake.decider.enqueue(part, until)).await;
    drop(span);
    let mut enqueued = enqueued.map_err(|error| unconfirmed(&error))?.into_iter();
    let mut answers = Vec::with_capacity(parsed.len());
    for job in parsed {
        let taken = job.and_then(|job| match enqueued.next().transpose() {
            Ok(enqueued) => enqueue::taken(&lane, job.id, enqueued),
            Err(error) => Err(unconfirmed(&error).with("jobId", job.id.to_string())),
        });
        let answer = answer(&intake, &lane, taken).await;
        answers.push(answer.unwrap_or_else(|problem| BatchAnswer::Problem(problem.into_json())));
    }
    Ok(Json(answers))
}

/// Enqueues jobs part by part and returns a result for each. After a part fails, the rest is not tried; if the first
/// part fails, all have failed.
async fn in_parts<F: Future<Output = Result<EnqueueAnswer, StoreError>>>(
    jobs: Vec<NewJob>,
    put: impl Fn(Vec<NewJob>) -> F,
) -> Result<Vec<Result<Enqueued, StoreError>>, StoreError> {
    let (count, mut results) = (jobs.len(), Vec::new());
    for part in parts(jobs) {
        let tried = results.len() + part.len();
        match put(part).await {
            Ok(answer) => results.extend(answer.jobs.into_iter().map(Ok)),
            Err(error) if results.is_empty() => return Err(error),
            Err(error) => {
                results.resize_with(tried, || Err(error.clone()));
                let cause = Arc::from("it did not answer for a part of the batch before this one");
                results.resize_with(count, || Err(StoreError::Unavailable { cause: Arc::clone(&cause) }));
                break;
            }
        }
    }
    Ok(results)
}

/// Splits jobs, in order, into parts of at most [`PART_BYTES`], or one job.
fn parts(jobs: Vec<NewJob>) -> Vec<Vec<NewJob>> {
    let (mut parts, mut last): (Vec<Vec<NewJob>>, _) = (Vec::new(), 0);
    for job in jobs {
        let keys = [&job.key, &job.cache_key].into_iter().flatten().map(|key| key.len()).sum::<usize>();
        let bytes = job.payload.len() + keys + JOB_BYTES;
        match parts.last_mut() {
            Some(part) if last + bytes <= PART_BYTES => {
                part.push(job);
                last += bytes;
            }
            _ => {
                parts.push(vec![job]);
                last = bytes;
            }
        }
    }
    parts
}

async fn job(
    intake: &Intake,
    caller: &Caller,
    lane: (&Name, &LaneConfig),
    ask: &RawValue,
    (span, headers): (Option<&OpenSpan>, &HeaderMap),
) -> Result<NewJob, Problem> {
    let (ask, faults): (JobRequest, _) = json::partly(ask.get().as_bytes())?;
    submit::described(intake, caller, lane, (ask, faults), (span, headers)).await
}

async fn answer(intake: &Intake, lane: &Name, taken: Result<Taken, Problem>) -> Result<BatchAnswer, Problem> {
    match taken? {
        Taken::Job(_, Some(accepted)) => Ok(BatchAnswer::Accepted(accepted)),
        Taken::Job(id, None) => {
            enqueue::known(&intake.store, id).await.map(|(_, accepted)| BatchAnswer::Accepted(accepted))
        }
        Taken::Cached(cached) => CachedAnswer::new(lane, &cached).map(BatchAnswer::Completed),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use eclusa_core::JobId;

    use super::*;

    fn jobs(sizes: &[usize]) -> Vec<NewJob> {
        let job = |(n, size): (u128, &usize)| {
            NewJob::new(JobId(n), Name::new("mail").unwrap(), "acme", vec![b'x'; *size])
        };
        (1..).zip(sizes).map(job).collect()
    }

    fn ids(part: &[NewJob]) -> Vec<u128> {
        part.iter().map(|job| job.id.0).collect()
    }

    #[test]
    fn parts_hold_a_mebibyte_or_one_job() {
        let split = |sizes: &[usize]| parts(jobs(sizes)).iter().map(|part| ids(part)).collect::<Vec<_>>();
        assert_eq!(
            split(&[400_000, 400_000, 400_000, 3 << 20, 1, 1]),
            [vec![1, 2], vec![3], vec![4], vec![5, 6]]
        );
        assert_eq!(split(&[100_000; 1_000]).len(), 100);
        assert!(split(&[]).is_empty());
    }

    async fn with_part_failing(failing: usize) -> (Result<Vec<String>, String>, Vec<u128>) {
        let asked = Mutex::new(Vec::new());
        let results = in_parts(jobs(&[600_000; 4]), |part: Vec<NewJob>| {
            let mut asked = asked.lock().unwrap();
            asked.extend(ids(&part));
            std::future::ready(if asked.len() == failing {
                Err(StoreError::Unconfirmed { cause: "silence".into() })
            } else {
                let jobs = part.iter().map(|job| Enqueued::Existing(job.id)).collect();
                Ok(EnqueueAnswer { jobs, ended: Vec::new() })
            })
        });
        let say = |result: Result<Enqueued, StoreError>| match result {
            Ok(Enqueued::Existing(id)) => id.0.to_string(),
            other => format!("{other:?}").split('{').next().unwrap_or_default().trim().to_owned(),
        };
        let results = results.await.map(|all| all.into_iter().map(say).collect());
        (results.map_err(|error| error.to_string()), asked.into_inner().unwrap())
    }

    #[tokio::test]
    async fn a_part_that_fails_says_of_each_job_whether_it_may_be_stored() {
        let (results, asked) = with_part_failing(3).await;
        assert_eq!(results.unwrap(), ["1", "2", "Err(Unconfirmed", "Err(Unavailable"]);
        assert_eq!(asked, [1, 2, 3], "later parts are not tried");
        let (results, asked) = with_part_failing(1).await;
        assert_eq!((results.unwrap_err(), asked), ("the store did not answer: silence".into(), vec![1]));
        assert_eq!(with_part_failing(0).await.0.unwrap(), ["1", "2", "3", "4"]);
    }
}
