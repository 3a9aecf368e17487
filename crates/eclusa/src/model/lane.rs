//! Lanes and their tenants.

use std::collections::BTreeMap;
use std::time::Duration;

use eclusa_core::{LaneView, Name, TenantView};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::iso;
use super::job_request::JobRequest;
use super::vocabulary::{LaneMode, WaitReason};
use super::why::{Gate, gate};
use crate::config::{self, Mode};
use crate::words::{LaneRates, QuoteErrors};

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
    /// Jobs not due yet: scheduled, or between attempts.
    pub pending: u64,
    /// Jobs being processed.
    pub processing: u64,
    /// Bytes of waiting jobs.
    pub waiting_bytes: u64,
    /// Finished jobs that are still kept.
    pub finished: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Recent rates.
    pub rates: LaneRates,
    /// Totals since the lane exists.
    pub totals: LaneTotals,
    /// Direct requests answered by this process since its start, by status.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub answers: BTreeMap<u16, u64>,
    /// The lane's own gates.
    pub gates: Vec<Gate>,
    /// Whether jobs queue, or callers wait on the connection.
    #[serde(default)]
    #[schema(value_type = LaneMode)]
    pub mode: String,
    /// The upstreams that its jobs may go to, in order; those of all chains where it has several.
    #[serde(default)]
    pub chain: Vec<String>,
    /// How many jobs may wait; absent while no process has rules for the lane.
    #[serde(default)]
    pub capacity: Option<u64>,
    /// How many seconds a job may wait; absent if for ever.
    #[serde(default)]
    pub ttl_sec: Option<f64>,
    /// When the job that lined up first came in; absent if none is in line.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub oldest_waiting_at: Option<String>,
    /// What keeps the next job from starting; absent if nothing does, or none waits.
    #[serde(default)]
    pub held: Option<LaneHold>,
    /// About when the last job in line will start; absent if none is in line, or if it cannot be estimated. Limits per tenant and
    /// the chains of single jobs are not looked at.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub last_start: Option<String>,
    /// About how many jobs will expire before they start; 0 if that cannot be estimated.
    #[serde(default)]
    pub will_expire: u64,
    /// How far real starts were from the estimates at intake, in the last hour, as the process that is asked
    /// saw; absent if it saw none.
    #[serde(default)]
    pub quotes: Option<QuoteErrors>,
    /// A job that the lane accepts, as a first one to send. Present while the lane is unused, if one could be found. A direct
    /// lane takes its `request` at `/proxy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<JobRequest>, nullable = false)]
    pub example: Option<Value>,
}

/// What keeps the next job of a lane from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneHold {
    /// What it waits for.
    #[schema(value_type = WaitReason)]
    pub reason: String,
    /// The upstream whose gate says so, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Until when, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub until: Option<String>,
}

impl From<&eclusa_core::LaneHold> for LaneHold {
    fn from(hold: &eclusa_core::LaneHold) -> Self {
        Self {
            reason: hold.reason.as_str().into(),
            upstream: hold.upstream.as_ref().map(ToString::to_string),
            until: hold.until.and_then(iso),
        }
    }
}

/// What this process knows of a lane, beside what the store shows.
pub(crate) struct LaneFacts<'a> {
    /// Its rules in the config, if it has any.
    pub(crate) rules: Option<&'a config::LaneConfig>,
    pub(crate) rates: LaneRates,
    /// Direct answers by status.
    pub(crate) answers: BTreeMap<u16, u64>,
    pub(crate) quotes: Option<QuoteErrors>,
    /// See [`Lane::example`].
    pub(crate) example: Option<Value>,
}

/// Counts by priority.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Levels {
    /// Served first.
    pub high: u64,
    /// Served next.
    pub normal: u64,
    /// Served last.
    pub low: u64,
}

/// Totals of a lane.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaneTotals {
    /// Jobs taken in.
    pub accepted: u64,
    /// Attempts started.
    pub started: u64,
    /// Jobs completed by a call.
    pub completed: u64,
    /// Jobs answered by the call of an equal job.
    pub coalesced: u64,
    /// Requests and jobs answered from the cache.
    pub cache_hits: u64,
    /// Requests and jobs answered from a stale entry because of a failure.
    pub fallbacks: u64,
    /// Jobs that failed permanently.
    pub failed: u64,
    /// Jobs cancelled.
    pub cancelled: u64,
    /// Jobs dropped because they expired.
    pub expired: u64,
    /// Jobs evicted by jobs of higher priority.
    pub preempted: u64,
    /// Jobs refused because the lane was full.
    pub refused: u64,
    /// Dead letters created.
    pub dead_letters: u64,
    /// Dead letters removed because the lane had too many.
    pub dead_letters_trimmed: u64,
}

impl Lane {
    /// Combines a view with what this process knows of the lane.
    pub(crate) fn new(view: &LaneView, facts: LaneFacts<'_>) -> Self {
        let LaneFacts { rules, rates, answers, quotes, example } = facts;
        let totals = view.totals;
        let direct = rules.is_some_and(|rules| rules.mode == Mode::Direct);
        let mut chain: Vec<String> = Vec::new();
        let own: Vec<&Name> =
            rules.map_or_else(|| view.chain.iter().collect(), |rules| rules.upstreams().collect());
        for upstream in own.into_iter().map(ToString::to_string) {
            if !chain.contains(&upstream) {
                chain.push(upstream);
            }
        }
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
            mode: if direct { "direct" } else { "queue" }.into(),
            chain,
            capacity: view.capacity.filter(|_| !direct),
            ttl_sec: view
                .ttl
                .filter(|_| !direct)
                .map(|ttl| Duration::from_millis(ttl.as_millis()).as_secs_f64()),
            oldest_waiting_at: view.oldest_waiting.and_then(iso),
            held: view.held.as_ref().map(LaneHold::from),
            last_start: view.last_start.and_then(iso),
            will_expire: view.will_expire,
            quotes,
            example,
        }
    }
}

/// Fairness metrics of one tenant in a lane.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantFairnessMetrics {
    /// The tenant.
    pub company_id: String,
    /// When a job of the tenant was last started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub last_processed_at: Option<String>,
    /// Turns of other tenants since its own.
    pub rounds_without_processing: i64,
    /// `max(1, 5 - rounds)`: 1 is the most urgent.
    pub current_priority: i64,
    /// Jobs of the tenant started so far.
    pub total_processed: u64,
    /// Jobs of the tenant started in a row.
    pub consecutive_batch_count: u32,
    /// Waiting jobs of the tenant, including scheduled ones and retries.
    pub queued: u64,
    /// Jobs of the tenant being processed.
    pub processing: u64,
    /// Batches in a row it may have while others wait.
    pub weight: u32,
    /// Whether the next job to start is one of its; at most one tenant of a lane has it.
    pub next: bool,
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
            next: view.next,
        }
    }
}
