//! Applying changed rules while jobs wait, run and are kept.
//!
//! What a job was given at intake stays: its chain, its holds, its expiry. Limits are checked at every decision anyway.
//! The rest is state derived from the old rules. It is adjusted here, so that the engine equals one restored from its
//! records under the new rules.

use super::Engine;
use super::jobs::Phase;
use crate::gate::GateSpecs;
use crate::spec::LaneSpec;
use crate::table::{JobIx, LaneIx, UpstreamIx};
use crate::time::Time;

impl Engine {
    /// Applies `rule` to an upstream. Returns whether it differs from the previous rule.
    pub(super) fn configure_upstream(&mut self, number: usize, rule: &GateSpecs, now: Time) -> bool {
        let Some(old) = self.upstreams[number].spec.replace(rule.clone()) else { return true };
        if old == *rule {
            return false;
        }
        let upstream = self.upstream_mut(UpstreamIx(u32::try_from(number).unwrap_or(u32::MAX)));
        upstream.gates.fit(&old, rule, now);
        true
    }

    /// Applies `rule` to a lane. Returns whether it differs from the previous rule.
    pub(super) fn configure_lane(&mut self, number: usize, rule: &LaneSpec, now: Time) -> bool {
        let lane = LaneIx(u32::try_from(number).unwrap_or(u32::MAX));
        let old = self.lane(lane).spec.clone();
        if old.as_ref() == Some(rule) {
            return false;
        }
        self.set_default_chain(lane, rule);
        let state = self.lane_mut(lane);
        let Some(old) = old else {
            state.spec = Some(rule.clone());
            return true;
        };
        state.gates.fit(&old.gates, &rule.gates, now);
        state.dirty = true;
        if let (Some(budget), Some(old), Some(new)) =
            (&mut state.budget, old.retry.budget(), rule.retry.budget())
        {
            budget.fit(&old, &new, now);
        }
        if old.tenant_limits != rule.tenant_limits {
            self.fit_tenants(rule, now);
        }
        let same_lines = old.fairness.is_some() == rule.fairness.is_some()
            && old.tenant_limits.is_empty() == rule.tenant_limits.is_empty();
        let state = self.lane_mut(lane);
        if same_lines {
            state.spec = Some(rule.clone());
        } else {
            self.change_turns(lane, rule);
        }
        if old.cache != rule.cache {
            self.fit_equals(lane);
        }
        true
    }

    pub(super) fn set_default_chain(&mut self, lane: LaneIx, rule: &LaneSpec) {
        let chain: Vec<_> = rule.chain.names().iter().map(|name| self.add_upstream(name)).collect();
        let lane = self.lane_mut(lane);
        lane.default_chain = lane.group(&chain);
    }

    /// Moves all waiting jobs of `lane` to the lines they belong to under `rule`, which turns fairness or limits per
    /// tenant on or off: lines are per tenant with them and shared without.
    fn change_turns(&mut self, lane: LaneIx, rule: &LaneSpec) {
        let waiting = self.jobs.iter().filter(|(_, job)| job.lane == lane && job.is_waiting());
        let mut waiting: Vec<(u64, JobIx)> = waiting.map(|(index, job)| (job.seq, index)).collect();
        waiting.sort_unstable();
        for (seq, index) in &waiting {
            let (phase, waiter) = (self.jobs[*index].phase, self.jobs[*index].waiter(*index));
            let state = self.lane_mut(lane);
            state.held_back.remove(*seq);
            if let Phase::Queued { line } = phase
                && let Some((bucket, parked)) = state.pull(line, *seq)
            {
                self.buckets.unpark(bucket, &parked);
            }
            self.lane_mut(lane).exit(&waiter);
        }
        let state = self.lane_mut(lane);
        state.spec = Some(rule.clone());
        if rule.fairness.is_some() {
            state.tenants.release_everyone();
        }
        for (seq, index) in &waiting {
            let waiter = self.jobs[*index].waiter(*index);
            self.lane_mut(lane).enter(&waiter);
            match self.jobs[*index].phase {
                Phase::Queued { .. } => self.join_line(*index),
                Phase::HeldBack { .. } => {
                    let key = self.line_key(*index);
                    self.lane_mut(lane).held_back.add(*seq, *index, key);
                }
                _ => {}
            }
        }
    }

    /// Recomputes which waiting jobs of `lane` have an answer, after its cache changed.
    fn fit_equals(&mut self, lane: LaneIx) {
        for job in self.lane(lane).equals.waiting() {
            self.leave_equals(job);
            self.join_equals(job);
        }
        self.settle_equals(lane);
    }
}
