//! Schedules: each moment of a schedule is done once, whoever asks first.
//!
//! Which moments a schedule has is not known here. What is kept is the last one that was done, so that whoever starts after
//! everything stood still knows which were missed.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::record::Record;
use crate::ids::Name;
use crate::time::Time;
use crate::verbs::{Enqueued, Fire, Fired};

/// The last moment of each schedule that was done.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    last: BTreeMap<Name, Time>,
    unsaved: BTreeSet<Name>,
}

impl Schedules {
    pub(super) fn restore(&mut self, name: Name, last: Time) {
        self.last.insert(name, last);
    }

    pub(super) fn touch(&mut self, name: &Name) {
        if self.last.contains_key(name) {
            self.unsaved.insert(name.clone());
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.unsaved.is_empty()
    }

    pub(super) fn drain_changes(&mut self) -> Vec<Record> {
        let last = &self.last;
        let unsaved = std::mem::take(&mut self.unsaved).into_iter();
        unsaved.filter_map(|name| Some(Record::Schedule { last: *last.get(&name)?, name })).collect()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        self.last.iter().map(|(name, last)| Record::Schedule { name: name.clone(), last: *last })
    }

    fn done(&mut self, name: Name, moment: Time) {
        self.last.insert(name.clone(), moment);
        self.unsaved.insert(name);
    }
}

impl Engine {
    /// Enqueues the job of a moment, unless that moment or a later one of its schedule is done, or it is still to come.
    /// Without a job the moment is done without anything. One whose job the lane refuses is not done.
    pub fn fire(&mut self, ask: Fire, now: Time) -> Fired {
        let Fire { schedule, moment, job } = ask;
        if let Some(last) = self.schedules.last.get(&schedule).filter(|last| **last >= moment) {
            return Fired::AlreadyDone(*last);
        }
        if moment > now {
            return Fired::TooSoon(moment.since(now));
        }
        let answer = job.map(|job| self.enqueue(vec![*job], now)).unwrap_or_default();
        if !answer.jobs.iter().any(Enqueued::is_refused) {
            self.schedules.done(schedule, moment);
        }
        Fired::Submitted(answer)
    }

    /// The last moment of each schedule that was done.
    pub fn schedules(&self) -> Vec<(Name, Time)> {
        self.schedules.last.iter().map(|(name, last)| (name.clone(), *last)).collect()
    }
}
