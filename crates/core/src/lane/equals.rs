//! Equal requests: jobs of a lane with the same cache key, which one call can answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::job::Level;
use crate::seeded::Seeded;
use crate::table::{GroupIx, JobIx};

/// Where a job with a cache key waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitingIn {
    /// In its line.
    Line,
    /// Set aside while an equal job is processing.
    Aside,
    /// Waiting for its next attempt. Jobs scheduled for later are not included.
    Backoff,
}

impl WaitingIn {
    const ALL: [WaitingIn; 3] = [WaitingIn::Line, WaitingIn::Aside, WaitingIn::Backoff];
}

/// The jobs with one key.
#[derive(Debug, Default)]
struct Equal {
    /// By number. There is one, unless the lane had no cache when another was started.
    processing: BTreeMap<u64, JobIx>,
    waiting: BTreeMap<(WaitingIn, Level, u64), JobIx>,
}

/// The jobs of a lane that have a cache key.
#[derive(Debug, Default)]
pub(crate) struct Equals {
    by_key: HashMap<Arc<str>, Equal, Seeded>,
    /// Waiting jobs whose key had a cache entry when they began to wait, by chain and number. The entry may have been
    /// removed since, so it must be looked up again.
    covered: BTreeMap<(GroupIx, u64), JobIx>,
}

impl Equals {
    pub(crate) fn add(&mut self, key: &Arc<str>, waiting_in: WaitingIn, level: Level, seq: u64, job: JobIx) {
        self.by_key.entry(key.clone()).or_default().waiting.insert((waiting_in, level, seq), job);
    }

    pub(crate) fn remove(&mut self, key: &str, waiting_in: WaitingIn, level: Level, seq: u64) {
        self.change(key, |equal| {
            equal.waiting.remove(&(waiting_in, level, seq));
        });
    }

    pub(crate) fn start(&mut self, key: &Arc<str>, seq: u64, job: JobIx) {
        self.by_key.entry(key.clone()).or_default().processing.insert(seq, job);
    }

    pub(crate) fn stop(&mut self, key: &str, seq: u64) {
        self.change(key, |equal| {
            equal.processing.remove(&seq);
        });
    }

    fn change(&mut self, key: &str, change: impl FnOnce(&mut Equal)) {
        let Some(equal) = self.by_key.get_mut(key) else { return };
        change(equal);
        if equal.processing.is_empty() && equal.waiting.is_empty() {
            self.by_key.remove(key);
        }
    }

    /// The job whose answer the others wait for.
    pub(crate) fn leader(&self, key: &str) -> Option<JobIx> {
        self.by_key.get(key)?.processing.values().next().copied()
    }

    /// All waiting jobs with `key`.
    pub(crate) fn waiting_for(&self, key: &str) -> impl Iterator<Item = JobIx> {
        self.by_key.get(key).into_iter().flat_map(|equal| equal.waiting.values().copied())
    }

    /// Whether a job other than number `except` is in a line.
    pub(crate) fn is_in_line(&self, key: &str, except: Option<u64>) -> bool {
        let in_line = |equal: &Equal| {
            let lined = equal.waiting.range(..(WaitingIn::Aside, Level::High, 0));
            lined.take(2).any(|((_, _, seq), _)| Some(*seq) != except)
        };
        self.by_key.get(key).is_some_and(in_line)
    }

    /// The first job that is set aside, by level, then number.
    pub(crate) fn first_aside(&self, key: &str) -> Option<JobIx> {
        let aside = (WaitingIn::Aside, Level::High, 0)..(WaitingIn::Backoff, Level::High, 0);
        self.by_key.get(key)?.waiting.range(aside).next().map(|(_, job)| *job)
    }

    /// The first waiting job with a number below `number`, by level, then number.
    pub(crate) fn first_before(&self, key: &str, number: u64) -> Option<JobIx> {
        let waiting = &self.by_key.get(key)?.waiting;
        let first = |level: Level| {
            let firsts = WaitingIn::ALL
                .map(|waiting_in| waiting.range((waiting_in, level, 0)..(waiting_in, level, number)).next());
            firsts.into_iter().flatten().min_by_key(|((_, _, seq), _)| *seq).map(|(_, job)| *job)
        };
        Level::ALL.into_iter().find_map(first)
    }

    /// All waiting jobs. Sorted, because the map's order depends on its seed.
    pub(crate) fn waiting(&self) -> Vec<JobIx> {
        let waiting = self.by_key.values().flat_map(|equal| equal.waiting.values().copied());
        let mut waiting: Vec<JobIx> = waiting.collect();
        waiting.sort_unstable();
        waiting
    }

    /// Keys with jobs that are set aside, in order.
    pub(crate) fn keys_with_aside(&self) -> Vec<Arc<str>> {
        let mut keys: Vec<_> =
            self.by_key.keys().filter(|key| self.first_aside(key).is_some()).cloned().collect();
        keys.sort_unstable();
        keys
    }

    pub(crate) fn cover(&mut self, chain: GroupIx, seq: u64, job: JobIx) {
        self.covered.insert((chain, seq), job);
    }

    pub(crate) fn uncover(&mut self, chain: GroupIx, seq: u64) {
        self.covered.remove(&(chain, seq));
    }

    /// The first covered job at or after a position, with its position.
    pub(crate) fn next_covered(&self, from: (GroupIx, u64)) -> Option<((GroupIx, u64), JobIx)> {
        self.covered.range(from..).next().map(|(place, job)| (*place, *job))
    }
}
