//! Lanes and their tenants.

use std::collections::BTreeMap;

use eclusa_core::{LaneView, TenantView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::iso;
use super::why::{Gate, gate};
use crate::words::LaneRates;

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
    /// How fast it moves.
    pub rates: LaneRates,
    /// What happened so far.
    pub totals: LaneTotals,
    /// Requests that the process that is asked answered directly since its start, by status.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub answers: BTreeMap<u16, u64>,
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
    /// Attempts begun.
    pub started: u64,
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

impl Lane {
    /// A lane that moves so fast and answered so often.
    pub(crate) fn new(view: &LaneView, rates: LaneRates, answers: BTreeMap<u16, u64>) -> Self {
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
            rates,
            totals: LaneTotals {
                accepted: totals.accepted,
                started: totals.started,
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
            answers,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub last_processed_at: Option<String>,
    /// Turns of others since its own.
    pub rounds_without_processing: i64,
    /// `max(1, 5 - rounds)`: 1 is the most urgent.
    pub current_priority: i64,
    /// Jobs of it started so far.
    pub total_processed: u64,
    /// Jobs of it started in a row.
    pub consecutive_batch_count: u32,
    /// Jobs of it that wait, scheduled ones and retries included.
    pub queued: u64,
    /// Jobs of it at an upstream.
    pub processing: u64,
    /// How many batches it may have in a row while others wait.
    pub weight: u32,
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
            queued: view.waiting,
            processing: view.processing,
            weight: view.weight,
        }
    }
}
