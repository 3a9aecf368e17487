//! What the API says, as JSON in camelCase. The command line reads the same types.

use std::collections::BTreeMap;

use eclusa_core::gate::{BreakerState, GateView, Reason};
use eclusa_core::{
    DeadLetterView, EventKind, JobView, LaneView, Name, ServedBy, TenantView, Time, Tokens, UpstreamView, Why,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::request::{Envelope, Response};

/// A moment as ISO 8601 in UTC; `None` for "never".
pub fn iso(time: Time) -> Option<String> {
    let millis = i64::try_from(time.as_millis()).ok()?;
    jiff::Timestamp::from_millisecond(millis).ok().map(|time| format!("{time:.3}"))
}

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

/// How a job was answered without a call of its own that succeeded.
pub(crate) const fn served(by: ServedBy) -> &'static str {
    match by {
        ServedBy::Cache => "cache",
        ServedBy::Coalesced => "coalesced",
        ServedBy::Stale(fallback) => fallback.as_str(),
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

/// Why a job waits and until when.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyAnswer {
    /// Where the job is in its life.
    pub status: String,
    /// One of the closed list of wait reasons, if it waits.
    pub reason: Option<String>,
    /// At which upstream.
    pub upstream: Option<String>,
    /// The same in a sentence.
    pub detail: String,
    /// About how many jobs go first.
    pub position: u64,
    /// When it will start, as far as can be told.
    pub eta: Option<String>,
    /// Whether it will be too old by then.
    pub will_expire: bool,
    /// The gates of its upstreams.
    pub gates: Vec<Gate>,
}

/// A gate's state.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// Whose; absent for a lane's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// What it would say no with.
    pub reason: String,
    /// Whether it lets one through now.
    pub open: bool,
    /// Until when not, if that is known.
    pub until: Option<String>,
    /// What it counts: whole tokens left, calls under way, starts in the window, milliseconds between starts.
    pub level: i64,
    /// The most or least of that.
    pub limit: Option<i64>,
}

/// A gate as JSON.
pub(crate) fn gate(upstream: Option<&Name>, view: &GateView) -> Gate {
    Gate {
        upstream: upstream.map(ToString::to_string),
        reason: view.reason.as_str().into(),
        open: view.denies_until.is_none(),
        until: view.denies_until.and_then(iso),
        level: counted(view, view.level),
        limit: view.limit.map(|limit| counted(view, limit)),
    }
}

/// A bucket counts in millionths; people do not.
pub(crate) fn counted(view: &GateView, amount: i64) -> i64 {
    if view.reason == Reason::RateLimit { amount.div_euclid(Tokens::ONE.as_micro()) } else { amount }
}

impl From<Why> for WhyAnswer {
    fn from(why: Why) -> Self {
        let gates =
            why.gates.iter().flat_map(|(name, gates)| gates.iter().map(move |view| gate(Some(name), view)));
        Self {
            detail: super::why::sentence(&why),
            status: why.status.as_str().into(),
            reason: why.reason.map(|reason| reason.as_str().into()),
            upstream: why.upstream.as_ref().map(ToString::to_string),
            position: why.position,
            eta: why.eta.and_then(iso),
            will_expire: why.will_expire,
            gates: gates.collect(),
        }
    }
}

/// A lane.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Jobs that wait for their turn, by priority.
    pub queued: Levels,
    /// Jobs held back: scheduled, or between attempts.
    pub pending: u64,
    /// Jobs at an upstream.
    pub processing: u64,
    /// Bytes of jobs that wait.
    pub waiting_bytes: u64,
    /// Finished jobs still remembered.
    pub finished: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// What happened so far.
    pub totals: LaneTotals,
    /// Its own gates.
    pub gates: Vec<Gate>,
}

/// Numbers by priority.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Levels {
    /// Served first.
    pub high: u64,
    /// Served next.
    pub normal: u64,
    /// Served last.
    pub low: u64,
}

/// What happened in a lane so far.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaneTotals {
    /// Jobs taken in.
    pub accepted: u64,
    /// Jobs that succeeded by a call.
    pub completed: u64,
    /// Jobs answered by the call of an equal one.
    pub coalesced: u64,
    /// Requests and jobs answered from the cache.
    pub cache_hits: u64,
    /// Those answered from an old entry because of a failure.
    pub fallbacks: u64,
    /// Jobs that failed for good.
    pub failed: u64,
    /// Jobs cancelled.
    pub cancelled: u64,
    /// Jobs dropped because they waited too long.
    pub expired: u64,
    /// Jobs dropped for more urgent ones.
    pub preempted: u64,
    /// Jobs refused because the lane was full.
    pub refused: u64,
    /// Dead letters written.
    pub dead_letters: u64,
    /// Dead letters lost to the cap.
    pub dead_letters_trimmed: u64,
}

impl From<LaneView> for Lane {
    fn from(view: LaneView) -> Self {
        let totals = view.totals;
        Self {
            name: view.name.to_string(),
            paused: view.paused,
            queued: Levels { high: view.queued[0], normal: view.queued[1], low: view.queued[2] },
            pending: view.pending,
            processing: view.processing,
            waiting_bytes: view.waiting_bytes,
            finished: view.finished,
            dead_letters: view.dead_letters,
            totals: LaneTotals {
                accepted: totals.accepted,
                completed: totals.completed,
                coalesced: totals.coalesced,
                cache_hits: totals.cache_hits,
                fallbacks: totals.fallbacks,
                failed: totals.failed,
                cancelled: totals.cancelled,
                expired: totals.expired,
                preempted: totals.preempted,
                refused: totals.refused,
                dead_letters: totals.dead,
                dead_letters_trimmed: totals.dead_trimmed,
            },
            gates: view.gates.iter().map(|view| gate(None, view)).collect(),
        }
    }
}

/// How fair a lane is to one tenant.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantFairnessMetrics {
    /// The tenant.
    pub company_id: String,
    /// When a job of it was last started.
    pub last_processed_at: Option<String>,
    /// Turns of others since its own.
    pub rounds_without_processing: i64,
    /// `max(1, 5 - rounds)`: 1 is the most urgent.
    pub current_priority: i64,
    /// Jobs of it started so far.
    pub total_processed: u64,
    /// Jobs of it started in a row.
    pub consecutive_batch_count: u32,
}

impl From<TenantView> for TenantFairnessMetrics {
    fn from(view: TenantView) -> Self {
        Self {
            company_id: view.tenant.to_string(),
            last_processed_at: view.last_processed.and_then(iso),
            rounds_without_processing: view.rounds_without_processing,
            current_priority: view.current_priority,
            total_processed: view.total_processed,
            consecutive_batch_count: view.consecutive_batch,
        }
    }
}

/// An upstream.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// Calls under way.
    pub in_flight: u32,
    /// About how many calls were started in the last minute.
    pub requests_last_minute: u64,
    /// Every gate's state.
    pub gates: Vec<Gate>,
}

impl From<UpstreamView> for Upstream {
    fn from(view: UpstreamView) -> Self {
        Self {
            name: view.name.to_string(),
            in_flight: view.in_flight,
            requests_last_minute: view.starts_last_minute,
            gates: view.gates.iter().map(|view| gate(None, view)).collect(),
        }
    }
}

/// A breaker.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// Its upstream.
    pub name: String,
    /// Failures in a row.
    pub failures: u32,
    /// Whether it keeps calls away now.
    pub degraded: bool,
    /// Until when.
    pub degraded_until: Option<String>,
    /// `closed`, `open` or `half_open`.
    pub state: String,
}

/// The word for a breaker's state.
pub(crate) const fn breaker_state(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half_open",
    }
}

/// The breaker of an upstream that has one.
pub(crate) fn breaker(view: &UpstreamView) -> Option<Breaker> {
    let state = view.breaker.as_ref()?.state;
    Some(Breaker {
        name: view.name.to_string(),
        failures: view.failures,
        degraded: state == BreakerState::Open,
        degraded_until: view.degraded_until.and_then(iso),
        state: breaker_state(state).into(),
    })
}

/// A job that failed for good.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// The job that failed.
    pub job_id: String,
    /// The id the caller gave, else the job's own.
    pub outbox_id: String,
    /// Whose it was.
    pub company_id: String,
    /// What was to be sent; only in the view of a single letter, for it may be personal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_data: Option<Value>,
    /// Attempts made.
    pub failed_attempts: u32,
    /// Why the last one failed; never empty.
    pub last_failure_reason: String,
    /// The upstream's code, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure_code: Option<String>,
    /// When it failed last.
    pub last_failure_timestamp: Option<String>,
    /// When the job came in.
    pub enqueued_at: Option<String>,
    /// When it was given up.
    #[serde(rename = "movedToDLQAt")]
    pub moved_to_dlq_at: Option<String>,
    /// How long it is kept, in milliseconds.
    pub ttl: u64,
    /// Its lane.
    pub lane: String,
    /// Where it failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The job that replays it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_by: Option<String>,
}

impl From<DeadLetterView> for DeadLetter {
    fn from(view: DeadLetterView) -> Self {
        let (job, letter) = (view.job.to_string(), view.letter);
        let failure = letter.last_failure;
        Self {
            outbox_id: letter.key.map_or_else(|| job.clone(), |key| key.to_string()),
            job_id: job,
            company_id: letter.tenant.to_string(),
            original_data: None,
            failed_attempts: letter.failed_attempts,
            last_failure_reason: failure.reason.as_str().into(),
            last_failure_code: failure.code.map(|code| code.to_string()),
            last_failure_timestamp: iso(failure.at),
            enqueued_at: iso(letter.enqueued_at),
            moved_to_dlq_at: iso(letter.moved_at),
            ttl: letter.ttl.as_millis(),
            lane: view.lane.to_string(),
            upstream: failure.upstream.map(|upstream| upstream.to_string()),
            replayed_by: letter.replay.map(|job| job.to_string()),
        }
    }
}
