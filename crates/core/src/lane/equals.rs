//! Equal requests: jobs of a lane under one cache key, of which one call can answer all.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::job::Level;
use crate::seeded::Seeded;
use crate::table::{GroupIx, JobIx};

/// Where a job waits that an answer can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stand {
    /// In its line.
    Line,
    /// Set aside while an equal job is processing.
    Aside,
    /// Held back until its next attempt. One that was only asked to start later is not meant.
    Backoff,
}

impl Stand {
    const ALL: [Stand; 3] = [Stand::Line, Stand::Aside, Stand::Backoff];
}

/// The jobs under one key.
#[derive(Debug, Default)]
struct Equal {
    /// By number: one, unless the lane had no cache when another was started.
    processing: BTreeMap<u64, JobIx>,
    waiting: BTreeMap<(Stand, Level, u64), JobIx>,
}

/// The jobs of a lane that have a cache key.
#[derive(Debug, Default)]
pub(crate) struct Equals {
    by_key: HashMap<Arc<str>, Equal, Seeded>,
    /// Waiting jobs whose key had an entry when they began to wait, by chain and number. Entries go without a word here,
    /// so each must be looked up.
    covered: BTreeMap<(GroupIx, u64), JobIx>,
}

impl Equals {
    pub(crate) fn join(&mut self, key: &Arc<str>, stand: Stand, level: Level, seq: u64, job: JobIx) {
        self.by_key.entry(key.clone()).or_default().waiting.insert((stand, level, seq), job);
    }

    pub(crate) fn leave(&mut self, key: &str, stand: Stand, level: Level, seq: u64) {
        self.change(key, |equal| {
            equal.waiting.remove(&(stand, level, seq));
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

    /// All that wait under `key`.
    pub(crate) fn waiting_for(&self, key: &str) -> impl Iterator<Item = JobIx> {
        self.by_key.get(key).into_iter().flat_map(|equal| equal.waiting.values().copied())
    }

    /// Whether a job other than number `except` stands in a line.
    pub(crate) fn is_in_line(&self, key: &str, except: Option<u64>) -> bool {
        let in_line = |equal: &Equal| {
            let lined = equal.waiting.range(..(Stand::Aside, Level::High, 0));
            lined.take(2).any(|((_, _, seq), _)| Some(*seq) != except)
        };
        self.by_key.get(key).is_some_and(in_line)
    }

    /// The first of those set aside, by level, then number.
    pub(crate) fn first_aside(&self, key: &str) -> Option<JobIx> {
        let aside = (Stand::Aside, Level::High, 0)..(Stand::Backoff, Level::High, 0);
        self.by_key.get(key)?.waiting.range(aside).next().map(|(_, job)| *job)
    }

    /// The first waiting job with a number below `number`, by level, then number, wherever it waits.
    pub(crate) fn first_before(&self, key: &str, number: u64) -> Option<JobIx> {
        let waiting = &self.by_key.get(key)?.waiting;
        let first = |level: Level| {
            let firsts =
                Stand::ALL.map(|stand| waiting.range((stand, level, 0)..(stand, level, number)).next());
            firsts.into_iter().flatten().min_by_key(|((_, _, seq), _)| *seq).map(|(_, job)| *job)
        };
        Level::ALL.into_iter().find_map(first)
    }

    /// All that wait. Sorted, because the map is walked in an order that depends on its seed.
    pub(crate) fn waiting(&self) -> Vec<JobIx> {
        let waiting = self.by_key.values().flat_map(|equal| equal.waiting.values().copied());
        let mut waiting: Vec<JobIx> = waiting.collect();
        waiting.sort_unstable();
        waiting
    }

    /// Keys for which jobs are set aside, in order.
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

    /// The first covered job from a place on, and its place.
    pub(crate) fn next_covered(&self, from: (GroupIx, u64)) -> Option<((GroupIx, u64), JobIx)> {
        self.covered.range(from..).next().map(|(place, job)| (*place, *job))
    }
}
