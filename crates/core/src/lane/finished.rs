//! What is kept of finished jobs.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::ids::JobId;
use crate::seeded::Seeded;
use crate::spec::Keep;
use crate::table::JobIx;
use crate::time::{Span, Time};

/// Finished jobs of a lane, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    jobs: VecDeque<(Time, JobIx)>,
}

impl Finished {
    pub(crate) fn push(&mut self, at: Time, job: JobIx) {
        self.jobs.push_back((at, job));
    }

    /// Restores a job at its position; `number_of` returns the number of a job's end, which defines the order.
    pub(crate) fn restore(&mut self, at: Time, job: JobIx, number_of: impl Fn(JobIx) -> u64) {
        let number = number_of(job);
        let last = self.jobs.back().is_none_or(|(_, other)| number_of(*other) < number);
        let place = if last { self.jobs.len() } else { self.place(number, number_of) };
        self.jobs.insert(place, (at, job));
    }

    /// Reverts [`Finished::restore`].
    pub(crate) fn unrestore(&mut self, job: JobIx, number_of: impl Fn(JobIx) -> u64) {
        let place = self.place(number_of(job), number_of);
        if self.jobs.get(place).is_some_and(|(_, found)| *found == job) {
            self.jobs.remove(place);
        }
    }

    fn place(&self, number: u64, number_of: impl Fn(JobIx) -> u64) -> usize {
        self.jobs.partition_point(|(_, other)| number_of(*other) < number)
    }

    /// Removes and returns the oldest job, if it is no longer kept.
    pub(crate) fn pop_surplus(&mut self, keep: Keep, now: Time) -> Option<JobIx> {
        let (at, _) = self.jobs.front()?;
        let surplus = self.jobs.len() as u64 > keep.max || *at + keep.span <= now;
        if surplus { self.jobs.pop_front().map(|(_, job)| job) } else { None }
    }

    pub(crate) fn oldest(&self) -> Option<Time> {
        self.jobs.front().map(|(at, _)| *at)
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }
}

/// Idempotency keys that a lane keeps. Beyond that the oldest are removed early, unless their jobs still exist.
pub(crate) const MAX_KEYS: usize = 1_000_000;

/// How long an idempotency key lasts at least.
const KEY_LASTS: Span = Span::from_secs(86_400);

/// The job of an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    pub(crate) job: JobId,
    /// The fingerprint of its payload.
    pub(crate) fingerprint: u64,
    pub(crate) expires: Time,
}

/// The idempotency keys of a lane.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    entries: HashMap<Arc<str>, KeyEntry, Seeded>,
    expiry: BTreeSet<(Time, Arc<str>)>,
    dirty: Vec<Arc<str>>,
}

impl Keys {
    pub(crate) fn get(&self, key: &str) -> Option<&KeyEntry> {
        self.entries.get(key)
    }

    pub(crate) fn add(&mut self, key: Arc<str>, job: JobId, fingerprint: u64, now: Time) {
        self.restore(key.clone(), Some(KeyEntry { job, fingerprint, expires: now + KEY_LASTS }));
        self.dirty.push(key);
    }

    /// Applies the journal's entry for `key`; `None` removes it.
    pub(crate) fn restore(&mut self, key: Arc<str>, entry: Option<KeyEntry>) {
        self.take(&key);
        if let Some(entry) = entry {
            self.expiry.insert((entry.expires, key.clone()));
            self.entries.insert(key, entry);
        }
    }

    /// The oldest key, if it has expired or there are too many.
    pub(crate) fn surplus(&self, now: Time) -> Option<(Arc<str>, JobId)> {
        let too_many = self.entries.len() > MAX_KEYS;
        let (_, key) = self.expiry.first().filter(|(expires, _)| *expires <= now || too_many)?;
        self.entries.get(key).map(|entry| (key.clone(), entry.job))
    }

    /// Extends a key because its job still exists.
    pub(crate) fn prolong(&mut self, key: &Arc<str>, now: Time) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.expiry.remove(&(entry.expires, key.clone()));
            entry.expires = now + KEY_LASTS;
            self.expiry.insert((entry.expires, key.clone()));
            self.dirty.push(key.clone());
        }
    }

    pub(crate) fn remove(&mut self, key: &Arc<str>) {
        if self.take(key).is_some() {
            self.dirty.push(key.clone());
        }
    }

    fn take(&mut self, key: &Arc<str>) -> Option<KeyEntry> {
        let entry = self.entries.remove(key)?;
        self.expiry.remove(&(entry.expires, key.clone()));
        Some(entry)
    }

    pub(crate) fn touch(&mut self, key: &str) {
        if self.entries.contains_key(key) {
            self.dirty.push(key.into());
        }
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Passes each key changed since the last call to `changed`; removed keys are passed as `None`.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(&Arc<str>, Option<&KeyEntry>)) {
        for key in self.dirty.drain(..) {
            changed(&key, self.entries.get(&key));
        }
    }

    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.expiry.first().map(|(expires, _)| *expires)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// In order of expiry.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &KeyEntry)> {
        self.expiry.iter().filter_map(|(_, key)| self.entries.get_key_value(key))
    }
}
