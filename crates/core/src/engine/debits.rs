//! Debits: which buckets a call was charged to, by correlation id, while an event may still give tokens back.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::policy::Correlation;
use crate::time::{Span, Time};
use crate::verbs::MAX_BATCH;

/// The number of debits kept. Beyond it the one that expires first is dropped, and the next sweep reports it.
const MAX_DEBITS: usize = 1_000_000;

/// What a correlation id was charged for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Debit {
    pub(crate) at: Time,
    /// Until when events count: the longest time among the buckets' rules.
    pub(crate) until: Time,
    /// Keys of the buckets that were charged.
    pub(crate) buckets: Vec<Arc<str>>,
    /// Events already credited.
    pub(crate) credited: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
pub(crate) struct Debits {
    by_id: HashMap<Correlation, Debit, foldhash::fast::FixedState>,
    expiry: BTreeSet<(Time, Correlation)>,
    unsaved: BTreeSet<Correlation>,
    /// Dropped before they expired, since the last sweep.
    dropped: u64,
}

impl Debits {
    /// Records that `bucket` was charged for `correlation` at `now`; events count `within` this time.
    pub(crate) fn note(&mut self, correlation: Correlation, bucket: &Arc<str>, within: Span, now: Time) {
        let new = || Debit { at: now, until: now, buckets: Vec::new(), credited: Vec::new() };
        let debit = self.by_id.entry(correlation).or_insert_with(new);
        self.expiry.remove(&(debit.until, correlation));
        (debit.at, debit.until) = (now, debit.until.max(now + within));
        if !debit.buckets.contains(bucket) {
            debit.buckets.push(bucket.clone());
        }
        self.expiry.insert((debit.until, correlation));
        self.unsaved.insert(correlation);
        self.trim(MAX_DEBITS);
    }

    fn trim(&mut self, max: usize) {
        while self.by_id.len() > max
            && let Some((_, first)) = self.expiry.first().copied()
        {
            self.remove(first);
            self.dropped += 1;
        }
    }

    /// How many were dropped since the last call because there were too many: no event gives their tokens back.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Applies what the journal says; `None` if the debit is gone.
    pub(crate) fn restore(&mut self, correlation: Correlation, debit: Option<Debit>) {
        self.take(correlation);
        if let Some(debit) = debit {
            self.expiry.insert((debit.until, correlation));
            self.by_id.insert(correlation, debit);
        }
    }

    pub(crate) fn get(&self, correlation: Correlation) -> Option<&Debit> {
        self.by_id.get(&correlation)
    }

    /// Marks an event as credited, so that it counts once.
    pub(crate) fn count(&mut self, correlation: Correlation, event: &Arc<str>) {
        if let Some(debit) = self.by_id.get_mut(&correlation) {
            debit.credited.push(event.clone());
            self.unsaved.insert(correlation);
        }
    }

    fn remove(&mut self, correlation: Correlation) {
        if self.take(correlation).is_some() {
            self.unsaved.insert(correlation);
        }
    }

    fn take(&mut self, correlation: Correlation) -> Option<Debit> {
        let debit = self.by_id.remove(&correlation)?;
        self.expiry.remove(&(debit.until, correlation));
        Some(debit)
    }

    /// Forgets some of the expired debits.
    pub(crate) fn forget_expired(&mut self, now: Time) {
        for _ in 0..MAX_BATCH {
            let Some((_, first)) = self.expiry.first().filter(|(until, _)| *until < now).copied() else {
                return;
            };
            self.remove(first);
        }
    }

    /// When the next debit can be forgotten. Events still count in its last millisecond.
    pub(crate) fn next_expiry(&self) -> Time {
        self.expiry.first().map_or(Time::NEVER, |(until, _)| *until + Span::from_millis(1))
    }

    pub(crate) fn touch(&mut self, correlation: Correlation) {
        if self.by_id.contains_key(&correlation) {
            self.unsaved.insert(correlation);
        }
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Reports debits that changed since the last call; `None` means gone.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(Correlation, Option<&Debit>)) {
        for correlation in std::mem::take(&mut self.unsaved) {
            changed(correlation, self.by_id.get(&correlation));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Correlation, &Debit)> {
        self.expiry.iter().filter_map(|(_, id)| self.by_id.get(id).map(|debit| (*id, debit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_debits_are_dropped_when_there_are_too_many() {
        let mut debits = Debits::default();
        for n in 0..5_u64 {
            let at = Time::from_millis(1_000 + n);
            debits.note(Correlation(u128::from(n)), &"dict/P/PF/".into(), Span::from_secs(1), at);
        }
        debits.drain_changes(|_, _| {});
        debits.trim(2);
        let mut gone = Vec::new();
        debits.drain_changes(|id, debit| gone.extend(debit.is_none().then_some(id.0)));
        assert_eq!(gone, [0, 1, 2]);
        assert_eq!(debits.take_dropped(), 3);
        assert_eq!(debits.take_dropped(), 0, "reported once");
        assert_eq!(debits.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(debits.next_expiry(), Time::from_millis(2_004));
    }

    #[test]
    fn a_second_charge_under_one_id_extends_the_first() {
        let mut debits = Debits::default();
        let (id, within) = (Correlation(1), Span::from_secs(10));
        debits.note(id, &"a/".into(), within, Time::from_millis(0));
        debits.count(id, &"payment".into());
        debits.note(id, &"b/".into(), within, Time::from_millis(5_000));
        debits.note(id, &"a/".into(), within, Time::from_millis(6_000));
        debits.forget_expired(Time::from_millis(16_000));
        let debit = debits.get(id).unwrap();
        assert_eq!(debit.buckets, ["a/".into(), "b/".into()]);
        assert_eq!(debit.credited, ["payment".into()], "what was counted stays counted");
        debits.forget_expired(Time::from_millis(16_001));
        assert_eq!(debits.get(id), None);
        assert_eq!(debits.take_dropped(), 0, "its time was over");
        assert_eq!(debits.next_expiry(), Time::NEVER);
    }
}
