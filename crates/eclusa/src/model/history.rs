//! What happened over time.

use std::collections::BTreeMap;

use eclusa_core::gate::GateChangeKind;
use eclusa_core::{CallStatus, GateTransition, HistoryView, Quantiles, Span, Time};
use serde::Serialize;
use utoipa::ToSchema;

use super::iso;
use super::upstream::Latency;

const STEP: Span = Span::from_secs(60);

/// What happened in each of the last minutes.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// How many seconds a point covers: 60.
    pub step_sec: u64,
    /// One per minute without gaps, the oldest first. The last one is of the running minute.
    pub points: Vec<HistoryPoint>,
    /// When gates of the upstream closed because of errors, and opened again: at most the last 200, the oldest first. Absent
    /// for lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transitions: Option<Vec<Transition>>,
}

/// A minute.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum HistoryPoint {
    /// Of lanes.
    Lane(LanePoint),
    /// Of an upstream.
    Upstream(UpstreamPoint),
}

/// A minute of a lane, or of several lanes together.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LanePoint {
    /// When it began.
    #[schema(format = DateTime)]
    pub at: Option<String>,
    /// Present if it is still running.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub partial: bool,
    /// Jobs accepted. In direct lanes, this and the next three count requests, when they end.
    pub accepted: u64,
    /// Attempts started.
    pub started: u64,
    /// Jobs completed, by a call or from an existing answer.
    pub completed: u64,
    /// Jobs that failed permanently.
    pub failed: u64,
    /// Jobs that expired, were evicted or were refused.
    pub dropped: u64,
    /// Jobs that waited at the end of the minute; null if no process was running then.
    pub waiting: Option<u64>,
    /// Jobs that were processed at the end of the minute; null if no process was running then.
    pub processing: Option<u64>,
    /// How long the jobs waited that started for the first time; null if none did, and for several lanes of which the caller
    /// may not see all. Jobs that were submitted with a delay are left out.
    pub wait_ms: Option<Waited>,
}

/// How long jobs waited until they started, in milliseconds, to about an eighth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Waited {
    /// Half waited no longer.
    pub p50: u64,
    /// Nineteen of twenty waited no longer.
    pub p95: u64,
}

impl From<Quantiles> for Waited {
    fn from(Quantiles { p50, p95 }: Quantiles) -> Self {
        Self { p50: p50.as_millis(), p95: p95.as_millis() }
    }
}

/// A minute of an upstream.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamPoint {
    /// When it began.
    #[schema(format = DateTime)]
    pub at: Option<String>,
    /// Present if it is still running.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub partial: bool,
    /// Calls that ended.
    pub calls: u64,
    /// How many of them failed: the upstream was throttling, broken or not reachable.
    pub errors: u64,
    /// Calls by status: an HTTP status or SMTP reply code, or `ok`, `rejected`, `failed`, `timeout`, `unreachable`, `unknown`
    /// where there is none. At most eight; the rest is `other`.
    pub statuses: BTreeMap<String, u64>,
    /// How long the calls took; null if it is not known of any.
    pub latency_ms: Option<Latency>,
}

/// A gate of an upstream closed because of errors, or opened again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Transition {
    /// When the gate changed.
    #[schema(format = DateTime)]
    pub at: Option<String>,
    /// The upstream, or `upstream/key` for one of its keys.
    pub upstream: String,
    /// The gate.
    #[schema(value_type = super::vocabulary::TransitionGate)]
    pub gate: &'static str,
    /// What happened. `open`, `half_open` and `closed` are states of a breaker; `hot` and `cool` say that the other gates
    /// closed and opened again before their time.
    #[schema(value_type = super::vocabulary::TransitionEvent)]
    pub event: &'static str,
    /// Until when no call is made; absent if the gate is not closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub until: Option<String>,
}

impl From<HistoryView> for History {
    fn from(view: HistoryView) -> Self {
        let (points, transitions) = match view {
            HistoryView::Lanes { from, points } => {
                let points =
                    minutes(from, points).map(|(at, partial, point)| lane_point(at, partial, &point));
                (points.map(HistoryPoint::Lane).collect(), None)
            }
            HistoryView::Upstream { from, points, transitions } => {
                let points =
                    minutes(from, points).map(|(at, partial, point)| upstream_point(at, partial, point));
                let transitions = transitions.iter().map(Transition::from).collect();
                (points.map(HistoryPoint::Upstream).collect(), Some(transitions))
            }
        };
        Self { step_sec: STEP.as_millis() / 1_000, points, transitions }
    }
}

/// Each point with the begin of its minute, and whether that is still running.
fn minutes<P>(from: Time, points: Vec<P>) -> impl Iterator<Item = (Time, bool, P)> {
    let last = points.len().saturating_sub(1);
    let begin = move |number: usize| from + Span::from_millis(number as u64 * STEP.as_millis());
    points.into_iter().enumerate().map(move |(number, point)| (begin(number), number == last, point))
}

fn lane_point(at: Time, partial: bool, point: &eclusa_core::LanePoint) -> LanePoint {
    LanePoint {
        at: iso(at),
        partial,
        accepted: point.accepted + point.requests,
        started: point.started + point.requests,
        completed: point.completed + point.requests.saturating_sub(point.failed_requests),
        failed: point.failed + point.failed_requests,
        dropped: point.dropped,
        waiting: point.waiting,
        processing: point.processing,
        wait_ms: point.wait.map(Waited::from),
    }
}

fn upstream_point(at: Time, partial: bool, point: eclusa_core::UpstreamPoint) -> UpstreamPoint {
    let statuses = point.statuses.into_iter();
    UpstreamPoint {
        at: iso(at),
        partial,
        calls: point.calls,
        errors: point.errors,
        statuses: statuses.map(|(status, calls): (CallStatus, u64)| (status.to_string(), calls)).collect(),
        latency_ms: point.latency.map(Latency::from),
    }
}

impl From<&GateTransition> for Transition {
    fn from(transition: &GateTransition) -> Self {
        let (gate, event, lasts) = match transition.kind {
            GateChangeKind::BreakerOpened { lasts, .. } => ("breaker", "open", Some(lasts)),
            GateChangeKind::BreakerHalfOpened => ("breaker", "half_open", None),
            GateChangeKind::BreakerClosed => ("breaker", "closed", None),
            GateChangeKind::CooldownBegan { lasts, .. } => ("cooldown", "hot", Some(lasts)),
            GateChangeKind::CooldownEnded => ("cooldown", "cool", None),
            GateChangeKind::Closed { lasts } => ("retry_after", "hot", Some(lasts)),
            GateChangeKind::Reopened => ("retry_after", "cool", None),
        };
        Self {
            at: iso(transition.at),
            upstream: transition.upstream.to_string(),
            gate,
            event,
            until: lasts.and_then(|lasts| iso(transition.at + lasts)),
        }
    }
}

#[cfg(test)]
mod tests {
    use eclusa_core::Name;
    use serde_json::json;

    use super::*;

    const FROM: Time = Time::from_millis(1_763_301_720_000);

    #[test]
    fn the_last_point_is_partial_and_requests_count_as_jobs() {
        let both = Quantiles { p50: Span::from_millis(40), p95: Span::from_secs(1) };
        let point = eclusa_core::LanePoint {
            accepted: 5,
            requests: 10,
            failed_requests: 3,
            waiting: Some(2),
            processing: Some(0),
            wait: Some(both),
            ..eclusa_core::LanePoint::default()
        };
        let points = vec![point, eclusa_core::LanePoint::default()];
        let shown = json!(History::from(HistoryView::Lanes { from: FROM, points }));
        let first = json!({
            "at": "2025-11-16T14:02:00.000Z", "accepted": 15, "started": 10, "completed": 7, "failed": 3, "dropped": 0,
            "waiting": 2, "processing": 0, "waitMs": { "p50": 40, "p95": 1_000 },
        });
        let last = json!({
            "at": "2025-11-16T14:03:00.000Z", "partial": true, "accepted": 0, "started": 0, "completed": 0, "failed": 0,
            "dropped": 0, "waiting": null, "processing": null, "waitMs": null,
        });
        assert_eq!(shown, json!({ "stepSec": 60, "points": [first, last] }));
    }

    #[test]
    fn an_upstream_has_statuses_and_transitions() {
        let point = eclusa_core::UpstreamPoint {
            calls: 3,
            errors: 1,
            statuses: vec![(CallStatus::Status(200), 2), (CallStatus::TimedOut, 1)],
            latency: None,
        };
        let lasts = Span::from_secs(30);
        let kinds = [
            GateChangeKind::BreakerOpened { failures: 5, lasts },
            GateChangeKind::BreakerHalfOpened,
            GateChangeKind::BreakerClosed,
            GateChangeKind::CooldownBegan { errors: 2, lasts },
            GateChangeKind::CooldownEnded,
            GateChangeKind::Closed { lasts },
            GateChangeKind::Reopened,
        ];
        let upstream = Name::new("bureau").unwrap();
        let transitions =
            kinds.map(|kind| GateTransition { at: FROM, upstream: upstream.clone(), kind }).into();
        let view = HistoryView::Upstream { from: FROM, points: vec![point], transitions };
        let shown = json!(History::from(view));
        assert_eq!(shown["points"][0]["statuses"], json!({ "200": 2, "timeout": 1 }));
        assert_eq!(shown["points"][0]["latencyMs"], json!(null));
        let events = shown["transitions"].as_array().unwrap().iter().map(|one| {
            let text = |key: &str| one.get(key).and_then(|value| value.as_str()).unwrap_or_default();
            [text("gate"), text("event"), text("until")].join(" ")
        });
        let until = "2025-11-16T14:02:30.000Z";
        assert_eq!(
            events.collect::<Vec<_>>(),
            [
                format!("breaker open {until}"),
                "breaker half_open ".into(),
                "breaker closed ".into(),
                format!("cooldown hot {until}"),
                "cooldown cool ".into(),
                format!("retry_after hot {until}"),
                "retry_after cool ".into(),
            ]
        );
    }
}
