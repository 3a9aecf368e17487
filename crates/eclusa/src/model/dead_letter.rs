//! Dead letters.

use eclusa_core::DeadLetterView;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::iso;

/// A job that failed permanently.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "jobId": "01a1e20c-835f-7f54-a1de-93085b88f45f",
    "outboxId": "order-4711",
    "companyId": "acme",
    "failedAttempts": 5,
    "lastFailureReason": "answered 503 Service Unavailable",
    "lastFailureCode": "503",
    "lastFailureTimestamp": "2026-11-16T01:50:36.120Z",
    "enqueuedAt": "2026-11-16T01:50:33.311Z",
    "movedToDLQAt": "2026-11-16T01:50:36.120Z",
    "ttl": 604_800_000,
    "lane": "render",
    "upstream": "fal",
    "redrives": 0,
}))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// The id of the job that failed.
    pub job_id: String,
    /// The id given by the caller, else the job's own.
    pub outbox_id: String,
    /// The tenant of the job.
    pub company_id: String,
    /// The job's content, in the form in which it is enqueued. Only in the response for a single letter and in the
    /// export: it may be personal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_data: Option<Value>,
    /// Attempts made.
    pub failed_attempts: u32,
    /// Why the last one failed; never empty.
    pub last_failure_reason: String,
    /// The upstream's code, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure_code: Option<String>,
    /// Time of the last failure.
    #[schema(format = DateTime)]
    pub last_failure_timestamp: Option<String>,
    /// When the job was enqueued.
    #[schema(format = DateTime)]
    pub enqueued_at: Option<String>,
    /// When the job became a dead letter.
    #[serde(rename = "movedToDLQAt")]
    #[schema(format = DateTime)]
    pub moved_to_dlq_at: Option<String>,
    /// How long it is kept, in milliseconds.
    pub ttl: u64,
    /// Its lane.
    pub lane: String,
    /// The upstream of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The job that is replaying it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_by: Option<String>,
    /// How often it was replayed automatically (`redrive`).
    #[serde(default)]
    pub redrives: u32,
    /// Earliest time of the next automatic replay; absent if there will be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub next_redrive_at: Option<String>,
}

impl From<DeadLetterView> for DeadLetter {
    fn from(view: DeadLetterView) -> Self {
        let (job, letter, next) = (view.job.to_string(), view.letter, view.next_redrive);
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
            redrives: letter.redrives,
            next_redrive_at: next.and_then(iso),
        }
    }
}
