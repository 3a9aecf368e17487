//! Jobs.

use std::collections::BTreeMap;

use eclusa_core::{EventKind, JobView, Name, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::iso;
use crate::request::{Envelope, Response};
use crate::words::served;

/// The answer to a job that was taken in.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The job's id.
    pub job_id: String,
    /// Where the job is in its life.
    pub status: String,
    /// Its lane.
    pub lane: String,
    /// About how many jobs go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// When it will start, as far as can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    /// After when it is not started any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The id the caller gave (`id` or `Idempotency-Key`), else the job's own.
    pub id: String,
    /// The job's own id.
    pub job_id: String,
    /// Its lane.
    pub lane: String,
    /// Whose it is.
    pub tenant: String,
    /// `high`, `normal` or `low`.
    pub priority: String,
    /// The type it came with.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The params it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
    /// `pending`, `queued`, `processing`, `completed`, `failed`, `dropped` or `cancelled`.
    pub status: String,
    /// Why it was dropped, or what it was answered from if not from its own call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it came in.
    pub created_at: Option<String>,
    /// After when it is not started any more.
    pub expires_at: Option<String>,
    /// Attempts begun.
    pub attempts: u32,
    /// The upstream it is or was at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Its last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// What the upstream answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// What happened to it.
    pub timeline: Vec<TimelineEntry>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LastFailure {
    /// What went wrong.
    pub reason: String,
    /// The upstream's code, if it gave one.
    pub code: Option<String>,
    /// When.
    pub at: Option<String>,
    /// Where.
    pub upstream: Option<String>,
}

/// An upstream's answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobResult {
    /// The HTTP status.
    pub status: u16,
    /// Headers; of those that came more than once, all values.
    pub headers: BTreeMap<String, Vec<String>>,
    /// JSON where it is JSON, else text; bytes that are not text as `{"base64": …}`.
    pub body: Value,
}

/// One thing that happened to a job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// When.
    pub at: Option<String>,
    /// What.
    pub event: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
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
            status: view.status.as_str().into(),
            reason: dropped.or_else(|| view.served.map(|by| served(by).to_owned())),
            created_at: iso(view.created_at),
            expires_at: iso(view.expires_at),
            attempts: view.attempts,
            upstream: view.upstream.map(|upstream| upstream.to_string()),
            last_failure: view.last_failure.map(|failure| LastFailure {
                reason: failure.reason.as_str().into(),
                code: failure.code.map(|code| code.to_string()),
                at: iso(failure.at),
                upstream: failure.upstream.map(|upstream| upstream.to_string()),
            }),
            result: result.map(JobResult::from),
            timeline: view.timeline.into_iter().map(|event| entry(event.at, event.kind)).collect(),
        }
    }
}

fn entry(at: Time, kind: EventKind<Name>) -> TimelineEntry {
    let (event, detail) = match kind {
        EventKind::Accepted => ("accepted", None),
        EventKind::Started(upstream) => ("started", Some(upstream.to_string())),
        EventKind::Failed(upstream) => ("failed", Some(upstream.to_string())),
        EventKind::RetryAt(at) => ("retry_scheduled", iso(at)),
        EventKind::WaitsForRest => ("waits_for_rest_of_chain", None),
        EventKind::TakenUp => ("taken_up", None),
        EventKind::Released => ("released", None),
        EventKind::Awaiting(upstream) => ("awaiting", Some(upstream.to_string())),
        EventKind::Served(by) => ("served", Some(served(by).to_owned())),
        EventKind::Ended(status) => (status.as_str(), None),
    };
    TimelineEntry { at: iso(at), event: event.into(), detail }
}

impl From<Response> for JobResult {
    fn from(response: Response) -> Self {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in response.headers {
            headers.entry(name).or_default().push(String::from_utf8_lossy(&value).into_owned());
        }
        let body = serde_json::from_slice(&response.body).unwrap_or_else(|_| plain(response.body));
        Self { status: response.status, headers, body }
    }
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
