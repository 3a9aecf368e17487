//! Samples of the history.

use super::{ms, name, time};
use crate::durations::Quantiles;
use crate::engine::history::{
    JobCounts, KeptGateChange, LaneMinute, QuantilesMs, RunningMinute, UpstreamMinute,
};
use crate::engine::record::Record;
use crate::gate::GateChangeKind;
use crate::layout::Reply;
use crate::verbs::{CallStatus, GateTransition, HistoryView, LanePoint, UpstreamPoint};

const KINDS: [GateChangeKind; 7] = [
    GateChangeKind::BreakerOpened { failures: 5, lasts: ms(30_000) },
    GateChangeKind::BreakerHalfOpened,
    GateChangeKind::BreakerClosed,
    GateChangeKind::CooldownBegan { errors: 2, lasts: ms(10_000) },
    GateChangeKind::CooldownEnded,
    GateChangeKind::Closed { lasts: ms(5_000) },
    GateChangeKind::Reopened,
];

const STATUSES: [CallStatus; 8] = [
    CallStatus::Status(503),
    CallStatus::Ok,
    CallStatus::Rejected,
    CallStatus::Failed,
    CallStatus::TimedOut,
    CallStatus::Unreachable,
    CallStatus::Unknown,
    CallStatus::Other,
];

pub(super) fn records() -> Vec<(&'static str, Record)> {
    let point = LaneMinute {
        minute: 28_333_333,
        accepted: 1,
        started: 2,
        completed: 300,
        failed: 4,
        dropped: 5,
        requests: 6,
        failed_requests: 7,
        waiting: 100_000,
        processing: 9,
        wait: Some(QuantilesMs { p50: 10, p95: 11_000 }),
    };
    let calls = UpstreamMinute {
        minute: 28_333_333,
        calls: 1,
        errors: 2,
        statuses: STATUSES.into_iter().zip(300..).collect(),
        latency: Some(QuantilesMs { p50: 10, p95: 11_000 }),
    };
    let change = KeptGateChange { at: time(7), of: 4, kind: KINDS[0] };
    let counts = JobCounts { accepted: 1, started: 2, completed: 3, failed: 4, dropped: 5 };
    let running = RunningMinute { minute: 28_333_333, lanes: vec![counts, JobCounts::default()] };
    vec![
        ("record-lane-minute", Record::LaneMinute { lane: Some(1), point: point.clone() }),
        (
            "record-lane-minute-all",
            Record::LaneMinute { lane: None, point: LaneMinute { wait: None, ..point } },
        ),
        ("record-upstream-minute", Record::UpstreamMinute { upstream: 3, point: calls }),
        ("record-gate-change", Record::GateChange { upstream: 3, number: 300, change }),
        ("record-running-minute", Record::RunningMinute(running)),
    ]
}

pub(super) fn replies() -> Vec<(&'static str, Reply)> {
    let both = Quantiles { p50: ms(10), p95: ms(11_000) };
    let point = LanePoint {
        accepted: 1,
        started: 2,
        completed: 300,
        failed: 4,
        dropped: 5,
        requests: 6,
        failed_requests: 7,
        waiting: Some(8),
        processing: Some(9),
        wait: Some(both),
    };
    let calls = UpstreamPoint {
        calls: 1,
        errors: 2,
        statuses: STATUSES.into_iter().zip(300..).collect(),
        latency: Some(both),
    };
    let transition = |kind| GateTransition { at: time(3), upstream: name("ses"), kind };
    vec![
        (
            "reply-history-lanes",
            Reply::History(HistoryView::Lanes { from: time(1), points: vec![point, LanePoint::default()] }),
        ),
        (
            "reply-history-upstream",
            Reply::History(HistoryView::Upstream {
                from: time(1),
                points: vec![calls, UpstreamPoint::default()],
                transitions: KINDS.map(transition).into(),
            }),
        ),
    ]
}
