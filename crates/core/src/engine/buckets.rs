//! Scoped buckets, found by key, and the lines that wait for them.
//!
//! A line denied by its own bucket is parked there. When the bucket refills, it wakes only as many lines as its balance
//! can serve: a hundred thousand lines waiting for one bucket cost one check per token.

mod restore;
mod seen;

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use hashbrown::HashMap;
pub(crate) use seen::FirstBalances;
pub use seen::{MAX_SEEN_BUCKETS, SeenBucket, SeenBuckets, TokensTaken};

use super::families::{Families, FamilyIx};
use crate::charge::Terms;
use crate::gate::{Bucket, BucketSpec, GateView, HELD_BY_OTHERS, LastMinute, NotUntil, Reason};
use crate::job::Hold;
use crate::lane::{Parked, Rank};
use crate::policy::family;
use crate::seeded::Seeded;
use crate::table::{BucketIx, LaneIx, Table};
use crate::time::{Span, Time};
use crate::tokens::Tokens;
use crate::verbs::{Corrected, Correction, MAX_BATCH};

#[derive(Debug)]
pub(crate) struct ScopedBucket {
    pub(crate) key: Arc<str>,
    pub(crate) spec: BucketSpec,
    pub(crate) bucket: Bucket,
    family: FamilyIx,
    /// Jobs that will take from it, and leases that have.
    users: u32,
    /// Recent costs of its calls.
    spent: LastMinute,
    /// Recent credits; most buckets have none.
    credited: Option<Box<LastMinute>>,
    /// The lines that wait for it; most buckets have none.
    waiting: Option<Box<Waiting>>,
    forget_at: Option<Time>,
    dirty: bool,
}

/// The lines that wait for a bucket.
#[derive(Debug, Default)]
struct Waiting {
    parked: BTreeSet<Parked>,
    /// The lines that have other upstreams in their chain, by when they check those again.
    rechecks: BTreeSet<(Time, Parked)>,
    wakes_at: Option<Time>,
}

impl Waiting {
    fn unpark(&mut self, line: &Parked) {
        self.parked.remove(line);
        if let Some(at) = line.recheck_at {
            self.rechecks.remove(&(at, *line));
        }
    }
}

impl ScopedBucket {
    /// Whether `tokens` may be taken by a job with this `rank`. Not if a job with a lower rank is waiting for them: it
    /// would starve.
    pub(crate) fn admits(&self, tokens: Tokens, rank: Rank, now: Time) -> Result<(), NotUntil> {
        self.bucket.admits(&self.spec, tokens, now)?;
        match &self.waiting {
            Some(waiting) if waiting.parked.first().is_some_and(|first| first.rank < rank) => {
                Err(NotUntil::new(Reason::RateLimit, waiting.wakes_at.unwrap_or(now)))
            }
            _ => Ok(()),
        }
    }

    /// The bucket as a gate for a job with this `rank` that takes `tokens`.
    pub(crate) fn view(&self, tokens: Tokens, rank: Rank, now: Time) -> GateView {
        let denial = self.admits(tokens, rank, now).err();
        let (reason, denies_until) =
            denial.map_or((Reason::RateLimit, None), |denial| (denial.reason, Some(denial.at)));
        if reason != Reason::RateLimit {
            return GateView { reason, denies_until, level: 0, limit: None };
        }
        let level = self.bucket.balance(&self.spec, now).as_micro();
        GateView { reason, denies_until, level, limit: Some(self.spec.capacity().as_micro()) }
    }

    /// The cost of its calls in the last minute.
    pub(crate) fn spent_last_minute(&self, now: Time) -> Tokens {
        self.spent.tokens(now)
    }

    /// The tokens that events gave back in the last minute.
    pub(crate) fn credited_last_minute(&self, now: Time) -> Tokens {
        self.credited.as_ref().map_or(Tokens::ZERO, |credited| credited.tokens(now))
    }

    fn first_waiting(&self) -> Option<&Parked> {
        self.waiting.as_ref()?.parked.first()
    }

    /// When it will be full if nothing more is taken.
    fn full_at(&self, now: Time) -> Time {
        self.bucket.full_at(&self.spec, now)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Buckets {
    table: Table<BucketIx, ScopedBucket>,
    by_key: HashMap<Arc<str>, BucketIx, Seeded>,
    families: Families,
    /// When parked lines are woken.
    wakes: BTreeSet<(Time, BucketIx)>,
    /// Buckets without users, by when they are full again. A full, unused bucket can be forgotten.
    idle: BTreeSet<(Time, BucketIx)>,
    dirty: Vec<BucketIx>,
    gone: Vec<Arc<str>>,
    next_ticket: u64,
    /// What new buckets hold in fallback.
    first: Option<FirstBalances>,
}

impl Buckets {
    pub(crate) fn find(&self, key: &str) -> Option<BucketIx> {
        self.by_key.get(key).copied()
    }

    /// The buckets whose keys begin with `prefix`.
    pub(crate) fn under(&self, prefix: &str) -> Vec<(BucketIx, Arc<str>)> {
        let all = self.table.iter().filter(|(_, state)| state.key.starts_with(prefix));
        all.map(|(index, state)| (index, state.key.clone())).collect()
    }

    /// The bucket of `hold`, with the hold's rule and terms applied.
    pub(crate) fn find_or_create(&mut self, hold: &Hold, now: Time) -> BucketIx {
        let index = self.find_or_create_under(&hold.bucket, hold.spec, now);
        if let Some(terms) = &hold.terms {
            self.families.set_terms(self.table[index].family, terms);
        }
        index
    }

    /// The bucket with `key`, with the current rule applied.
    pub(crate) fn find_or_create_under(&mut self, key: &Arc<str>, spec: BucketSpec, now: Time) -> BucketIx {
        if let Some(index) = self.find(key) {
            let state = &mut self.table[index];
            if state.spec != spec {
                // The refill until now follows the old rule.
                state.bucket.refill(&state.spec, now);
                state.spec = spec;
                state.bucket.fit(&spec);
                self.touch(index);
            }
            return index;
        }
        let index = self.add(key.clone(), spec, self.new_bucket(key, &spec, now));
        self.touch(index);
        index
    }

    fn add(&mut self, key: Arc<str>, spec: BucketSpec, bucket: Bucket) -> BucketIx {
        let state = ScopedBucket {
            key: key.clone(),
            spec,
            bucket,
            family: self.families.find_or_create(family(&key)),
            users: 0,
            spent: LastMinute::default(),
            credited: None,
            waiting: None,
            forget_at: None,
            dirty: false,
        };
        let index = self.table.insert(state);
        self.by_key.insert(key, index);
        self.forget_at(index, Time::default());
        index
    }

    /// The terms (costs and credits) of calls that take from this bucket, if known.
    pub(crate) fn terms_of(&self, index: BucketIx) -> Option<&Arc<Terms>> {
        self.families.terms_of(self.table[index].family)
    }

    pub(crate) const fn families(&self) -> &Families {
        &self.families
    }

    pub(crate) const fn families_mut(&mut self) -> &mut Families {
        &mut self.families
    }

    pub(crate) fn add_user(&mut self, index: BucketIx) {
        self.table[index].users += 1;
    }

    pub(crate) fn remove_user(&mut self, index: BucketIx, now: Time) {
        let state = &mut self.table[index];
        state.users -= 1;
        if state.users == 0 {
            let full_at = state.full_at(now);
            self.forget_at(index, full_at);
        }
    }

    /// Adds tokens that an event earned. Returns how many the bucket had room for.
    pub(crate) fn credit(&mut self, index: BucketIx, tokens: Tokens, now: Time) -> Tokens {
        let state = &mut self.table[index];
        let before = state.bucket.balance(&state.spec, now);
        state.bucket.refund(&state.spec, tokens, now);
        let given = state.bucket.balance(&state.spec, now) - before;
        state.credited.get_or_insert_default().add(given, now);
        self.wake_first(index, now);
        self.touch(index);
        given
    }

    /// Sets the balance of a bucket to what its upstream reports.
    pub(crate) fn correct(&mut self, index: BucketIx, correction: &Correction, now: Time) -> Corrected {
        let credited = self.terms_of(index).is_some_and(|terms| terms.credit.is_some());
        let state = &mut self.table[index];
        let before = state.bucket.balance(&state.spec, now);
        let Correction { reported, when_asked, asked_ago, .. } = *correction;
        let uncertainty = state.bucket.correct(&state.spec, reported, (when_asked, asked_ago), credited, now);
        let after = state.bucket.balance(&state.spec, now);
        let (users, full_at) = (state.users, state.full_at(now));
        if after != before {
            if users == 0 {
                self.forget_at(index, full_at);
            }
            self.wake_first(index, now);
            self.touch(index);
        }
        Corrected { before, after, uncertainty }
    }

    fn wake_first(&mut self, index: BucketIx, now: Time) {
        if self.table[index].first_waiting().is_some() {
            self.wake_at(index, now);
        }
    }

    /// The lanes whose lines wait for a bucket.
    pub(crate) fn lanes_waiting_for(&self, index: BucketIx) -> BTreeSet<LaneIx> {
        let parked = self.table[index].waiting.iter().flat_map(|waiting| &waiting.parked);
        parked.take(MAX_BATCH).map(|line| line.lane).collect()
    }

    /// Schedules a check at `at` whether a bucket can be forgotten. If one is scheduled earlier, that one reschedules
    /// it: a bucket in constant use is not moved each time.
    fn forget_at(&mut self, index: BucketIx, at: Time) {
        let state = &mut self.table[index];
        if state.forget_at.is_some_and(|before| Time::default() < before && before <= at) {
            return;
        }
        if let Some(old) = state.forget_at.replace(at) {
            self.idle.remove(&(old, index));
        }
        self.idle.insert((at, index));
    }

    /// Takes a hold at admission.
    pub(crate) fn hold(&mut self, index: BucketIx, tokens: Tokens, now: Time) {
        let state = &mut self.table[index];
        state.users += 1;
        state.bucket.hold(&state.spec, tokens, now);
        self.touch(index);
    }

    /// Takes what was spent elsewhere, even beyond the balance.
    pub(crate) fn charge(&mut self, index: BucketIx, tokens: Tokens, now: Time) {
        let state = &mut self.table[index];
        state.bucket.spend(&state.spec, tokens, now);
        state.spent.add(tokens, now);
        self.touch(index);
    }

    /// Settles a hold to its real cost.
    pub(crate) fn settle(&mut self, index: BucketIx, hold: Tokens, cost: Tokens, now: Time) {
        let state = &mut self.table[index];
        let first_may_go = state
            .first_waiting()
            .is_some_and(|line| cost < hold || state.bucket.waits_for_others(&state.spec, line.hold));
        state.bucket.settle(&state.spec, hold, cost, now);
        state.spent.add(cost, now);
        if first_may_go {
            self.wake_at(index, now);
        }
        self.remove_user(index, now);
        self.touch(index);
    }

    pub(crate) fn park(&mut self, index: BucketIx, line: Parked, until: Time) {
        let waiting = self.table[index].waiting.get_or_insert_default();
        waiting.parked.insert(line);
        waiting.rechecks.extend(line.recheck_at.map(|at| (at, line)));
        if waiting.wakes_at.is_none_or(|at| until < at) {
            self.wake_at(index, until);
        }
    }

    /// The lines to wake at the next bucket that is due; `None` if no bucket is due.
    pub(crate) fn wake(&mut self, now: Time) -> Option<Vec<Parked>> {
        let (_, index) = *self.wakes.first().filter(|(at, _)| *at <= now)?;
        self.wakes.pop_first();
        let ScopedBucket { spec, bucket, waiting, .. } = &mut self.table[index];
        let mut woken = Vec::new();
        let Some(waiting) = waiting else { return Some(woken) };
        waiting.wakes_at = None;
        let mut left = bucket.balance(spec, now);
        let closed_until = bucket.closed_until();
        while closed_until <= now
            && woken.len() < MAX_BATCH
            && let Some(next) = waiting.parked.first()
            && (woken.is_empty() || next.hold <= left)
        {
            let next = *next;
            left = left - next.hold;
            waiting.unpark(&next);
            woken.push(next);
        }
        // These lines can also use another upstream, so they do not wait for the lines before them.
        while woken.len() < MAX_BATCH
            && let Some((_, next)) = waiting.rechecks.first().filter(|(at, _)| *at <= now).copied()
        {
            waiting.unpark(&next);
            woken.push(next);
        }
        let gain = |next: &Parked| {
            let others = bucket.waits_for_others(spec, next.hold);
            let least = if others { HELD_BY_OTHERS } else { Span::from_millis(1) };
            let wait = spec.time_to_gain(next.hold).max(least);
            if next.hold <= left { closed_until.max(now) } else { closed_until.max(now + wait) }
        };
        let gained_at = waiting.parked.first().map(gain);
        let recheck_at = waiting.rechecks.first().map(|(at, _)| *at);
        match gained_at.into_iter().chain(recheck_at).min() {
            Some(at) => self.wake_at(index, at),
            None => self.table[index].waiting = None,
        }
        Some(woken)
    }

    fn wake_at(&mut self, index: BucketIx, at: Time) {
        let waiting = self.table[index].waiting.get_or_insert_default();
        if let Some(old) = waiting.wakes_at.replace(at) {
            self.wakes.remove(&(old, index));
        }
        self.wakes.insert((at, index));
    }

    /// The next position in a queue at a bucket.
    pub(crate) fn draw_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// When the next idle bucket is checked.
    pub(crate) fn next_forgetting(&self) -> Time {
        self.idle.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Removes a parked line that lost its last job. Without lines there is no wake-up, and the bucket may be
    /// forgotten.
    pub(crate) fn unpark(&mut self, index: BucketIx, line: &Parked) {
        let state = &mut self.table[index];
        let Some(waiting) = &mut state.waiting else { return };
        waiting.unpark(line);
        if waiting.parked.is_empty() {
            if let Some(at) = waiting.wakes_at {
                self.wakes.remove(&(at, index));
            }
            state.waiting = None;
        }
    }

    /// Removes all lines that wait for a bucket. The caller must make them eligible again.
    pub(crate) fn unpark_all(&mut self, index: BucketIx) -> BTreeSet<Parked> {
        let Some(waiting) = self.table[index].waiting.take() else { return BTreeSet::new() };
        if let Some(at) = waiting.wakes_at {
            self.wakes.remove(&(at, index));
        }
        waiting.parked
    }

    /// Checks the next idle bucket and forgets it if it is full and unused. `None` if no check is due.
    pub(crate) fn forget_idle(&mut self, now: Time) -> Option<()> {
        let (_, index) = self.idle.first().filter(|(at, _)| *at <= now).copied()?;
        self.idle.pop_first();
        let state = &mut self.table[index];
        state.forget_at = None;
        if state.users > 0 {
            return Some(());
        }
        if state.waiting.is_some() {
            self.forget_at(index, now + HELD_BY_OTHERS);
            return Some(());
        }
        if !state.bucket.is_untouched(&state.spec, now) {
            let full_at = state.full_at(now).max(now + Span::from_millis(1));
            self.forget_at(index, full_at);
        } else if let Some(state) = self.table.remove(index) {
            self.by_key.remove(&state.key);
            self.gone.push(state.key);
        }
        Some(())
    }

    pub(crate) fn touch(&mut self, index: BucketIx) {
        let state = &mut self.table[index];
        if !state.dirty {
            state.dirty = true;
            self.dirty.push(index);
        }
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.dirty.is_empty() || !self.gone.is_empty() || self.families.has_changes()
    }

    /// Reports buckets that changed since the last call; `None` means forgotten.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(&Arc<str>, Option<&ScopedBucket>)) {
        self.gone.drain(..).for_each(|key| changed(&key, None));
        for index in self.dirty.drain(..) {
            if let Some(state) = self.table.get_mut(index) {
                state.dirty = false;
                changed(&state.key, Some(state));
            }
        }
    }

    /// The number of slots in the table, including free ones.
    pub(crate) fn places(&self) -> u64 {
        self.table.slots() as u64
    }

    /// The bucket in a slot of the table, if there is one.
    pub(crate) fn at(&self, place: u64) -> Option<&ScopedBucket> {
        self.table.get(BucketIx(u32::try_from(place).ok()?))
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ScopedBucket> {
        self.table.iter().map(|(_, bucket)| bucket)
    }
}

impl Index<BucketIx> for Buckets {
    type Output = ScopedBucket;
    fn index(&self, index: BucketIx) -> &ScopedBucket {
        &self.table[index]
    }
}

impl IndexMut<BucketIx> for Buckets {
    fn index_mut(&mut self, index: BucketIx) -> &mut ScopedBucket {
        &mut self.table[index]
    }
}
