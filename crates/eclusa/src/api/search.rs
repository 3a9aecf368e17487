//! `/v1/jobs`: search jobs, or cancel those that match a filter.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use eclusa_core::{CancelAll, JobCursor, JobQuery, JobView, MAX_BATCH, Status, Store, Time};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::audit::audit;
use super::auth::{Caller, Right};
use super::extract::Query;
use super::find::may_see;
use super::jobs::Canceller;
use super::model::Job;
use super::problem::Problem;
use super::state::Api;
use super::store_problem::unavailable;
use super::submit;
use crate::config::parse_duration;
use crate::decide::Decider;
use crate::intake::Fault;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::words::iso;

/// Jobs per page.
const PAGE: usize = 50;
/// Pages of jobs that one call cancels.
const CANCELLED_PAGES: usize = 10;

/// State needed by these calls.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Search {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
}

/// Which jobs to return.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(rename_all = "camelCase")]
pub(super) struct SearchQuery {
    /// Jobs of this lane.
    lane: Option<String>,
    /// Jobs of this tenant.
    tenant: Option<String>,
    /// Jobs with this status.
    status: Option<String>,
    /// Jobs with this id: the caller's, or the job's own.
    id: Option<String>,
    /// Jobs with this id at their upstream.
    external_id: Option<String>,
    /// Jobs created at or after this time: ISO 8601, or an age such as `10m`.
    since: Option<String>,
    /// Jobs created at or before this time: ISO 8601, or an age such as `10m`.
    until: Option<String>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

/// Which jobs to cancel.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(rename_all = "camelCase")]
pub(super) struct CancelQuery {
    /// Jobs of this lane.
    lane: Option<String>,
    /// Jobs of this tenant.
    tenant: Option<String>,
    /// Jobs with this status.
    status: Option<String>,
    /// Jobs with this id: the caller's, or the job's own.
    id: Option<String>,
    /// Jobs with this id at their upstream.
    external_id: Option<String>,
    /// Jobs created at or after this time: ISO 8601, or an age such as `10m`.
    since: Option<String>,
    /// Jobs created at or before this time: ISO 8601, or an age such as `10m`.
    until: Option<String>,
    /// The `cursor` of the previous call.
    cursor: Option<String>,
    /// If `true`, only counts.
    dry_run: Option<bool>,
}

/// A page of jobs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// Newest first. A page may be short without being the last.
    pub jobs: Vec<Job>,
    /// The cursor of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The result of a bulk cancellation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelledJobs {
    /// Jobs that matched and had not ended.
    pub matched: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Whether they were only counted.
    pub dry_run: bool,
    /// The cursor for the next call; absent when all jobs were checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl Search {
    /// The query for the store, or everything that is wrong with it.
    fn query(&self, caller: &Caller, query: SearchQuery, max: usize) -> Result<JobQuery, Problem> {
        let lane = query.lane.as_deref().map(|lane| submit::lane(&self.rules, caller, lane)).transpose()?;
        let (now, mut faults) = (self.store.now(), Vec::new());
        let ask = JobQuery {
            lane: lane.map(|(lane, _)| lane),
            tenant: query.tenant.map(Into::into),
            status: read("status", query.status, status, &mut faults),
            key: query.id.map(Into::into),
            external: query.external_id.map(Into::into),
            since: read("since", query.since, |text| moment(now, text), &mut faults),
            until: read("until", query.until, |text| moment(now, text), &mut faults),
            after: read("cursor", query.cursor, cursor, &mut faults),
            max,
        };
        if faults.is_empty() { Ok(ask) } else { Err(Problem::invalid(&faults)) }
    }

    /// The jobs to cancel that upstreams may be working on, which are then notified.
    async fn running(&self, query: &JobQuery) -> Result<Vec<JobView>, Problem> {
        let status = query.status.unwrap_or(Status::Processing);
        let upstreams = &self.rules.get().config.upstreams;
        let notifies =
            upstreams.values().any(|rules| rules.awaited().is_some_and(|rules| rules.cancel.is_some()));
        if !notifies || status != Status::Processing {
            return Ok(Vec::new());
        }
        let ask = JobQuery { status: Some(status), ..query.clone() };
        let page = self.store.jobs(ask).await.map_err(|error| unavailable(&error))?;
        Ok(page.jobs)
    }
}

/// Parses a time, or an age before `now`.
pub(super) fn moment(now: Time, text: &str) -> Result<Time, String> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(now - ago);
    }
    let moment = text.parse::<jiff::Timestamp>().ok();
    let millis = moment.and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
    let wrong = "must be a time such as 2026-11-17T12:00:00Z (write `+` as %2B), or an age such as 10m";
    millis.map(Time::from_millis).ok_or_else(|| wrong.into())
}

pub(super) fn read<T>(
    field: &str,
    text: Option<String>,
    read: impl FnOnce(&str) -> Result<T, String>,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    let wrong = |problem: String| faults.push(Fault::new(field, problem));
    text.and_then(|text| read(&text).map_err(wrong).ok())
}

fn cursor(text: &str) -> Result<JobCursor, String> {
    text.parse().map_err(|_| "is not a cursor of a previous page".into())
}

fn status(text: &str) -> Result<Status, String> {
    use Status::{Cancelled, Completed, Dropped, Failed, Pending, Processing, Queued};
    let all = [Pending, Queued, Processing, Completed, Failed, Dropped, Cancelled];
    let found = all.into_iter().find(|status| status.as_str() == text);
    found.ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|status| status.as_str()).collect();
        format!("must be one of {}", words.join(", "))
    })
}

/// Search jobs, newest first
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(SearchQuery), responses((status = 200, body = JobList)))]
pub(super) async fn search(
    search: Search,
    caller: Caller,
    Query(query): Query<SearchQuery>,
) -> Result<Json<JobList>, Problem> {
    caller.may(Right::SeeAll)?;
    let ask = search.query(&caller, query, PAGE)?;
    let page = search.store.jobs(ask).await.map_err(|error| unavailable(&error))?;
    // A list omits requests and results, which may be personal.
    let short = |job: JobView| Job { params: None, result: None, ..Job::from(job) };
    let jobs = page.jobs.into_iter().filter_map(|job| may_see(&caller, job, None)).map(short).collect();
    Ok(Json(JobList { jobs, cursor: page.next.map(|next| next.to_string()) }))
}

/// Cancel all jobs that match
///
/// Needs at least one filter. One call cancels up to 1000 jobs; if the response has a `cursor`, call again with it.
/// `async` upstreams that work on a job are notified if they have a `cancel`.
#[utoipa::path(delete, path = "/v1/jobs", tag = "jobs", params(CancelQuery),
    responses((status = 200, body = CancelledJobs)))]
pub(super) async fn cancel(
    search: Search,
    State(decider): State<Arc<Decider>>,
    State(canceller): State<Canceller>,
    caller: Caller,
    Query(query): Query<CancelQuery>,
) -> Result<Json<CancelledJobs>, Problem> {
    caller.may(Right::Operate)?;
    let CancelQuery { lane, tenant, status, id, external_id, since, until, cursor, dry_run } = query;
    let dry_run = dry_run.unwrap_or_default();
    let query = SearchQuery { lane, tenant, status, id, external_id, since, until, cursor };
    let mut query = search.query(&caller, query, MAX_BATCH)?;
    may_cancel(&caller, &query)?;
    let filter = described(&query);
    let mut result = CancelledJobs { matched: 0, cancelled: 0, dry_run, cursor: None };
    for _ in 0..CANCELLED_PAGES {
        let running = if dry_run { Vec::new() } else { search.running(&query).await? };
        let page = decider.cancel_all(CancelAll { query: query.clone(), dry_run }).await;
        let page = page.map_err(|error| unavailable(&error))?;
        for job in running.iter().filter(|job| page.ended.iter().any(|ended| ended.job == job.id)) {
            canceller.recall(&decider, job);
        }
        result.matched += page.matched;
        result.cancelled += page.ended.len() as u64;
        result.cursor = page.next.map(|next| next.to_string());
        query.after = page.next;
        if page.next.is_none() {
            break;
        }
    }
    if result.cancelled > 0 {
        audit!(caller, "cancel", jobs = result.cancelled, filter, "Jobs cancelled by filter");
    }
    Ok(Json(result))
}

/// The filter as text for the log. The caller's own id is omitted: it may be personal.
fn described(query: &JobQuery) -> String {
    let words = [
        query.lane.as_ref().map(|lane| format!("lane={lane}")),
        query.tenant.as_ref().map(|tenant| format!("tenant={tenant}")),
        query.status.map(|status| format!("status={}", status.as_str())),
        query.key.as_ref().map(|_| "id=…".to_owned()),
        query.external.as_ref().map(|_| "externalId=…".to_owned()),
        query.since.and_then(iso).map(|since| format!("since={since}")),
        query.until.and_then(iso).map(|until| format!("until={until}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// `Ok` if the filter is not empty and matches nothing that the caller may not change.
fn may_cancel(caller: &Caller, query: &JobQuery) -> Result<(), Problem> {
    let JobQuery { lane, tenant, status, key, external, since, until, after: _, max: _ } = query;
    let named = key.is_some() || external.is_some();
    let narrowed = lane.is_some() || tenant.is_some() || status.is_some() || named;
    if !narrowed && since.is_none() && until.is_none() {
        let problem = "is required, or one of `tenant`, `status`, `id`, `externalId`, `since`, `until`: otherwise every job would match";
        return Err(Problem::invalid(&[Fault::new("lane", problem)]));
    }
    if let Some(status) = status.filter(|status| status.is_final()) {
        let problem = format!("is `{}`: such jobs have already ended", status.as_str());
        return Err(Problem::invalid(&[Fault::new("status", problem)]));
    }
    if lane.is_none() {
        caller.may_use_all_lanes()?;
    }
    match tenant {
        Some(tenant) => caller.may_act_for(tenant),
        None => caller.may_act_for_all_tenants(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use eclusa_core::{Clock, Name, NewJob, Span};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::config::Config;
    use crate::peers::ProcessRole;
    use crate::process;

    const BEGAN: Time = Time::from_millis(1_700_000_000_000);

    /// A clock that the test sets.
    struct MachineClock(AtomicU64);

    impl MachineClock {
        fn set(&self, time: Time) {
            self.0.store(time.as_millis(), Ordering::Relaxed);
        }
    }

    impl Clock for MachineClock {
        fn now(&self) -> Time {
            Time::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    async fn call(api: &Api, method: &str, path: &str) -> serde_json::Value {
        let request = http::Request::builder().method(method).uri(path).body(axum::body::Body::empty());
        let router = crate::api::router(api, ProcessRole::All);
        let answer = router.oneshot(request.unwrap()).await.unwrap().into_body();
        serde_json::from_slice(&answer.collect().await.unwrap().to_bytes()).unwrap()
    }

    /// The store's time continues when the clock of the machine is set back.
    #[tokio::test]
    async fn ages_are_by_the_stores_time() {
        let text = "[store]\nurl = \"memory:\"\n[lanes.mail]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://up\"\n";
        let config = Config::parse("test.toml", text, &|_| None).unwrap();
        let clock = Arc::new(MachineClock(AtomicU64::new(BEGAN.as_millis())));
        let api = process::open(config, ProcessRole::All, clock.clone()).unwrap().api;
        let job = NewJob::new(eclusa_core::JobId(1), Name::new("mail").unwrap(), "acme", []);
        api.0.store.enqueue(vec![job]).await.unwrap();
        clock.set(BEGAN + Span::from_secs(1_800));
        api.0.store.sweep().await.unwrap();
        clock.set(BEGAN);
        for (age, jobs) in [("10m", 0), ("40m", 1)] {
            let found = call(&api, "GET", &format!("/v1/jobs?since={age}")).await;
            assert_eq!(found["jobs"].as_array().unwrap().len(), jobs, "{age}: {found}");
        }
        let cancelled = call(&api, "DELETE", "/v1/jobs?since=10m").await;
        assert_eq!(cancelled["cancelled"], 0, "{cancelled}");
    }
}
