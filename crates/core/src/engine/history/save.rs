//! The history as records, and back.

use super::super::record::Record;
use super::{
    JobCounts, KeptGateChange, LaneKey, LaneMinute, MinuteHistory, RunningMinute, UnsavedHistory,
    UpstreamMinute, start_of,
};

/// About how many bytes a point takes in the journal.
const POINT_BYTES: u64 = 32;

impl MinuteHistory {
    pub(in crate::engine) fn has_changes(&self) -> bool {
        let UnsavedHistory { lanes, upstreams, transitions, running: _, running_now } = &self.unsaved;
        !lanes.is_empty() || !upstreams.is_empty() || !transitions.is_empty() || *running_now
    }

    pub(in crate::engine) fn drain_changes(&mut self) -> Vec<Record> {
        let unsaved = std::mem::take(&mut self.unsaved);
        let lanes = unsaved.lanes.into_iter().filter_map(|(lane, minute)| {
            let points = lane.map_or(&self.all, |lane| &self.lanes[lane as usize].points);
            Some(Record::LaneMinute { lane, point: points.get(minute)?.clone() })
        });
        let upstreams = unsaved.upstreams.into_iter().filter_map(|(upstream, minute)| {
            let point = self.upstreams[upstream as usize].points.get(minute)?.clone();
            Some(Record::UpstreamMinute { upstream, point })
        });
        let transitions = unsaved.transitions.into_iter().filter_map(|(upstream, number)| {
            let change = *self.upstreams[upstream as usize].transition(number)?;
            Some(Record::GateChange { upstream, number, change })
        });
        let mut records: Vec<_> = lanes.chain(upstreams).chain(transitions).collect();
        if unsaved.running || unsaved.running_now {
            records.extend(self.running_record());
        }
        records
    }

    pub(in crate::engine) fn records(&self) -> Vec<Record> {
        let lane = |lane| move |point: &LaneMinute| Record::LaneMinute { lane, point: point.clone() };
        let mut records: Vec<_> = self.all.iter().map(lane(None)).collect();
        for (number, series) in (0..).zip(&self.lanes) {
            records.extend(series.points.iter().map(lane(Some(number))));
        }
        for (upstream, series) in (0..).zip(&self.upstreams) {
            let point = |point: &UpstreamMinute| Record::UpstreamMinute { upstream, point: point.clone() };
            records.extend(series.points.iter().map(point));
            let transitions = (series.first()..).zip(&series.transitions);
            records.extend(transitions.map(|(number, change)| Record::GateChange {
                upstream,
                number,
                change: *change,
            }));
        }
        records.extend(self.running_record());
        records
    }

    fn running_record(&self) -> Option<Record> {
        let lanes = self.lanes.iter().map(|series| series.base).collect();
        Some(Record::RunningMinute(RunningMinute { minute: self.running?, lanes }))
    }

    pub(in crate::engine) fn touch_lane(&mut self, lane: LaneKey, minute: u32) {
        if self.points(lane).get(minute).is_some() {
            self.unsaved.lanes.insert((lane, minute));
        }
    }

    pub(in crate::engine) fn touch_upstream(&mut self, upstream: u32, minute: u32) {
        if self.upstreams[upstream as usize].points.get(minute).is_some() {
            self.unsaved.upstreams.insert((upstream, minute));
        }
    }

    pub(in crate::engine) fn touch_transition(&mut self, upstream: u32, number: u64) {
        if self.upstreams[upstream as usize].transition(number).is_some() {
            self.unsaved.transitions.insert((upstream, number));
        }
    }

    pub(in crate::engine) fn touch_running(&mut self) {
        self.unsaved.running_now = true;
    }

    /// About how many bytes it takes in the journal.
    pub(in crate::engine) fn footprint(&self) -> u64 {
        let lanes = self.lanes.iter().map(|series| series.points.len() + 1);
        let upstreams = self.upstreams.iter().map(|series| series.points.len() + series.transitions.len());
        (self.all.len() + lanes.sum::<usize>() + upstreams.sum::<usize>()) as u64 * POINT_BYTES
    }
}

impl MinuteHistory {
    /// Adds a point that was read. Call [`MinuteHistory::drop_old`] after the last.
    pub(in crate::engine) fn restore_lane(&mut self, lane: LaneKey, point: LaneMinute) {
        self.newest = self.newest.max(point.minute);
        self.points(lane).put(point);
    }

    pub(in crate::engine) fn restore_upstream(&mut self, upstream: u32, point: UpstreamMinute) {
        self.newest = self.newest.max(point.minute);
        self.upstreams[upstream as usize].points.put(point);
    }

    /// Adds a transition that was read; in the order of their numbers.
    pub(in crate::engine) fn restore_transition(
        &mut self,
        upstream: u32,
        number: u64,
        change: KeptGateChange,
    ) {
        let series = &mut self.upstreams[upstream as usize];
        // One that is known was only saved again.
        if number >= series.next {
            if number > series.next {
                series.transitions.clear();
            }
            series.next = number;
            series.push(change);
        }
    }

    pub(in crate::engine) fn restore_running(&mut self, RunningMinute { minute, lanes }: RunningMinute) {
        self.running = Some(minute);
        self.ends = start_of(minute.saturating_add(1));
        let bases = lanes.into_iter().chain(std::iter::repeat(JobCounts::default()));
        for (series, base) in self.lanes.iter_mut().zip(bases) {
            series.base = base;
        }
    }
}
