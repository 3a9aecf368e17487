//! `eclusa jobs`.

mod cancel;

use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Args, Subcommand};
use serde_json::Value;
use tokio::time::Instant;

use self::cancel::CancelArgs;
use super::Exit;
use super::client::{Client, path, with_query};
use super::output::{Format, count, fields, or_dash, readable, section, table, typed, typed_all};
use super::pages::{Pages, SHOWN, limit};
use super::watch::{self, Listing, WatchArgs};
use crate::model::{Job, JobResult, LastFailure, TimelineEntry};

/// How long the server is asked to wait per request; it may respond earlier.
pub(super) const STEP: Duration = Duration::from_secs(20);
/// The shortest pause between two such requests.
const PAUSE: Duration = Duration::from_millis(100);
/// All statuses of a job, and the final ones.
const STATUSES: [&str; 7] =
    ["pending", "queued", "processing", "completed", "failed", "dropped", "cancelled"];
const ENDS: [&str; 4] = ["completed", "failed", "dropped", "cancelled"];

#[derive(Debug, Subcommand)]
pub(super) enum JobsCommand {
    /// List jobs, newest first
    Ls {
        #[command(flatten)]
        filter: JobFilter,
        /// The most jobs to show
        #[arg(long, value_name = "N", default_value_t = SHOWN, value_parser = limit)]
        limit: usize,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Show a job with its history and result
    Get(JobArgs),
    /// Wait until a job has ended; the exit code is 7 unless it completed
    Wait {
        #[command(flatten)]
        job: JobArgs,
        /// How long to wait
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds())]
        timeout: u64,
    },
    /// Cancel a job, or all that match; the result of a running call is discarded
    Cancel(CancelArgs),
}

/// A job by its own id, or by the one its caller gave.
#[derive(Debug, Args)]
pub(super) struct JobArgs {
    /// The job: its own id, or the one its caller gave
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// Its lane, if several lanes have a job with this id
    #[arg(long)]
    lane: Option<String>,
}

impl JobArgs {
    fn path(&self) -> String {
        with_query(&path(&["v1", "jobs", &self.id]), &[("lane", self.lane.as_deref())])
    }
}

#[derive(Debug, Args)]
pub(super) struct JobFilter {
    /// Only of this lane
    #[arg(long)]
    pub(super) lane: Option<String>,
    /// Only of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only with this status
    #[arg(long, value_parser = PossibleValuesParser::new(STATUSES))]
    status: Option<String>,
    /// Only with this id: the job's own, or the one its caller gave
    #[arg(long = "id", value_name = "ID")]
    key: Option<String>,
    /// Only jobs created at or after this time, or within this duration (10m)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only jobs created at or before this time, or at least this long ago (10m)
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

impl JobFilter {
    /// The filter as query parameters.
    pub(super) fn parameters(&self) -> [(&'static str, Option<&str>); 6] {
        [
            ("lane", self.lane.as_deref()),
            ("tenant", self.tenant.as_deref()),
            ("status", self.status.as_deref()),
            ("id", self.key.as_deref()),
            ("since", self.since.as_deref()),
            ("until", self.until.as_deref()),
        ]
    }

    /// Whether any filter besides the lane is set.
    pub(super) fn narrows_beyond_lane(&self) -> bool {
        self.parameters()[1..].iter().any(|(_, value)| value.is_some())
    }
}

/// Parses a wait of up to a year.
pub(super) fn seconds() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=365 * 24 * 3600)
}

/// Runs a command on jobs.
pub(super) fn run(args: &JobsCommand, client: &Client, format: Format) -> Result<(), Exit> {
    match args {
        JobsCommand::Ls { filter, limit, watch } => {
            let read = || {
                let pages = Pages::read(client, "/v1/jobs", &filter.parameters(), "jobs", *limit)?;
                Ok(Listing::pages(pages, "jobs", "jobs"))
            };
            watch::show(watch, format, read, text)
        }
        JobsCommand::Get(job) => show(&client.get(&job.path())?, format),
        JobsCommand::Wait { job, timeout } => {
            let timeout = Duration::from_secs(*timeout);
            let job = client.run(wait(client, (&job.id, job.lane.as_deref()), timeout))?;
            show(&job, format)?;
            completed(&typed(&job)?, timeout)
        }
        JobsCommand::Cancel(args) => cancel::run(args, client, format),
    }
}

fn text(jobs: &[Value]) -> Result<String, Exit> {
    let row = |job: Job| {
        let failure = or_dash(job.last_failure.as_ref().map(|failure| failure.reason.as_str()));
        let (attempts, created) = (job.attempts.to_string(), or_dash(job.created_at.as_deref()));
        let reason = or_dash(job.reason.as_deref());
        vec![job.job_id, job.lane, job.tenant, job.priority, job.status, reason, attempts, created, failure]
    };
    let start = ["ID", "LANE", "TENANT", "PRIORITY", "STATUS", "REASON"];
    let head = [&start[..], &["ATTEMPTS", "CREATED", "LAST FAILURE"]].concat();
    Ok(table(&head, typed_all(jobs)?.into_iter().map(row).collect()))
}

/// Returns the job when it has ended, or its state after `timeout`.
pub(super) async fn wait(
    client: &Client,
    (id, lane): (&str, Option<&str>),
    timeout: Duration,
) -> Result<Value, Exit> {
    let deadline = Instant::now() + timeout;
    let path = path(&["v1", "jobs", id, "wait"]);
    loop {
        let step = deadline.saturating_duration_since(Instant::now()).min(STEP);
        let seconds = step.as_secs_f64().to_string();
        let path = with_query(&path, &[("timeout", Some(&seconds)), ("lane", lane)]);
        let job = client.look(&path, step).await?;
        let ended = job.get("status").and_then(Value::as_str).is_some_and(|status| ENDS.contains(&status));
        let left = deadline.saturating_duration_since(Instant::now());
        if ended || left.is_zero() {
            return Ok(job);
        }
        tokio::time::sleep(PAUSE.min(left)).await;
    }
}

/// The state of a job, to follow its name in a sentence.
pub(super) fn state(status: &str) -> String {
    match status {
        "completed" | "failed" => format!("has {status}"),
        "dropped" | "cancelled" => format!("was {status}"),
        waiting => format!("is {waiting}"),
    }
}

/// `Ok` if the awaited job completed.
pub(super) fn completed(job: &Job, waited: Duration) -> Result<(), Exit> {
    let (id, status) = (&job.job_id, job.status.as_str());
    let text = match status {
        "completed" => return Ok(()),
        "failed" => {
            let tries = count(usize::try_from(job.attempts).unwrap_or(usize::MAX), "attempt");
            let why = job.last_failure.as_ref().map(|failure| format!(": {}", failure.reason));
            format!("job {id} failed after {tries}{}", why.unwrap_or_default())
        }
        "dropped" | "cancelled" => {
            let why = job.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("job {id} was {status}{why}")
        }
        _ => {
            format!("job {id} is still {status} after {} s\nhelp: `eclusa why {id}`", waited.as_secs())
        }
    };
    Err(Exit::JobFailed(text))
}

/// Prints a job with all its details.
pub(super) fn show(value: &Value, format: Format) -> Result<(), Exit> {
    format.one(value, || {
        let job: Job = typed(value)?;
        let key = (job.id != job.job_id).then_some(job.id);
        let known = fields(&[
            ("id", Some(job.job_id)),
            ("key", key),
            ("lane", Some(job.lane)),
            ("tenant", Some(job.tenant)),
            ("priority", Some(job.priority)),
            ("type", job.kind),
            ("status", Some(job.status)),
            ("reason", job.reason),
            ("created", job.created_at),
            ("expires", job.expires_at),
            ("attempts", Some(job.attempts.to_string())),
            ("upstream", job.upstream),
            ("tried", tried(&job.timeline)),
            ("last failure", job.last_failure.as_ref().map(failure)),
        ]);
        let params = job.params.as_ref().map(|params| section("params", &readable(params)));
        let event = |event: TimelineEntry| {
            let detail = event.detail.unwrap_or_default();
            let detail = match &event.waited {
                Some(waited) => format!("{detail}, after waiting: {}", waited.reason),
                None => detail,
            };
            vec![or_dash(event.at.as_deref()), event.event, detail]
        };
        let events = table(&["AT", "EVENT", "DETAIL"], job.timeline.into_iter().map(event).collect());
        let result = job.result.as_ref().map(result).unwrap_or_default();
        Ok(known + &params.unwrap_or_default() + &section("timeline", &events) + &result)
    })
}

/// The upstreams that were tried, with the results: `replicate ✗ 429 → fal ✓`.
fn tried(timeline: &[TimelineEntry]) -> Option<String> {
    let mut calls: Vec<String> = Vec::new();
    for entry in timeline {
        match (entry.event.as_str(), &entry.upstream) {
            ("started", Some(upstream)) => calls.push(upstream.clone()),
            ("omitted", _) => calls.push("…".into()),
            (event, _) => {
                let how = match event {
                    "failed" => format!(" ✗ {}", entry.code.as_deref().unwrap_or("failed")),
                    "completed" => " ✓".into(),
                    "taken_up" => " ✗ worker lost".into(),
                    "released" => " (not sent)".into(),
                    _ => continue,
                };
                // A call has one result. After it, the end of the job says nothing new. No name contains a space.
                if let Some(call) =
                    calls.last_mut().filter(|call| !call.ends_with('…') && !call.contains(' '))
                {
                    call.push_str(&how);
                }
            }
        }
    }
    (!calls.is_empty()).then(|| calls.join(" → "))
}

fn failure(failure: &LastFailure) -> String {
    let part = |text: &Option<String>, before: &str| {
        text.as_ref().map(|text| format!("{before}{text}")).unwrap_or_default()
    };
    let (code, upstream) = (part(&failure.code, ", code "), part(&failure.upstream, ", from "));
    format!("{}{code}{upstream}", failure.reason)
}

fn result(result: &JobResult) -> String {
    let headers = result.headers.iter();
    let headers =
        headers.flat_map(|(name, values)| values.iter().map(move |value| format!("{name}: {value}\n")));
    let headers: String = headers.collect();
    section("result", &format!("{}\n{headers}\n{}", result.status, readable(&result.body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: &str, upstream: Option<&str>, code: Option<&str>) -> TimelineEntry {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        TimelineEntry {
            at: None,
            event: event.into(),
            detail: None,
            upstream: owned(upstream),
            code: owned(code),
            waited: None,
        }
    }

    #[test]
    fn the_tried_upstreams_are_one_line() {
        let (accepted, start) = (entry("accepted", None, None), |name| entry("started", Some(name), None));
        assert_eq!(tried(std::slice::from_ref(&accepted)), None);
        let failed = entry("failed", Some("replicate"), Some("429"));
        let timeline = [accepted, start("replicate"), failed, start("fal"), entry("completed", None, None)];
        assert_eq!(tried(&timeline).as_deref(), Some("replicate ✗ 429 → fal ✓"));
        assert_eq!(tried(&timeline[..4]).as_deref(), Some("replicate ✗ 429 → fal"));
        let failed = entry("failed", Some("fal"), Some("500"));
        let given_up = [start("fal"), failed.clone(), start("fal"), failed, entry("failed", None, None)];
        assert_eq!(tried(&given_up).as_deref(), Some("fal ✗ 500 → fal ✗ 500"));
        let lost = [entry("omitted", None, None), entry("taken_up", None, None), start("fal")];
        assert_eq!(tried(&lost).as_deref(), Some("… → fal"));
        let lost = [start("fal"), entry("taken_up", None, None), start("fal"), entry("released", None, None)];
        assert_eq!(tried(&lost).as_deref(), Some("fal ✗ worker lost → fal (not sent)"));
    }
}
