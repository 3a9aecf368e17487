//! Codes: how retries of calls that failed with a code ended, per upstream, to show for which codes a retry helps.
//!
//! A failure is retried if another call for the same job to the same upstream follows: that call cures it or fails
//! again. The first call of a replayed dead letter is a retry of the letter's failure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Engine;
use super::record::Record;
use crate::ids::Name;
use crate::table::{JobIx, UpstreamIx};
use crate::timeline::EventKind;
use crate::views::CodeView;

/// Codes counted per upstream; a new one replaces the rarest.
const MAX_CODES: usize = 64;
/// Longer codes are not counted.
const MAX_CODE_BYTES: usize = 64;

/// How often a code was seen, and how retries ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CodeCount {
    pub(crate) seen: u64,
    pub(crate) cured: u64,
    pub(crate) failed_again: u64,
}

/// Upstream number and code.
type Key = (u32, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Codes {
    counts: BTreeMap<Key, CodeCount>,
    unsaved: BTreeSet<Key>,
}

impl Codes {
    pub(super) fn restore(&mut self, key: Key, count: Option<CodeCount>) {
        match count {
            Some(count) => drop(self.counts.insert(key, count)),
            None => drop(self.counts.remove(&key)),
        }
    }

    pub(super) fn touch(&mut self, key: &Key) {
        if self.counts.contains_key(key) {
            self.unsaved.insert(key.clone());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.unsaved.is_empty()
    }

    pub(super) fn drain_changes(&mut self) -> Vec<Record> {
        let unsaved = std::mem::take(&mut self.unsaved).into_iter();
        let record = |key: Key| match self.counts.get(&key) {
            Some(count) => code_record(&key, *count),
            None => Record::CodeGone { upstream: key.0, code: key.1 },
        };
        unsaved.map(record).collect()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        self.counts.iter().map(|(key, count)| code_record(key, *count))
    }

    fn of(&self, upstream: u32) -> impl Iterator<Item = (&Key, &CodeCount)> {
        self.counts.range((upstream, Arc::from(""))..).take_while(move |((of, _), _)| *of == upstream)
    }

    fn count_seen(&mut self, key: Key) {
        if !self.counts.contains_key(&key) && self.of(key.0).count() >= MAX_CODES {
            let rarest = self.of(key.0).min_by_key(|(_, count)| count.seen).map(|(key, _)| key.clone());
            if let Some(rarest) = rarest {
                self.counts.remove(&rarest);
                self.unsaved.insert(rarest);
            }
        }
        self.counts.entry(key.clone()).or_default().seen += 1;
        self.unsaved.insert(key);
    }

    fn retried(&mut self, key: Key, cured: bool) {
        let Some(count) = self.counts.get_mut(&key) else { return };
        *if cured { &mut count.cured } else { &mut count.failed_again } += 1;
        self.unsaved.insert(key);
    }
}

fn code_record((upstream, code): &Key, count: CodeCount) -> Record {
    Record::Code { upstream: *upstream, code: code.clone(), count }
}

impl Engine {
    /// Counts a failed call for a job at `upstream`. Call it before the failure is recorded in the job.
    pub(super) fn count_failure(&mut self, job: JobIx, upstream: UpstreamIx, code: Option<&Arc<str>>) {
        self.count_retry(job, upstream, false);
        if let Some(code) = code.filter(|code| code.len() <= MAX_CODE_BYTES) {
            self.codes.count_seen((self.without_key(upstream).0, code.clone()));
        }
    }

    /// Counts a successful call for a job. Call it before the job ends.
    pub(super) fn count_success(&mut self, job: JobIx) {
        if let Some(upstream) = self.jobs[job].upstream {
            self.count_retry(job, upstream, true);
        }
    }

    fn count_retry(&mut self, job: JobIx, upstream: UpstreamIx, cured: bool) {
        let upstream = self.without_key(upstream);
        if let Some(code) = self.failed_before(job, upstream) {
            self.codes.retried((upstream.0, code), cured);
        }
    }

    /// The code that the last call for a job to `upstream` failed with.
    fn failed_before(&self, job: JobIx, upstream: UpstreamIx) -> Option<Arc<str>> {
        let state = &self.jobs[job];
        let failed = state.timeline().iter().rev().find_map(|event| match &event.kind {
            EventKind::Failed(at, note) if self.without_key(*at) == upstream => Some(note),
            _ => None,
        });
        if let Some(note) = failed {
            return note.as_ref()?.code.clone();
        }
        let failure = &self.lane(state.lane).dead.get(state.rare.as_ref()?.replay_of?)?.last_failure;
        let same = failure.upstream.as_ref().is_some_and(|name| *name == self.upstream(upstream).name);
        failure.code.clone().filter(|_| same)
    }

    /// The codes that calls to an upstream failed with, most frequent first; `None` if it is unknown.
    pub fn codes(&self, upstream: &Name) -> Option<Vec<CodeView>> {
        let index = self.upstream_by_name.get(upstream)?;
        let view = |(key, count): (&Key, &CodeCount)| CodeView {
            code: key.1.clone(),
            seen: count.seen,
            cured: count.cured,
            failed_again: count.failed_again,
        };
        let mut codes: Vec<CodeView> = self.codes.of(index.0).map(view).collect();
        codes.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.code.cmp(&b.code)));
        Some(codes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_code_replaces_the_rarest() {
        let mut codes = Codes::default();
        let key = |upstream: u32, code: usize| (upstream, Arc::from(format!("{code:03}")));
        for code in 0..MAX_CODES {
            (0..=code).for_each(|_| codes.count_seen(key(1, code)));
        }
        codes.count_seen(key(2, 0));
        codes.count_seen(key(1, 900));
        assert_eq!(codes.of(1).count(), MAX_CODES);
        assert!(!codes.counts.contains_key(&key(1, 0)) && codes.counts.contains_key(&key(1, 900)));
        assert!(codes.counts.contains_key(&key(2, 0)), "another upstream's");
        let gone =
            codes.drain_changes().into_iter().filter(|record| matches!(record, Record::CodeGone { .. }));
        assert_eq!(gone.count(), 1);
    }
}
