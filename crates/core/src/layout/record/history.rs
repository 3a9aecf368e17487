//! The layout of the history's points and transitions.

use crate::engine::history::{
    JobCounts, KeptGateChange, LaneMinute, QuantilesMs, RunningMinute, UpstreamMinute,
};
use crate::layout::convert::layout_struct;
use crate::layout::shared::{CallStatusLayout, GateChangeKindLayout};

layout_struct!(
    LaneMinuteLayout = LaneMinute {
        minute: u32,
        accepted: u32,
        started: u32,
        completed: u32,
        failed: u32,
        dropped: u32,
        requests: u32,
        failed_requests: u32,
        waiting: u32,
        processing: u32,
        wait: Option<QuantilesMsLayout>,
    }
);

layout_struct!(
    UpstreamMinuteLayout = UpstreamMinute {
        minute: u32,
        calls: u32,
        errors: u32,
        statuses: Vec<(CallStatusLayout, u32)>,
        latency: Option<QuantilesMsLayout>,
    }
);

layout_struct!(QuantilesMsLayout = QuantilesMs { p50: u32, p95: u32 });

layout_struct!(KeptGateChangeLayout = KeptGateChange { at: u64, of: u32, kind: GateChangeKindLayout });

layout_struct!(RunningMinuteLayout = RunningMinute { minute: u32, lanes: Vec<JobCountsLayout> });

layout_struct!(
    JobCountsLayout = JobCounts { accepted: u64, started: u64, completed: u64, failed: u64, dropped: u64 }
);
