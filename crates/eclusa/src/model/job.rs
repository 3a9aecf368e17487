//! Jobs.

use std::collections::BTreeMap;

use eclusa_core::{Event, EventKind, FailureNote, JobTransition, JobView, Name, Status, Time, numbered};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::iso;
use super::shown::{Shown, ShownRequest, shown};
use super::vocabulary::{JobReason, JobStatus, Priority, TimelineEvent, WaitReason};
use crate::config::Field;
use crate::request::{Envelope, Response};
use crate::words::served;

/// The response for an accepted job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "jobId": "01a1e20c-835f-7f54-a1de-93085b88f45f",
    "status": "queued",
    "lane": "render",
    "position": 3,
    "eta": "2026-11-16T01:50:36.120Z",
    "expiresAt": "2026-11-16T02:50:33.311Z",
}))]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The job's id.
    pub job_id: String,
    /// The job's status.
    #[schema(value_type = JobStatus)]
    pub status: String,
    /// Its lane.
    pub lane: String,
    /// Approximate number of jobs ahead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// When it will probably start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub eta: Option<String>,
    /// When it expires: it is not started after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// A job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": "order-4711",
    "jobId": "01a1e20c-835f-7f54-a1de-93085b88f45f",
    "lane": "render",
    "tenant": "acme",
    "priority": "high",
    "status": "completed",
    "createdAt": "2026-11-16T01:50:33.311Z",
    "expiresAt": "2026-11-16T02:50:33.311Z",
    "attempts": 1,
    "upstream": "fal",
    "result": { "status": 200, "headers": { "content-type": ["application/json"] }, "body": { "done": true } },
    "timeline": [
        { "at": "2026-11-16T01:50:33.311Z", "event": "accepted" },
        { "at": "2026-11-16T01:50:33.514Z", "event": "started", "detail": "fal", "upstream": "fal" },
        { "at": "2026-11-16T01:50:36.120Z", "event": "completed" },
    ],
}))]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The id given by the caller (`id` or `Idempotency-Key`), else the job's own.
    pub id: String,
    /// The job's own id.
    pub job_id: String,
    /// Its lane.
    pub lane: String,
    /// The tenant it belongs to.
    pub tenant: String,
    /// `high`, `normal` or `low`.
    #[schema(value_type = Priority)]
    pub priority: String,
    /// The type given by the caller.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The params given by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
    /// The request it sends. Only in the response for a single job: it may be personal. Secrets are masked; the fields
    /// in the lane's `mask` are masked for every role except admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ShownRequest>,
    /// The message it sends, masked like `request`: without attachment contents, and without recipients that have
    /// received it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
    /// `pending`, `queued`, `processing`, `completed`, `failed`, `dropped` or `cancelled`.
    #[schema(value_type = JobStatus)]
    pub status: String,
    /// Why it was dropped, or the source of its result if not its own call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<JobReason>)]
    pub reason: Option<String>,
    /// When it was accepted.
    #[schema(format = DateTime)]
    pub created_at: Option<String>,
    /// When it expires: it is not started after this time.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Attempts started.
    pub attempts: u32,
    /// The upstream that works on it, or did last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Its id at an upstream that reports results later (`async`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Its last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// The upstream's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// Whether it is a dead letter, which can be replayed; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub dead_letter: bool,
    /// What happened to the job, oldest first.
    pub timeline: Vec<TimelineEntry>,
}

/// A failed attempt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LastFailure {
    /// What went wrong.
    pub reason: String,
    /// The upstream's code, if it gave one.
    pub code: Option<String>,
    /// Time of the failure.
    #[schema(format = DateTime)]
    pub at: Option<String>,
    /// The upstream that failed.
    pub upstream: Option<String>,
}

/// An upstream's response.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobResult {
    /// The HTTP status.
    pub status: u16,
    /// Headers by name, each with all its values.
    pub headers: BTreeMap<String, Vec<String>>,
    /// JSON if it is JSON, else text; bytes that are not text as `{"base64": …}`.
    pub body: Value,
}

/// One event in a job's timeline.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// Time of the event.
    #[schema(format = DateTime)]
    pub at: Option<String>,
    /// The kind of event.
    #[schema(value_type = TimelineEvent)]
    pub event: String,
    /// Details as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The upstream concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The upstream's code, if it failed the job with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Of `started`: what had held the job's lane for a second or more while it waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<PastWait>,
}

/// What held the lane of a job while the job waited.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PastWait {
    /// Why it could not start.
    #[schema(value_type = WaitReason)]
    pub reason: String,
    /// From when on, within the job's wait.
    #[schema(format = DateTime)]
    pub since: Option<String>,
    /// Until when; then the job may have waited for its turn or for a worker.
    #[schema(format = DateTime)]
    pub until: Option<String>,
}

impl From<&eclusa_core::Waited> for PastWait {
    fn from(waited: &eclusa_core::Waited) -> Self {
        let eclusa_core::Waited { reason, since, until } = *waited;
        Self { reason: reason.as_str().into(), since: iso(since), until: iso(until) }
    }
}

/// One event in a job's timeline, as sent to its followers.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobEvent {
    /// The timeline entry.
    #[serde(flatten)]
    pub entry: TimelineEntry,
    /// The job's status after the event.
    #[schema(value_type = JobStatus)]
    pub status: String,
    /// The job, with its last event only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<Job>>,
}

impl JobEvent {
    /// The events after number `seen`, each with its number.
    pub fn after(seen: u64, view: &JobView) -> Vec<(u64, Self)> {
        let new = numbered(&view.timeline).filter(|(number, _)| *number > seen);
        let to_event = |(number, event): (u64, &Event<Name>)| {
            let job = matches!(event.kind, EventKind::Ended(_)).then(|| whole(view));
            let status = status_after(&event.kind, view).as_str().into();
            (number, Self { entry: entry(event.at, &event.kind), status, job })
        };
        new.map(to_event).collect()
    }
}

/// Something that happened to a job, as `/v1/events` reports it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveJob {
    /// When it happened.
    #[schema(format = DateTime)]
    pub at: Option<String>,
    /// The job's own id.
    pub job_id: String,
    /// The id that its caller gave, else its own.
    pub id: String,
    /// Its lane.
    pub lane: String,
    /// Its tenant.
    pub tenant: String,
    /// Its priority.
    #[schema(value_type = Priority)]
    pub priority: String,
    /// What happened.
    #[schema(value_type = TimelineEvent)]
    pub event: String,
    /// Its status after that.
    #[schema(value_type = JobStatus)]
    pub status: String,
    /// The upstream that this was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Why it was dropped or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The upstream's code, where it failed the job and gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// When the job is tried again, where a retry was scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub retry_at: Option<String>,
}

impl From<&JobTransition> for LiveJob {
    fn from(transition: &JobTransition) -> Self {
        let TimelineEntry { at, event, detail, upstream, code, waited: _ } =
            entry(transition.at, &transition.kind);
        let dropped = transition.dropped.map(|reason| reason.as_str().to_owned());
        let said = matches!(transition.kind, EventKind::Failed(..) | EventKind::Served(_));
        let retry_at = match transition.kind {
            EventKind::RetryAt(at) => iso(at),
            _ => None,
        };
        Self {
            at,
            job_id: transition.job.to_string(),
            id: transition.key.as_ref().map_or_else(|| transition.job.to_string(), ToString::to_string),
            lane: transition.lane.to_string(),
            tenant: transition.tenant.to_string(),
            priority: transition.level.as_str().into(),
            event,
            status: transition.status.as_str().into(),
            upstream,
            reason: dropped.or_else(|| detail.filter(|_| said)),
            code,
            retry_at,
        }
    }
}

/// The job without its params, some of which the lane may mask.
fn whole(view: &JobView) -> Box<Job> {
    Box::new(Job { params: None, ..Job::from(view.clone()) })
}

fn status_after(kind: &EventKind<Name>, view: &JobView) -> Status {
    match kind {
        EventKind::Accepted if view.status == Status::Pending && view.attempts == 0 => Status::Pending,
        EventKind::Accepted | EventKind::WaitsForRest | EventKind::TakenUp | EventKind::Released => {
            Status::Queued
        }
        EventKind::Started(_)
        | EventKind::StartedAfter(..)
        | EventKind::Failed(..)
        | EventKind::Awaiting(_)
        | EventKind::Served(_) => Status::Processing,
        EventKind::RetryAt(_) => Status::Pending,
        EventKind::Ended(status) => *status,
        EventKind::Omitted(_) => view.status,
    }
}

impl From<JobView> for Job {
    fn from(view: JobView) -> Self {
        let envelope = Envelope::from_payload(&view.payload).ok();
        let (kind, params) = envelope.map(|envelope| (envelope.kind, envelope.params)).unwrap_or_default();
        let result = view.result.as_deref().and_then(|bytes| Response::from_payload(bytes).ok());
        let dropped = view.dropped.map(|reason| reason.as_str().to_owned());
        Self {
            id: view.key.map_or_else(|| view.id.to_string(), |key| key.to_string()),
            job_id: view.id.to_string(),
            lane: view.lane.to_string(),
            tenant: view.tenant.to_string(),
            priority: view.level.as_str().into(),
            kind,
            params: params.and_then(|params| serde_json::from_str(&params).ok()),
            request: None,
            message: None,
            status: view.status.as_str().into(),
            reason: dropped.or_else(|| view.served.map(|by| served(by).to_owned())),
            created_at: iso(view.created_at),
            expires_at: iso(view.expires_at),
            attempts: view.attempts,
            upstream: view.upstream.map(|upstream| upstream.to_string()),
            external_id: view.external.as_deref().map(str::to_owned),
            last_failure: view.last_failure.map(|failure| LastFailure {
                reason: failure.reason.as_str().into(),
                code: failure.code.map(|code| code.to_string()),
                at: iso(failure.at),
                upstream: failure.upstream.map(|upstream| upstream.to_string()),
            }),
            result: result.map(JobResult::from),
            dead_letter: view.dead_letter,
            timeline: view.timeline.iter().map(|event| entry(event.at, &event.kind)).collect(),
        }
    }
}

impl Job {
    /// The job with its request, except what `masks` hide.
    pub(crate) fn with_request(view: JobView, masks: &[Field]) -> Self {
        let shown = Envelope::from_payload(&view.payload).ok().map(|envelope| shown(envelope, masks));
        let Shown { request, mut message, params } = shown.unwrap_or_default();
        let files = message.as_mut().and_then(|message| message.get_mut("attachments")?.as_array_mut());
        for file in files.into_iter().flatten().filter_map(Value::as_object_mut) {
            file.remove("content");
        }
        Self { params, request, message, ..Self::from(view) }
    }
}

fn entry(at: Time, kind: &EventKind<Name>) -> TimelineEntry {
    let (event, upstream, detail) = match kind {
        EventKind::Accepted => ("accepted", None, None),
        EventKind::Started(upstream) | EventKind::StartedAfter(upstream, _) => {
            ("started", Some(upstream), Some(upstream.to_string()))
        }
        EventKind::Failed(upstream, note) => {
            ("failed", Some(upstream), Some(failed(upstream, note.as_deref())))
        }
        EventKind::RetryAt(at) => ("retry_scheduled", None, iso(*at)),
        EventKind::WaitsForRest => ("waits_for_rest_of_chain", None, None),
        EventKind::TakenUp => ("taken_up", None, None),
        EventKind::Released => ("released", None, None),
        EventKind::Awaiting(upstream) => ("awaiting", Some(upstream), Some(upstream.to_string())),
        EventKind::Served(by) => ("served", None, Some(served(*by).to_owned())),
        EventKind::Ended(status) => (status.as_str(), None, None),
        EventKind::Omitted(lines) => ("omitted", None, Some(format!("{lines} earlier events"))),
    };
    let code = match kind {
        EventKind::Failed(_, Some(note)) => note.code.as_ref().map(ToString::to_string),
        _ => None,
    };
    let upstream = upstream.map(ToString::to_string);
    let waited = match kind {
        EventKind::StartedAfter(_, waited) => Some(PastWait::from(&**waited)),
        _ => None,
    };
    TimelineEntry { at: iso(at), event: event.into(), detail, upstream, code, waited }
}

/// `fal: 429 Too Many Requests`, `fal: timeout, no answer within 5 s`.
fn failed(upstream: &Name, note: Option<&FailureNote>) -> String {
    let Some(FailureNote { code, reason }) = note else { return upstream.to_string() };
    let said = reason.strip_prefix("answered ").unwrap_or(reason);
    match code.as_deref().filter(|code| !said.contains(code)) {
        Some(code) => format!("{upstream}: {code}, {said}"),
        None => format!("{upstream}: {said}"),
    }
}

impl From<Response> for JobResult {
    fn from(response: Response) -> Self {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in response.headers {
            headers.entry(name).or_default().push(String::from_utf8_lossy(&value).into_owned());
        }
        Self { status: response.status, headers, body: body(response.body) }
    }
}

/// JSON if it is JSON, else text, else base64.
pub(super) fn body(bytes: Vec<u8>) -> Value {
    serde_json::from_slice(&bytes).unwrap_or_else(|_| plain(bytes))
}

fn plain(body: Vec<u8>) -> Value {
    match String::from_utf8(body) {
        Ok(text) => text.into(),
        Err(bytes) => serde_json::json!({ "base64": base64(bytes.as_bytes()) }),
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .enumerate()
            .fold(0u32, |group, (at, byte)| group | u32::from(*byte) << (16 - 8 * at));
        for place in 0..4 {
            let letter = LETTERS[(group >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}
