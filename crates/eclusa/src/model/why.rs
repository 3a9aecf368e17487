//! Why a job waits, and the gates that deny it.

use eclusa_core::gate::GateView;
use eclusa_core::{BucketId, GateOwner, Name, Why};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::iso;
use super::sentence::sentence;
use super::vocabulary::{JobStatus, WaitReason};
use crate::words::counted;

/// Why a job waits and until when.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "status": "queued",
    "reason": "rate_limit",
    "upstream": "fal",
    "until": "2026-11-16T01:50:36.120Z",
    "detail": "The token bucket of `fal` has too few tokens until 2026-11-16T01:50:36.120Z",
    "position": 3,
    "eta": "2026-11-16T01:50:36.120Z",
    "willExpire": false,
    "gates": [{ "upstream": "fal", "reason": "rate_limit", "open": false, "until": "2026-11-16T01:50:36.120Z",
        "level": 0, "limit": 10 }],
}))]
#[serde(rename_all = "camelCase")]
pub struct WhyAnswer {
    /// The job's status.
    #[schema(value_type = JobStatus)]
    pub status: String,
    /// Why it waits, from a closed list; absent if it does not wait.
    #[schema(value_type = Option<WaitReason>)]
    pub reason: Option<String>,
    /// The upstream concerned.
    pub upstream: Option<String>,
    /// Its tenant, if it waits for a limit of that tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The policy of the bucket, if it waits for a limit by scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The scope of that bucket: `upstream`, or the keyed hash of its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Until when that holds it, if known.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub until: Option<String>,
    /// The reason as a sentence.
    pub detail: String,
    /// Approximate number of jobs ahead of it.
    pub position: u64,
    /// When it will probably start.
    #[schema(format = DateTime)]
    pub eta: Option<String>,
    /// Whether it will have expired by then.
    pub will_expire: bool,
    /// All gates that it must pass: those of its lane, its tenant, its upstreams and its limits by scope.
    pub gates: Vec<Gate>,
}

/// A gate's state.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// The upstream of the gate; absent for a gate of the lane or of a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The tenant, for a limit per tenant of the lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The policy, for a limit by scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The scope of that limit: `upstream`, or the keyed hash of its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The reason with which it denies.
    #[schema(value_type = WaitReason)]
    pub reason: String,
    /// Whether it admits a call now.
    pub open: bool,
    /// When it opens, if known.
    #[schema(format = DateTime)]
    pub until: Option<String>,
    /// What it counts: whole tokens left, calls in progress, places taken in the window, milliseconds between starts.
    pub level: i64,
    /// The limit of `level`.
    pub limit: Option<i64>,
}

/// A gate as JSON.
pub(super) fn gate(upstream: Option<&Name>, view: &GateView) -> Gate {
    Gate {
        upstream: upstream.map(ToString::to_string),
        reason: view.reason.as_str().into(),
        open: view.denies_until.is_none(),
        until: view.denies_until.and_then(iso),
        level: counted(view, view.level),
        limit: view.limit.map(|limit| counted(view, limit)),
        ..Gate::default()
    }
}

/// A gate as JSON, with its owner.
fn owned((owner, view): &(GateOwner, GateView)) -> Gate {
    match owner {
        GateOwner::Lane => gate(None, view),
        GateOwner::Upstream(name) => gate(Some(name), view),
        GateOwner::Tenant(tenant) => Gate { tenant: Some(tenant.to_string()), ..gate(None, view) },
        GateOwner::Bucket(id) => {
            let (policy, scope) = (Some(id.policy.to_string()), Some(scope(id)));
            Gate { policy, scope, ..gate(Some(&id.upstream), view) }
        }
    }
}

/// The scope of a bucket, as `/v1/policies` shows it.
fn scope(bucket: &BucketId) -> String {
    bucket.scope.map_or_else(|| "upstream".to_owned(), |scope| scope.to_string())
}

impl From<Why> for WhyAnswer {
    fn from(why: Why) -> Self {
        let bucket = why.of_bucket.as_ref();
        Self {
            detail: sentence(&why),
            status: why.status.as_str().into(),
            reason: why.reason.map(|reason| reason.as_str().into()),
            upstream: why.upstream.as_ref().map(ToString::to_string),
            tenant: why.of_tenant.as_ref().map(ToString::to_string),
            policy: bucket.map(|id| id.policy.to_string()),
            scope: bucket.map(scope),
            until: why.until.and_then(iso),
            position: why.position,
            eta: why.eta.and_then(iso),
            will_expire: why.will_expire,
            gates: why.gates.iter().map(owned).collect(),
        }
    }
}
