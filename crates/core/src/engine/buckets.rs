//! Scoped buckets, found by key, and the lines that wait for them.
//!
//! A line denied by its own bucket is parked there. When the bucket refills, only as many lines are woken as its
//! balance can serve, so that a hundred thousand lines waiting for one bucket cost one look per token.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::gate::{Bucket, BucketSpec, NotUntil, Reason};
use crate::lane::{Parked, Rank};
use crate::table::{BucketIx, Table};
use crate::time::{Span, Time};
use crate::tokens::Tokens;
use crate::verbs::MAX_BATCH;

#[derive(Debug)]
pub(crate) struct ScopedBucket {
    pub(crate) key: Arc<str>,
    pub(crate) spec: BucketSpec,
    pub(crate) bucket: Bucket,
    /// Jobs that will take from it and leases that did.
    users: u32,
    parked: BTreeSet<Parked>,
    /// Those of them that have other upstreams to go to, by when they look there.
    looking: BTreeSet<(Time, Parked)>,
    wakes_at: Option<Time>,
    forget_at: Option<Time>,
    dirty: bool,
}

impl ScopedBucket {
    /// Whether `tokens` may be taken; not by a job that comes after one that waits for them here, which would starve.
    pub(crate) fn admits(&self, tokens: Tokens, rank: Rank, now: Time) -> Result<(), NotUntil> {
        self.bucket.admits(&self.spec, tokens, now)?;
        match self.parked.first() {
            Some(first) if first.rank < rank => {
                Err(NotUntil::new(Reason::RateLimit, self.wakes_at.unwrap_or(now)))
            }
            _ => Ok(()),
        }
    }

    fn unpark(&mut self, line: &Parked) {
        self.parked.remove(line);
        if let Some(at) = line.look_at {
            self.looking.remove(&(at, *line));
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Buckets {
    table: Table<BucketIx, ScopedBucket>,
    by_key: HashMap<Arc<str>, BucketIx, foldhash::fast::FixedState>,
    /// When parked lines may go on.
    wakes: BTreeSet<(Time, BucketIx)>,
    /// Buckets without users, by when they are full again: full and unused is the same as never made.
    idle: BTreeSet<(Time, BucketIx)>,
    dirty: Vec<BucketIx>,
    gone: Vec<Arc<str>>,
    next_ticket: u64,
}

impl Buckets {
    pub(crate) fn find(&self, key: &str) -> Option<BucketIx> {
        self.by_key.get(key).copied()
    }

    /// The bucket with `key`, under the rule that is in force now.
    pub(crate) fn find_or_create(&mut self, key: &Arc<str>, spec: BucketSpec, now: Time) -> BucketIx {
        if let Some(index) = self.find(key) {
            let state = &mut self.table[index];
            if state.spec != spec {
                // What was gained until now was gained under the old rule.
                state.bucket.refill(&state.spec, now);
                state.spec = spec;
                state.bucket.fit(&spec);
                self.touch(index);
            }
            return index;
        }
        let index = self.restore(key.clone(), spec, Bucket::full(&spec, now));
        self.touch(index);
        index
    }

    pub(crate) fn restore(&mut self, key: Arc<str>, spec: BucketSpec, bucket: Bucket) -> BucketIx {
        let state = ScopedBucket {
            key: key.clone(),
            spec,
            bucket,
            users: 0,
            parked: BTreeSet::new(),
            looking: BTreeSet::new(),
            wakes_at: None,
            forget_at: None,
            dirty: false,
        };
        let index = self.table.insert(state);
        self.by_key.insert(key, index);
        self.forget_at(index, Time::default());
        index
    }

    pub(crate) fn add_user(&mut self, index: BucketIx) {
        self.table[index].users += 1;
    }

    pub(crate) fn remove_user(&mut self, index: BucketIx, now: Time) {
        let state = &mut self.table[index];
        state.users -= 1;
        if state.users == 0 {
            let full_at = match state.bucket.admits(&state.spec, state.spec.capacity(), now) {
                Ok(()) => now,
                Err(denial) => denial.at,
            };
            self.forget_at(index, full_at);
        }
    }

    fn forget_at(&mut self, index: BucketIx, at: Time) {
        if let Some(old) = self.table[index].forget_at.replace(at) {
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

    /// Holds what a lease holds that was given before, for which the balance was lowered already.
    pub(crate) fn hold_again(&mut self, index: BucketIx, tokens: Tokens) {
        let state = &mut self.table[index];
        state.users += 1;
        state.bucket.hold_again(&state.spec, tokens);
    }

    /// Takes what was spent elsewhere, without asking whether so much is there.
    pub(crate) fn charge(&mut self, index: BucketIx, tokens: Tokens, now: Time) {
        let state = &mut self.table[index];
        state.bucket.spend(&state.spec, tokens, now);
        self.touch(index);
    }

    /// Settles a hold to its real cost.
    pub(crate) fn settle(&mut self, index: BucketIx, hold: Tokens, cost: Tokens, now: Time) {
        let state = &mut self.table[index];
        let ScopedBucket { spec, bucket, parked, .. } = state;
        let first_may_go =
            parked.first().is_some_and(|line| cost < hold || bucket.waits_for_others(spec, line.hold));
        bucket.settle(spec, hold, cost, now);
        if first_may_go {
            self.wake_at(index, now);
        }
        self.remove_user(index, now);
        self.touch(index);
    }

    pub(crate) fn park(&mut self, index: BucketIx, line: Parked, until: Time) {
        let state = &mut self.table[index];
        state.parked.insert(line);
        state.looking.extend(line.look_at.map(|at| (at, line)));
        if self.table[index].wakes_at.is_none_or(|at| until < at) {
            self.wake_at(index, until);
        }
    }

    /// The next bucket whose lines may go on, and those lines.
    pub(crate) fn wake(&mut self, now: Time) -> Option<Vec<Parked>> {
        let (_, index) = *self.wakes.first().filter(|(at, _)| *at <= now)?;
        self.wakes.pop_first();
        let state = &mut self.table[index];
        state.wakes_at = None;
        let mut left = state.bucket.balance(&state.spec, now);
        let mut woken = Vec::new();
        let closed_until = state.bucket.closed_until();
        while closed_until <= now
            && woken.len() < MAX_BATCH
            && let Some(next) = state.parked.first()
            && (woken.is_empty() || next.hold <= left)
        {
            let next = *next;
            left = left - next.hold;
            state.unpark(&next);
            woken.push(next);
        }
        // These do not wait for the bucket alone, so they need not wait for those before them.
        while woken.len() < MAX_BATCH
            && let Some((_, next)) = state.looking.first().filter(|(at, _)| *at <= now).copied()
        {
            state.unpark(&next);
            woken.push(next);
        }
        let gain = |next: &Parked| {
            let wait = state.spec.time_to_gain(next.hold).max(Span::from_millis(1));
            if next.hold <= left { closed_until.max(now) } else { closed_until.max(now + wait) }
        };
        let gained_at = state.parked.first().map(gain);
        let look_at = state.looking.first().map(|(at, _)| *at);
        if let Some(at) = gained_at.into_iter().chain(look_at).min() {
            self.wake_at(index, at);
        }
        Some(woken)
    }

    fn wake_at(&mut self, index: BucketIx, at: Time) {
        if let Some(old) = self.table[index].wakes_at.replace(at) {
            self.wakes.remove(&(old, index));
        }
        self.wakes.insert((at, index));
    }

    /// The next place at a bucket.
    pub(crate) fn draw_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// When a bucket may be forgotten.
    pub(crate) fn next_forgetting(&self) -> Time {
        self.idle.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// A parked line lost its last job. With the last line goes the wake-up: the bucket may be forgotten next.
    pub(crate) fn unpark(&mut self, index: BucketIx, line: &Parked) {
        let state = &mut self.table[index];
        state.unpark(line);
        if state.parked.is_empty()
            && let Some(at) = state.wakes_at.take()
        {
            self.wakes.remove(&(at, index));
        }
    }

    /// Looks at one bucket that was idle: full and unused, it is forgotten. `None` when there is none to look at.
    pub(crate) fn forget_idle(&mut self, now: Time) -> Option<()> {
        let (_, index) = self.idle.first().filter(|(at, _)| *at <= now).copied()?;
        self.idle.pop_first();
        let state = &mut self.table[index];
        state.forget_at = None;
        if state.users > 0 {
            return Some(());
        }
        if !state.bucket.is_untouched(&state.spec, now) {
            self.forget_at(index, now + Span::from_secs(1));
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
        !self.dirty.is_empty() || !self.gone.is_empty()
    }

    /// Buckets changed since the last call; those without a state are gone.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(&Arc<str>, Option<&ScopedBucket>)) {
        self.gone.drain(..).for_each(|key| changed(&key, None));
        for index in self.dirty.drain(..) {
            if let Some(state) = self.table.get_mut(index) {
                state.dirty = false;
                changed(&state.key, Some(state));
            }
        }
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
