//! The layout of answers about the history.

use super::convert::{layout_enum, layout_struct};
use super::shared::{CallStatusLayout, GateChangeKindLayout};
use super::view::QuantilesLayout;
use crate::verbs::{GateTransition, HistoryView, LanePoint, UpstreamPoint};

layout_enum!(HistoryViewLayout<'a> = HistoryView {
    Lanes { from: u64, points: Vec<LanePointLayout> },
    Upstream {
        from: u64,
        points: Vec<UpstreamPointLayout>,
        transitions: Vec<GateTransitionLayout<'a>>
    },
});

layout_struct!(
    LanePointLayout = LanePoint {
        accepted: u64,
        started: u64,
        completed: u64,
        failed: u64,
        dropped: u64,
        requests: u64,
        failed_requests: u64,
        waiting: Option<u64>,
        processing: Option<u64>,
        wait: Option<QuantilesLayout>,
    }
);

layout_struct!(
    UpstreamPointLayout = UpstreamPoint {
        calls: u64,
        errors: u64,
        statuses: Vec<(CallStatusLayout, u64)>,
        latency: Option<QuantilesLayout>,
    }
);

layout_struct!(GateTransitionLayout<'a> = GateTransition {
    at: u64,
    upstream: &'a str,
    kind: GateChangeKindLayout,
});
