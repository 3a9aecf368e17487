//! Bulk replays: all dead letters that match a filter, enqueued again as their lanes have room.
//!
//! A bulk replay is a record, so it continues after a crash and under another owner. It goes through the letters of
//! each lane by number and examines each once. The id of each replay job is derived from the ids of the bulk replay and
//! the letter, so a letter is enqueued once however often a step is repeated. Only some letters of a lane are replayed
//! at a time, so that they never fill the lane.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::letters::MAX_SCANNED;
use super::record::Record;
use crate::ids::{JobId, derived_id};
use crate::job::Status;
use crate::table::LaneIx;
use crate::time::{Span, Time};
use crate::verbs::{
    BulkAnswer, BulkAsk, BulkStatus, BulkView, LetterFilter, MAX_BATCH, Replay, Replayed, ReplayedLetter,
};

/// The number of bulk replays kept.
const MAX_BULKS: usize = 20;
/// When to check again whether a lane has room.
pub(super) const RECHECK_AFTER: Span = Span::from_millis(100);
/// Concurrent replays per lane of one bulk replay or redrive; also at most half of the lane's capacity.
const MAX_RUNNING: u64 = 100;

/// The state of one bulk replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bulk {
    pub(crate) id: JobId,
    pub(crate) filter: LetterFilter,
    pub(crate) began: Time,
    pub(crate) ended: Option<Time>,
    pub(crate) stopped: bool,
    pub(crate) total: u64,
    pub(crate) replayed: u64,
    pub(crate) failed: u64,
    /// Lanes with letters still to be enqueued or being replayed.
    pub(crate) lanes: Vec<BulkLane>,
}

/// The progress of a bulk replay in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BulkLane {
    pub(crate) lane: u32,
    /// The number of the last letter that was counted.
    pub(crate) counted: u64,
    /// The number of the last letter that was examined.
    pub(crate) at: u64,
    /// The number of the first letter written after the bulk replay began.
    pub(crate) end: u64,
    pub(crate) running: u64,
}

impl Bulk {
    /// The job that replays `letter`.
    fn job_of(&self, letter: JobId) -> JobId {
        derived_id(self.began, &[self.id, letter], 0)
    }

    fn is_counted(&self) -> bool {
        self.lanes.iter().all(|lane| lane.counted >= lane.end)
    }

    fn is_over(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Removes lanes that are done.
    fn settle(&mut self, now: Time) {
        self.lanes.retain(|lane| lane.at < lane.end || lane.running > 0);
        if self.lanes.is_empty() && self.ended.is_none() {
            self.ended = Some(now);
        }
    }

    fn view(&self) -> BulkView {
        let running = self.lanes.iter().map(|lane| lane.running).sum();
        let status = match (self.stopped, self.ended) {
            (true, _) => BulkStatus::Stopped,
            (_, Some(_)) => BulkStatus::Done,
            _ if self.is_counted() => BulkStatus::Running,
            _ => BulkStatus::Counting,
        };
        let left = self.lanes.iter().any(|lane| lane.at < lane.end);
        let begun = self.replayed + self.failed + running;
        BulkView {
            id: self.id,
            filter: self.filter.clone(),
            status,
            total: self.total,
            replayed: self.replayed,
            failed: self.failed,
            running,
            remaining: if left { self.total.saturating_sub(begun) } else { 0 },
            began: self.began,
            ended: self.ended,
        }
    }
}

/// All bulk replays that are kept.
#[derive(Debug, Default)]
pub(super) struct Bulks {
    all: BTreeMap<JobId, Bulk>,
    unsaved: BTreeSet<JobId>,
}

impl Bulks {
    pub(super) fn restore(&mut self, id: JobId, bulk: Option<Bulk>) {
        match bulk {
            Some(bulk) => drop(self.all.insert(id, bulk)),
            None => drop(self.all.remove(&id)),
        }
    }

    pub(super) fn touch(&mut self, id: JobId) {
        if self.all.contains_key(&id) {
            self.unsaved.insert(id);
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.unsaved.is_empty()
    }

    pub(super) fn drain_changes(&mut self) -> Vec<Record> {
        let record = |id| match self.all.get(&id) {
            Some(bulk) => Record::Bulk(Box::new(bulk.clone())),
            None => Record::BulkGone(id),
        };
        std::mem::take(&mut self.unsaved).into_iter().map(record).collect()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        self.all.values().map(|bulk| Record::Bulk(Box::new(bulk.clone())))
    }

    fn views(&self, id: JobId) -> BulkAnswer {
        BulkAnswer::Replays(self.all.get(&id).map(Bulk::view).into_iter().collect())
    }

    /// Whether another one can be kept, after removing the oldest finished one if needed.
    fn make_room(&mut self) -> bool {
        if self.all.len() < MAX_BULKS {
            return true;
        }
        let over = self.all.values().filter(|bulk| bulk.is_over());
        let Some(oldest) = over.min_by_key(|bulk| (bulk.began, bulk.id)).map(|bulk| bulk.id) else {
            return false;
        };
        self.all.remove(&oldest);
        self.unsaved.insert(oldest);
        true
    }
}

impl Engine {
    /// Starts, shows or stops bulk replays. [`Engine::sweep`] enqueues their letters.
    pub fn bulk(&mut self, ask: BulkAsk, now: Time) -> BulkAnswer {
        match ask {
            BulkAsk::Begin { id, filter } => self.begin_bulk(id, filter, now),
            BulkAsk::Show(id) => self.bulks.views(id),
            BulkAsk::List => {
                let mut views: Vec<BulkView> = self.bulks.all.values().map(Bulk::view).collect();
                views.sort_unstable_by_key(|view| std::cmp::Reverse((view.began, view.id)));
                BulkAnswer::Replays(views)
            }
            BulkAsk::Stop(id) => {
                if let Some(bulk) = self.bulks.all.get_mut(&id).filter(|bulk| bulk.ended.is_none()) {
                    bulk.lanes.iter_mut().for_each(|lane| (lane.counted, lane.at) = (lane.end, lane.end));
                    (bulk.stopped, bulk.ended) = (true, Some(now));
                    bulk.settle(now);
                    self.bulks.unsaved.insert(id);
                }
                self.bulks.views(id)
            }
        }
    }

    fn begin_bulk(&mut self, id: JobId, filter: LetterFilter, now: Time) -> BulkAnswer {
        if self.bulks.all.contains_key(&id) {
            return self.bulks.views(id);
        }
        if !self.bulks.make_room() {
            return BulkAnswer::TooMany;
        }
        let chosen = (0_u32..).zip(&self.lanes).filter(|(_, lane)| filter.has_lane(&lane.name));
        let lanes = chosen
            .filter(|(_, lane)| lane.dead.len() > 0)
            .map(|(number, lane)| BulkLane {
                lane: number,
                counted: 0,
                at: 0,
                end: lane.next_seq,
                running: 0,
            })
            .collect();
        let mut bulk = Bulk {
            id,
            filter,
            began: now,
            ended: None,
            stopped: false,
            total: 0,
            replayed: 0,
            failed: 0,
            lanes,
        };
        let mut scanned = MAX_SCANNED;
        self.count_bulk(&mut bulk, &mut scanned);
        bulk.settle(now);
        self.bulks.all.insert(id, bulk);
        self.bulks.unsaved.insert(id);
        self.bulks.views(id)
    }

    /// Continues all bulk replays. Returns when to continue next.
    pub(super) fn step_bulks(&mut self, replayed: &mut Vec<ReplayedLetter>, now: Time) -> Time {
        let alive: Vec<JobId> =
            self.bulks.all.values().filter(|bulk| bulk.ended.is_none()).map(|bulk| bulk.id).collect();
        let (mut next, mut scanned) = (Time::NEVER, MAX_SCANNED);
        for id in alive {
            let Some(mut bulk) = self.bulks.all.remove(&id) else { continue };
            let before = bulk.clone();
            next = next.min(self.step_bulk(&mut bulk, &mut scanned, replayed, now));
            bulk.settle(now);
            if bulk != before {
                self.bulks.unsaved.insert(id);
            }
            self.bulks.all.insert(id, bulk);
        }
        next
    }

    fn step_bulk(
        &mut self,
        bulk: &mut Bulk,
        scanned: &mut usize,
        replayed: &mut Vec<ReplayedLetter>,
        now: Time,
    ) -> Time {
        if !self.count_bulk(bulk, scanned) {
            return now;
        }
        let mut next = Time::NEVER;
        for at in 0..bulk.lanes.len() {
            next = next.min(self.step_lane(bulk, at, scanned, replayed, now));
        }
        next
    }

    /// Continues counting. Returns whether everything is counted.
    fn count_bulk(&self, bulk: &mut Bulk, scanned: &mut usize) -> bool {
        let Bulk { lanes, filter, total, .. } = bulk;
        for place in lanes.iter_mut().filter(|lane| lane.counted < lane.end) {
            let letters = self.lane(LaneIx(place.lane)).dead.after(place.counted);
            for (number, _, letter) in letters.take_while(|(number, ..)| *number < place.end) {
                if *scanned == 0 {
                    return false;
                }
                *scanned -= 1;
                place.counted = number;
                *total += u64::from(letter.replay.is_none() && filter.fits(letter));
            }
            place.counted = place.end;
        }
        true
    }

    /// Enqueues letters of one lane while it has room. Returns when to continue.
    fn step_lane(
        &mut self,
        bulk: &mut Bulk,
        at: usize,
        scanned: &mut usize,
        replayed: &mut Vec<ReplayedLetter>,
        now: Time,
    ) -> Time {
        let lane = LaneIx(bulk.lanes[at].lane);
        for _ in 0..MAX_BATCH {
            let place = bulk.lanes[at];
            let first =
                self.lane(lane).dead.after(place.at).next().filter(|(number, ..)| *number < place.end);
            let Some((number, letter, found)) = first else {
                bulk.lanes[at].at = place.end;
                return Time::NEVER;
            };
            if *scanned == 0 {
                return now;
            }
            *scanned -= 1;
            let bytes = found.payload.len();
            if found.replay.is_none() && bulk.filter.fits(found) && !self.can_ever_hold(lane, bytes) {
                bulk.failed += 1;
            } else if found.replay.is_none() && bulk.filter.fits(found) {
                if place.running >= self.replay_window(lane) || !self.has_room(lane, bytes) {
                    return now + RECHECK_AFTER;
                }
                let (name, job) = (self.lane(lane).name.clone(), bulk.job_of(letter));
                let ask = Replay { lane: name.clone(), letter, id: job, edit: None };
                match self.replay_one(ask, now) {
                    Replayed::As(job, _) => {
                        bulk.lanes[at].running += 1;
                        replayed.push(ReplayedLetter { lane: name, letter, job, bulk: Some(bulk.id) });
                    }
                    Replayed::QueueFull => return now + RECHECK_AFTER,
                    Replayed::Unknown | Replayed::IdTaken | Replayed::Invalid(_) => bulk.failed += 1,
                }
            }
            bulk.lanes[at].at = number;
        }
        now
    }

    /// The maximum number of concurrent replays of a lane.
    pub(super) fn replay_window(&self, lane: LaneIx) -> u64 {
        let capacity = self.lane(lane).spec.as_ref().map_or(0, |spec| spec.capacity.jobs);
        (capacity / 2).clamp(1, MAX_RUNNING)
    }

    /// Whether a job of this size fits into a lane without evicting others.
    pub(super) fn has_room(&self, lane: LaneIx, bytes: usize) -> bool {
        let state = self.lane(lane);
        let spec = state.spec.as_ref().filter(|_| !state.gone);
        spec.is_some_and(|spec| {
            state.waiting < spec.capacity.jobs && state.waiting_bytes + bytes as u64 <= spec.capacity.bytes
        })
    }

    /// Whether a job of this size would fit into an empty lane. Without rules that is not known yet, so `true`.
    pub(super) fn can_ever_hold(&self, lane: LaneIx, bytes: usize) -> bool {
        let state = self.lane(lane);
        let spec = state.spec.as_ref().filter(|_| !state.gone);
        spec.is_none_or(|spec| bytes as u64 <= spec.capacity.bytes)
    }

    /// Notes that the replay of `letter` by `job` ended with `status`.
    pub(super) fn note_bulk_end(
        &mut self,
        lane: LaneIx,
        letter: JobId,
        job: JobId,
        status: Status,
        now: Time,
    ) {
        let running = |bulk: &&mut Bulk| !bulk.is_over() && bulk.job_of(letter) == job;
        let Some(bulk) = self.bulks.all.values_mut().find(running) else { return };
        if let Some(place) = bulk.lanes.iter_mut().find(|place| place.lane == lane.0) {
            place.running = place.running.saturating_sub(1);
        }
        match status {
            Status::Completed => bulk.replayed += 1,
            _ => bulk.failed += 1,
        }
        bulk.settle(now);
        let id = bulk.id;
        self.bulks.unsaved.insert(id);
    }
}
