//! Retries that wait for the lane's retry budget.
//!
//! The most urgent retries go first, and within a level tenants take turns, so that a tenant whose jobs all fail does
//! not use up the budget of the others. A released retry is back in its line until it starts. While its line or group
//! is blocked, it does not count against the budget, and no other retry is released into that line or group, because it
//! could not start either.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use super::LineKey;
use crate::job::Level;
use crate::table::{GroupIx, JobIx, TenantIx};

#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    /// Retries that wait for the budget, by number, with the line they belong to.
    waiting: BTreeMap<u64, (JobIx, LineKey)>,
    /// Retries that were released and have not started, by number.
    released: BTreeMap<u64, LineKey>,
    lines: HashMap<LineKey, HeldLine, foldhash::fast::FixedState>,
    groups: BTreeMap<GroupIx, HeldGroup>,
    /// Tenants with retries to release.
    tenants: BTreeMap<(GroupIx, Level, TenantIx), HeldTenant>,
    next_turn: u64,
}

/// Retries that need the same line.
#[derive(Debug, Default)]
struct HeldLine {
    waiting: BTreeSet<u64>,
    released: u64,
    /// Whether it has released retries and waits for a bucket.
    parked: bool,
}

impl HeldLine {
    /// The next retry to release.
    fn head(&self) -> Option<u64> {
        self.waiting.first().copied().filter(|_| !self.parked)
    }

    /// Released retries that may start.
    const fn free(&self) -> u64 {
        if self.parked { 0 } else { self.released }
    }
}

#[derive(Debug, Default)]
struct HeldGroup {
    turns: BTreeMap<(Level, u64), TenantIx>,
    /// Released retries in lines that are not parked.
    free: u64,
    /// Whether the upstreams deny the group.
    blocked: bool,
}

#[derive(Debug)]
struct HeldTenant {
    turn: u64,
    /// The next retry to release of each line.
    heads: BTreeSet<u64>,
}

impl HeldBack {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn add(&mut self, seq: u64, job: JobIx, key: LineKey) {
        self.change(&key, |line| {
            line.waiting.insert(seq);
        });
        self.waiting.insert(seq, (job, key));
    }

    pub(crate) fn remove(&mut self, seq: u64) {
        if let Some((_, key)) = self.waiting.remove(&seq) {
            self.change(&key, |line| {
                line.waiting.remove(&seq);
            });
        }
    }

    /// The next retry to release, if the budget has `room` for more than were already released.
    pub(crate) fn next(&self, room: u64) -> Option<JobIx> {
        if self.free() >= room {
            return None;
        }
        let first = |(group, state): (&GroupIx, &HeldGroup)| {
            let (turn, tenant) = state.turns.first_key_value()?;
            Some((*turn, (*group, turn.0, *tenant)))
        };
        let (_, tenant) = self.open_groups().filter_map(first).min()?;
        let seq = self.tenants.get(&tenant)?.heads.first()?;
        self.waiting.get(seq).map(|(job, _)| *job)
    }

    /// Number `seq` was released into a line, which may be `parked`. Its tenant has had its turn.
    pub(crate) fn release(&mut self, seq: u64, key: LineKey, parked: bool) {
        self.change(&key, |line| {
            line.released += 1;
            line.parked |= parked;
        });
        let of = (key.group, key.level, key.tenant);
        if let (Some(tenant), Some(group)) = (self.tenants.get_mut(&of), self.groups.get_mut(&key.group)) {
            group.turns.remove(&(key.level, tenant.turn));
            tenant.turn = self.next_turn;
            group.turns.insert((key.level, tenant.turn), key.tenant);
            self.next_turn += 1;
        }
        self.released.insert(seq, key);
    }

    /// Number `seq` left its line: its line and group may be able to continue.
    pub(crate) fn left_line(&mut self, seq: u64) {
        let Some(key) = self.released.remove(&seq) else { return };
        if let Some(group) = self.groups.get_mut(&key.group) {
            group.blocked = false;
        }
        self.change(&key, |line| {
            line.released -= 1;
            line.parked = false;
        });
    }

    /// The upstreams deny all lines of a group.
    pub(crate) fn group_denied(&mut self, group: GroupIx) {
        if let Some(state) = self.groups.get_mut(&group) {
            state.blocked = state.free > 0;
        }
    }

    /// A line was parked.
    pub(crate) fn line_parked(&mut self, key: &LineKey) {
        if self.lines.get(key).is_some_and(|line| line.released > 0) {
            self.change(key, |line| line.parked = true);
        }
    }

    /// Whether some retries wait only for the budget.
    pub(crate) fn waits(&self) -> bool {
        self.free() == 0 && self.open_groups().any(|(_, group)| !group.turns.is_empty())
    }

    fn open_groups(&self) -> impl Iterator<Item = (&GroupIx, &HeldGroup)> {
        self.groups.iter().filter(|(_, group)| !group.blocked)
    }

    /// Released retries that may start.
    fn free(&self) -> u64 {
        self.open_groups().map(|(_, group)| group.free).sum()
    }

    /// Changes a line and updates what is derived from it.
    fn change(&mut self, key: &LineKey, change: impl FnOnce(&mut HeldLine)) {
        let line = self.lines.entry(key.clone()).or_default();
        let before = (line.head(), line.free());
        change(line);
        let (head, free) = (line.head(), line.free());
        if line.waiting.is_empty() && line.released == 0 {
            self.lines.remove(key);
        }
        let group = self.groups.entry(key.group).or_default();
        group.free = group.free - before.1 + free;
        group.blocked &= group.free > 0;
        if before.0 != head {
            self.move_head(key, before.0, head);
        }
        if self.groups.get(&key.group).is_some_and(|group| group.turns.is_empty() && group.free == 0) {
            self.groups.remove(&key.group);
        }
    }

    /// A tenant gets a turn with its first head, behind all others, and loses it with its last.
    fn move_head(&mut self, key: &LineKey, old: Option<u64>, new: Option<u64>) {
        let (of, turns) =
            ((key.group, key.level, key.tenant), &mut self.groups.entry(key.group).or_default().turns);
        let next = self.next_turn;
        let tenant =
            self.tenants.entry(of).or_insert_with(|| HeldTenant { turn: next, heads: BTreeSet::new() });
        if tenant.turn == next {
            self.next_turn += 1;
            turns.insert((key.level, next), key.tenant);
        }
        if let Some(old) = old {
            tenant.heads.remove(&old);
        }
        tenant.heads.extend(new);
        if tenant.heads.is_empty() {
            turns.remove(&(key.level, tenant.turn));
            self.tenants.remove(&of);
        }
    }
}
