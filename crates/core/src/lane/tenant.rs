//! Tenants of a lane.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::fairness::TurnPlace;
use super::fifo::Fifo;
use crate::job::Level;
use crate::table::{GroupIx, Keyed, LineIx, Lookup, Table, TenantIx};
use crate::time::Time;

/// The tenant whose turn all jobs take if fairness is off. No real tenant can have this name.
pub(crate) const EVERYONE: &str = "\0";

/// Tenants without jobs that are kept; the least recently served are removed first.
const MAX_IDLE: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) name: Arc<str>,
    /// The order in which tenants were first seen; breaks ties.
    pub(crate) arrival: u64,
    /// Boxed, and `None` until used: most tenants use one level, and there may be many tenants.
    levels: [Option<Box<TenantLevel>>; 3],
    pub(crate) processed: u64,
    pub(crate) last_processed: Option<Time>,
    /// Jobs of it that wait.
    pub(crate) waiting: u64,
    /// Jobs of it that a worker or an upstream is working on.
    pub(crate) processing: u64,
    /// Jobs of it that exist, in any state.
    jobs: u64,
    dirty: bool,
}

impl Tenant {
    pub(crate) fn new(name: Arc<str>, arrival: u64) -> Self {
        Self {
            name,
            arrival,
            levels: Default::default(),
            processed: 0,
            last_processed: None,
            waiting: 0,
            processing: 0,
            jobs: 0,
            dirty: false,
        }
    }

    pub(crate) fn level(&self, level: Level) -> Option<&TenantLevel> {
        self.levels[level as usize].as_deref()
    }

    pub(crate) fn level_mut(&mut self, level: Level) -> &mut TenantLevel {
        self.levels[level as usize].get_or_insert_default()
    }

    fn idle_place(&self) -> (Time, u64) {
        (self.last_processed.unwrap_or_default(), self.arrival)
    }
}

impl Keyed for Tenant {
    type Key = str;
    fn key(&self) -> &str {
        &self.name
    }
}

#[derive(Debug, Default)]
pub(crate) struct TenantLevel {
    /// The turn it was last served in.
    pub(crate) last_turn: Option<i64>,
    /// Its place while it has lines.
    pub(crate) place: Option<TurnPlace>,
    /// Its lines, including parked ones.
    pub(super) lines: u32,
    /// Waiting jobs that were never sent, by number.
    pub(crate) evictable: Fifo,
    /// Lines that are not parked, by the number of their head, for each group that has some.
    open: Vec<(GroupIx, BTreeMap<u64, LineIx>)>,
}

impl TenantLevel {
    pub(super) fn open(&mut self, group: GroupIx) -> &mut BTreeMap<u64, LineIx> {
        let found = self.open.iter().position(|(of, _)| *of == group);
        let at = found.unwrap_or_else(|| {
            // Most tenants need only one group, and there may be many tenants.
            self.open.reserve_exact(1);
            self.open.push((group, BTreeMap::new()));
            self.open.len() - 1
        });
        &mut self.open[at].1
    }

    /// Groups in which it has open lines, with the number of the oldest head there and its line.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (GroupIx, u64, LineIx)> {
        self.open
            .iter()
            .filter_map(|(group, lines)| lines.first_key_value().map(|(head, line)| (*group, *head, *line)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tenants {
    table: Table<TenantIx, Tenant>,
    by_name: Lookup<TenantIx>,
    idle: BTreeMap<(Time, u64), TenantIx>,
    next_arrival: u64,
    everyone: Option<TenantIx>,
    dirty: Vec<TenantIx>,
    forgotten: Vec<u64>,
}

impl Tenants {
    pub(crate) fn find(&self, name: &str) -> Option<TenantIx> {
        self.by_name.find(&self.table, name)
    }

    pub(crate) fn find_or_create(&mut self, name: &Arc<str>) -> TenantIx {
        if let Some(tenant) = self.find(name) {
            return tenant;
        }
        let tenant = self.add(Tenant::new(name.clone(), self.next_arrival));
        self.touch(tenant);
        tenant
    }

    /// Adds a tenant without jobs.
    pub(crate) fn add(&mut self, tenant: Tenant) -> TenantIx {
        self.next_arrival = self.next_arrival.max(tenant.arrival + 1);
        let place = tenant.idle_place();
        let tenant = self.table.insert(tenant);
        self.by_name.add(&self.table, tenant);
        self.idle.insert(place, tenant);
        tenant
    }

    /// Applies a tenant's record.
    pub(super) fn restore(&mut self, tenant: TenantIx, change: impl FnOnce(&mut Tenant)) {
        let state = &mut self.table[tenant];
        let idle = self.idle.remove(&state.idle_place()).is_some();
        change(state);
        if idle {
            self.idle.insert(state.idle_place(), tenant);
        }
    }

    /// Removes a tenant as the records say; `false` if it still has jobs.
    pub(super) fn restore_gone(&mut self, tenant: TenantIx) -> bool {
        if self.everyone == Some(tenant) && self.table[tenant].jobs == 1 {
            self.release_everyone();
        }
        let idle = self.table[tenant].jobs == 0;
        if idle {
            self.take(tenant);
        }
        idle
    }

    pub(crate) fn everyone(&mut self) -> TenantIx {
        if let Some(tenant) = self.everyone {
            return tenant;
        }
        let tenant = self.find_or_create(&EVERYONE.into());
        self.hold(tenant);
        self.everyone = Some(tenant);
        tenant
    }

    /// Releases the shared tenant: fairness is on.
    pub(crate) fn release_everyone(&mut self) {
        if let Some(tenant) = self.everyone.take() {
            self.release(tenant);
        }
    }

    /// Counts a new job of `tenant`.
    pub(crate) fn hold(&mut self, tenant: TenantIx) {
        let state = &mut self.table[tenant];
        if state.jobs == 0 {
            self.idle.remove(&state.idle_place());
        }
        state.jobs += 1;
    }

    /// Counts a removed job of `tenant`.
    pub(crate) fn release(&mut self, tenant: TenantIx) {
        let state = &mut self.table[tenant];
        state.jobs -= 1;
        if state.jobs == 0 {
            self.idle.insert(state.idle_place(), tenant);
        }
    }

    /// Removes idle tenants beyond the bound, except those in `keep`, which turns refer to.
    pub(crate) fn forget_idle(&mut self, keep: &[Option<TenantIx>]) {
        while self.idle.len() > MAX_IDLE {
            let Some((_, tenant)) = self.idle.iter().find(|(_, tenant)| !keep.contains(&Some(**tenant)))
            else {
                return;
            };
            self.forget(*tenant);
        }
    }

    pub(crate) fn forget(&mut self, index: TenantIx) {
        if let Some(tenant) = self.take(index) {
            self.forgotten.push(tenant.arrival);
        }
    }

    fn take(&mut self, index: TenantIx) -> Option<Tenant> {
        let tenant = self.table.remove(index)?;
        self.idle.remove(&tenant.idle_place());
        self.by_name.remove(&*tenant.name, index);
        Some(tenant)
    }

    pub(crate) fn touch(&mut self, tenant: TenantIx) {
        let state = &mut self.table[tenant];
        if !state.dirty {
            state.dirty = true;
            self.dirty.push(tenant);
        }
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.dirty.is_empty() || !self.forgotten.is_empty()
    }

    /// Passes each tenant changed since the last call to `changed`, by arrival; removed tenants are passed as `None`.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(u64, Option<&Tenant>)) {
        self.forgotten.drain(..).for_each(|arrival| changed(arrival, None));
        for tenant in self.dirty.drain(..) {
            // A slot that was freed and reused holds a tenant that is in the list itself.
            if let Some(state) = self.table.get_mut(tenant) {
                state.dirty = false;
                changed(state.arrival, Some(state));
            }
        }
    }

    pub(crate) fn iter_from(&self, from: TenantIx) -> impl Iterator<Item = (TenantIx, &Tenant)> {
        self.table.iter_from(from)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

impl Index<TenantIx> for Tenants {
    type Output = Tenant;
    #[inline]
    fn index(&self, tenant: TenantIx) -> &Tenant {
        &self.table[tenant]
    }
}

impl IndexMut<TenantIx> for Tenants {
    #[inline]
    fn index_mut(&mut self, tenant: TenantIx) -> &mut Tenant {
        &mut self.table[tenant]
    }
}
