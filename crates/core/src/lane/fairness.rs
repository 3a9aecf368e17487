//! Turns: which tenant of a level is served next.
//!
//! The least recently served tenant is first, with at most a quota of jobs in a row while another tenant can be served.
//! A turn counter goes up whenever service passes to another tenant; a tenant's distance to it is the number of rounds
//! it has waited.
//!
//! A tenant gets its *place* when it begins to wait and keeps it until it is served, blocked or not. A new tenant, or
//! one that has been idle for longer, starts as if it had waited [`SATURATED`] rounds, so that a stream of new tenants
//! cannot starve an old one, and long idle tenants need not be kept.

use std::collections::BTreeMap;

use crate::job::Level;
use crate::lane::tenant::Tenants;
use crate::spec::Fairness;
use crate::table::{GroupIx, LineIx, TenantIx};

/// Rounds after which waiting longer makes no difference to the reported priority.
pub(crate) const SATURATED: i64 = 4;

const BASE_PRIORITY: i64 = 5;

/// The reported priority after `rounds` without service: 5 is the base, 1 the most urgent.
pub(crate) fn priority(rounds: i64) -> i64 {
    (BASE_PRIORITY - rounds).max(1)
}

/// A tenant's place among the waiting tenants: the turn it was last served in, then the number of the job it began to
/// wait with.
pub(crate) type TurnPlace = (i64, u64);

#[derive(Debug, Default)]
pub(crate) struct Turns {
    pub(crate) turn: i64,
    pub(crate) current: Option<TenantIx>,
    pub(crate) in_a_row: u32,
    /// For each group: tenants with an open line there, by place.
    ready: Vec<BTreeMap<TurnPlace, TenantIx>>,
}

/// The line to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) tenant: TenantIx,
    pub(crate) line: LineIx,
    pub(crate) group: GroupIx,
}

impl Turns {
    /// The line to serve next among groups that are not `blocked`: the line with the oldest head of the tenant whose
    /// turn it is.
    pub(crate) fn choose(
        &self,
        tenants: &Tenants,
        level: Level,
        rule: Option<&Fairness>,
        blocked: &[bool],
    ) -> Option<Choice> {
        let first = |tenant: TenantIx| {
            let heads = tenants[tenant].level(level)?.heads();
            let open = heads.filter(|(group, ..)| !blocked[group.0 as usize]);
            open.min_by_key(|(_, head, _)| *head).map(|(group, _, line)| Choice { tenant, line, group })
        };
        if let (Some(current), Some(rule)) = (self.current, rule)
            && self.in_a_row < rule.quota(&tenants[current].name)
            && let Some(choice) = first(current)
        {
            return Some(choice);
        }
        let ready = self.ready.iter().zip(blocked).filter(|(_, blocked)| !**blocked);
        let (_, tenant) =
            ready.filter_map(|(ready, _)| ready.first_key_value()).min_by_key(|(turn, _)| **turn)?;
        first(*tenant)
    }

    /// Counts a job served to `tenant`.
    pub(crate) fn serve(&mut self, tenants: &mut Tenants, tenant: TenantIx, level: Level) {
        if self.current == Some(tenant) {
            self.in_a_row = self.in_a_row.saturating_add(1);
            return;
        }
        self.turn += 1;
        self.current = Some(tenant);
        self.in_a_row = 1;
        let mine = tenants[tenant].level_mut(level);
        mine.last_turn = Some(self.turn);
        if let Some(old) = mine.place {
            let place = (self.turn, old.1);
            mine.place = Some(place);
            for (group, ..) in mine.heads() {
                let ready = &mut self.ready[group.0 as usize];
                ready.remove(&old);
                ready.insert(place, tenant);
            }
        }
        tenants.touch(tenant);
    }

    /// The place of a tenant that begins to wait with job `seq`.
    pub(super) fn new_place(&self, last_turn: Option<i64>, seq: u64) -> TurnPlace {
        (last_turn.unwrap_or(i64::MIN).max(self.turn - SATURATED), seq)
    }

    /// Sets whether `tenant` at `place` is ready in `group`.
    pub(super) fn set_ready(&mut self, tenant: TenantIx, place: TurnPlace, group: GroupIx, ready: bool) {
        let group = group.0 as usize;
        if self.ready.len() <= group {
            self.ready.resize_with(group + 1, BTreeMap::new);
        }
        if ready {
            self.ready[group].insert(place, tenant);
        } else {
            self.ready[group].remove(&place);
        }
    }

    /// Tenants ready in `group`.
    pub(crate) fn ready_in(&self, group: GroupIx) -> u64 {
        self.ready.get(group.0 as usize).map_or(0, |ready| ready.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_rises_with_rounds_without_service() {
        assert_eq!(priority(3), 2);
        assert_eq!(priority(0), 5);
        assert_eq!([1, 2, 4, 5, 100].map(priority), [4, 3, 1, 1, 1]);
    }
}
