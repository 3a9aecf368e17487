//! Schedules: each scheduled time is fired once, whichever process asks first.
//!
//! The engine does not know the times of a schedule. It keeps the last one that was fired, so that a process that
//! starts after a downtime knows which were missed.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::record::Record;
use crate::ids::Name;
use crate::time::Time;
use crate::verbs::{Enqueued, Fire, Fired};

/// The last fired time of each schedule.
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
    /// Enqueues the job of a scheduled time, unless that time or a later one was fired already, or it is in the future.
    /// Without a job, the time only counts as fired. If the lane refuses the job, the time is not fired.
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

    /// The last fired time of each schedule.
    pub fn schedules(&self) -> Vec<(Name, Time)> {
        self.schedules.last.iter().map(|(name, last)| (name.clone(), *last)).collect()
    }
}
