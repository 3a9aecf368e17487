//! Finds one job by its id or by the id its caller gave.

use eclusa_core::{JobId, JobQuery, JobView, MAX_BATCH, Name, Store};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Caller, Right};
use super::model::Job;
use super::problem::{Kind, Problem};
use super::store_problem::unavailable;
use crate::config::Field;
use crate::rules::CurrentRules;
use crate::store::AnyStore;

/// Disambiguates jobs that share an id.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct OfLane {
    /// The lane of the job, if jobs of other lanes have the same id.
    pub(super) lane: Option<String>,
}

/// The job with this id, if the caller may see it.
pub(super) async fn visible(
    store: &AnyStore,
    caller: &Caller,
    id: &str,
    lane: Option<&str>,
) -> Result<JobView, Problem> {
    caller.may(Right::SeeJob)?;
    if let Ok(own) = id.parse()
        && let Some(job) = by_own_id(store, caller, own, lane).await?
    {
        return Ok(job);
    }
    by_given_id(store, caller, id, lane).await
}

/// The job with this job id.
pub(super) async fn by_own_id(
    store: &AnyStore,
    caller: &Caller,
    id: JobId,
    lane: Option<&str>,
) -> Result<Option<JobView>, Problem> {
    let job = store.job(id).await.map_err(|error| unavailable(&error))?;
    Ok(job.and_then(|job| may_see(caller, job, lane)))
}

/// The job to which its caller gave this id. Jobs of other lanes may have the same one.
pub(super) async fn by_given_id(
    store: &AnyStore,
    caller: &Caller,
    id: &str,
    lane: Option<&str>,
) -> Result<JobView, Problem> {
    let name = lane.map(Name::new).transpose().map_err(|_| no_such_job())?;
    let query = JobQuery { lane: name, key: Some(id.into()), max: MAX_BATCH, ..JobQuery::default() };
    let page = store.jobs(query).await.map_err(|error| unavailable(&error))?;
    let mut found: Vec<JobView> =
        page.jobs.into_iter().filter_map(|job| may_see(caller, job, lane)).collect();
    match (found.pop(), found.as_slice()) {
        (Some(job), []) => Ok(job),
        (None, _) => Err(no_such_job()),
        (Some(job), others) => {
            let mut lanes: Vec<&str> = others.iter().chain([&job]).map(|job| job.lane.as_str()).collect();
            lanes.sort_unstable();
            let detail =
                format!("Jobs in several lanes have this id; add `?lane=` with one of {}", lanes.join(", "));
            Err(Problem::new(Kind::Conflict, detail))
        }
    }
}

/// Returns the job if the caller's key covers its lane and tenant, and it is in `lane`.
pub(super) fn may_see(caller: &Caller, job: JobView, lane: Option<&str>) -> Option<JobView> {
    let wanted = lane.is_none_or(|lane| job.lane.as_str() == lane);
    Some(job)
        .filter(|job| wanted && caller.may_use(&job.lane).is_ok() && caller.may_act_for(&job.tenant).is_ok())
}

/// The job as the caller may see it. If the lane is no longer in the config, its masks are unknown.
pub(super) fn shown(rules: &CurrentRules, caller: &Caller, job: JobView) -> Job {
    match masks(rules, caller, &job.lane) {
        Some(masks) => Job::with_request(job, &masks),
        None => Job { params: None, ..Job::from(job) },
    }
}

/// The fields of the lane's jobs that are masked for the caller; `None` if unknown.
pub(super) fn masks(rules: &CurrentRules, caller: &Caller, lane: &Name) -> Option<Vec<Field>> {
    if caller.is_admin() {
        return Some(Vec::new());
    }
    rules.get().config.lanes.get(lane).map(|lane| lane.mask.clone())
}

pub(super) fn no_such_job() -> Problem {
    let detail =
        "There is no job with this id: it never existed, or it has ended and is no longer kept (`keep`)";
    Problem::new(Kind::NotFound, detail)
}
