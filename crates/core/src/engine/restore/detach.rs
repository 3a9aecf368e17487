//! Removes things from the engine as if their records had not been read, with everything derived from them. No decision
//! has been based on them yet.

use super::super::Engine;
use super::super::jobs::Phase;
use super::changes::Changes;
use crate::gate::Pass;
use crate::ids::LeaseId;
use crate::lane::Lane;
use crate::table::JobIx;
use crate::tokens::Tokens;

impl Engine {
    /// Removes all changed jobs and leases. What they refer to changes in place.
    pub(super) fn detach(&mut self, changes: &Changes) {
        for id in changes.jobs.keys() {
            if let Some(job) = self.jobs.find(*id) {
                self.detach_job(job);
            }
        }
        for id in changes.leases.keys() {
            // A job's lease is removed with the job.
            if self.leases.get(*id).is_some_and(|lease| lease.used_by.job().is_none()) {
                self.detach_lease(*id);
            }
        }
    }

    fn detach_job(&mut self, index: JobIx) {
        let lane = self.jobs[index].lane;
        match self.jobs[index].phase {
            Phase::Pending { .. } | Phase::HeldBack { .. } | Phase::Queued { .. } | Phase::Coalesced => {
                self.stop_waiting_by(index, Lane::pull_in_place);
            }
            Phase::Processing { lease } => {
                self.stop_processing(index);
                self.detach_lease(lease);
            }
            Phase::Finished { .. } => {
                let jobs = &self.jobs;
                self.lanes[lane.0 as usize].finished.unrestore(index, |job| jobs[job].end_number());
            }
        }
        let holds = self.jobs[index].rare.as_mut().and_then(|rare| rare.holds.take());
        for hold in holds.iter().flat_map(|holds| holds.iter()) {
            self.buckets.drop_user(hold.bucket);
        }
        self.remove_job(index);
    }

    fn detach_lease(&mut self, id: LeaseId) {
        let Some(lease) = self.leases.take(id) else { return };
        for (bucket, tokens) in lease.holds {
            self.buckets.unhold(bucket, tokens);
        }
        if let Some(rate) = lease.tenant.rate {
            self.buckets.drop_user(rate);
        }
        if let Some(slot) = lease.tenant.slot {
            self.buckets.unhold(slot, Tokens::ONE);
        }
        if let Some(lane) = lease.used_by.lane() {
            self.lane_mut(lane).gates.remove_call(Pass::default());
        }
        if let Some(upstream) = lease.upstream {
            for index in self.gates_at(upstream) {
                self.upstreams[index.0 as usize].gates.remove_call(lease.pass);
            }
        }
    }

    /// Forgets owed answers for which no job waits any more.
    pub(super) fn forget_what_is_not_owed(&mut self) {
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain(|(lane, number), key| {
            let same = self.entry(*lane, key).is_some_and(|(_, entry)| entry.number == *number);
            same && self.lane(*lane).equals.first_before(key, *number).is_some()
        });
        self.owed = owed;
    }
}
