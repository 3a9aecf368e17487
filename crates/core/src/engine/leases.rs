//! The engine's leases: the one expiring set from which slots and probes are counted.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::tenant_limits::TenantHold;
use crate::gate::Pass;
use crate::ids::LeaseId;
use crate::policy::Correlation;
use crate::table::{BucketIx, JobIx, LaneIx, UpstreamIx};
use crate::time::Time;
use crate::tokens::Tokens;

/// What a lease is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// A worker runs a job and holds a slot of its lane.
    Job(JobIx, LaneIx),
    /// The upstream works on a job and will report its end.
    Awaiting(JobIx),
    /// A call without a job, or one whose job was cancelled, with the lane whose slot it holds, if any.
    Call(Option<LaneIx>),
    /// Like `Call`, but not the first call of its job or chain: the lane's token stays spent even if this call is not
    /// sent.
    LaterCall(Option<LaneIx>),
}

impl Use {
    pub(crate) fn job(self) -> Option<JobIx> {
        match self {
            Use::Job(job, _) | Use::Awaiting(job) => Some(job),
            Use::Call(_) | Use::LaterCall(_) => None,
        }
    }

    /// The lane whose slot it holds.
    pub(crate) fn lane(self) -> Option<LaneIx> {
        match self {
            Use::Job(_, lane) => Some(lane),
            Use::Awaiting(_) => None,
            Use::Call(lane) | Use::LaterCall(lane) => lane,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) used_by: Use,
    /// Where it holds a slot; `None` between the last upstream of a chain and the settlement.
    pub(crate) upstream: Option<UpstreamIx>,
    pub(crate) pass: Pass,
    pub(crate) holds: Vec<(BucketIx, Tokens)>,
    /// What it holds of its tenant's limits while it is in the lane.
    pub(crate) tenant: TenantHold,
    pub(crate) correlation: Option<Correlation>,
    pub(crate) expires: Time,
}

#[derive(Debug, Default)]
pub(crate) struct Leases {
    pub(crate) epoch: u64,
    pub(crate) next_number: u64,
    by_id: HashMap<LeaseId, Lease, foldhash::fast::FixedState>,
    expiry: BTreeSet<(Time, LeaseId)>,
    /// Leases without a job that changed or ended; the others are saved with their job.
    unsaved: Vec<LeaseId>,
    /// Leases from before a restore, by the nonce of the request they were granted for: its answer may have been lost.
    restored: HashMap<u64, Vec<LeaseId>, foldhash::fast::FixedState>,
    /// Jobs by the number of the lease they were last settled under.
    settled: HashMap<u64, JobIx, foldhash::fast::FixedState>,
}

impl Leases {
    pub(crate) fn issue(&mut self, nonce: u64) -> LeaseId {
        self.next_number += 1;
        LeaseId { epoch: self.epoch, number: self.next_number, nonce }
    }

    pub(crate) fn insert(&mut self, id: LeaseId, lease: Lease) {
        self.note(id, &lease);
        self.add(id, lease);
    }

    pub(crate) fn restore(&mut self, id: LeaseId, lease: Lease) {
        let given = self.restored.entry(id.nonce).or_default();
        given.insert(given.partition_point(|other| *other < id), id);
        self.add(id, lease);
    }

    fn add(&mut self, id: LeaseId, lease: Lease) {
        self.expiry.insert((lease.expires, id));
        self.by_id.insert(id, lease);
    }

    pub(crate) fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.by_id.get(&id)
    }

    /// Changes a lease, except its expiry.
    pub(crate) fn change(&mut self, id: LeaseId, change: impl FnOnce(&mut Lease)) {
        if let Some(lease) = self.by_id.get_mut(&id) {
            change(lease);
            let lease = lease.clone();
            self.note(id, &lease);
        }
    }

    pub(crate) fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.take(id)?;
        self.note(id, &lease);
        Some(lease)
    }

    /// Removes a lease that has ended according to the journal.
    pub(crate) fn take(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.by_id.remove(&id)?;
        self.expiry.remove(&(lease.expires, id));
        if let Some(given) = self.restored.get_mut(&id.nonce) {
            given.retain(|other| *other != id);
            if given.is_empty() {
                self.restored.remove(&id.nonce);
            }
        }
        Some(lease)
    }

    /// Leases that were granted before the restore to the request with this nonce and still exist, in the order of the
    /// grants.
    pub(crate) fn given_before(&self, nonce: u64) -> impl Iterator<Item = (LeaseId, &Lease)> {
        let given = self.restored.get(&nonce).into_iter().flatten();
        given.filter_map(|id| self.by_id.get(id).map(|lease| (*id, lease)))
    }

    /// The job that was last settled under a lease with this number.
    pub(crate) fn settled_job(&self, lease: LeaseId) -> Option<JobIx> {
        self.settled.get(&lease.number).copied()
    }

    /// Notes that `job` was last settled under `lease`.
    pub(crate) fn remember_settled(&mut self, lease: LeaseId, job: JobIx) {
        self.settled.insert(lease.number, job);
    }

    /// Forgets a settlement: the job is forgotten, or was settled under another lease since.
    pub(crate) fn forget_settled(&mut self, lease: LeaseId) {
        self.settled.remove(&lease.number);
    }

    pub(crate) fn extend(&mut self, id: LeaseId, expires: Time) -> Option<&Lease> {
        let lease = self.by_id.get_mut(&id)?;
        self.expiry.remove(&(lease.expires, id));
        lease.expires = expires;
        self.expiry.insert((expires, id));
        if lease.used_by.job().is_none() {
            self.unsaved.push(id);
        }
        self.by_id.get(&id)
    }

    pub(crate) fn expired(&self, now: Time) -> Option<LeaseId> {
        self.expiry.first().filter(|(expires, _)| *expires <= now).map(|(_, id)| *id)
    }

    pub(crate) fn next_expiry(&self) -> Time {
        self.expiry.first().map_or(Time::NEVER, |(expires, _)| *expires)
    }

    fn note(&mut self, id: LeaseId, lease: &Lease) {
        if lease.used_by.job().is_none() {
            self.unsaved.push(id);
        }
    }

    pub(crate) fn touch(&mut self, id: LeaseId) {
        if self.by_id.contains_key(&id) {
            self.unsaved.push(id);
        }
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Reports leases without a job that changed since the last call; `None` means ended.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(LeaseId, Option<&Lease>)) {
        for id in self.unsaved.drain(..) {
            changed(id, self.by_id.get(&id));
        }
    }

    /// All leases, in the order of their expiry.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LeaseId, &Lease)> {
        self.expiry.iter().filter_map(|(_, id)| self.by_id.get(id).map(|lease| (*id, lease)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_granted_to_one_request_keep_their_order_after_a_restore() {
        let mut leases = Leases::default();
        for number in [2, 3, 1] {
            let (used_by, pass, expires) = (Use::Call(None), Pass::default(), Time::from_millis(1));
            let (tenant, correlation) = (TenantHold::default(), None);
            let lease =
                Lease { used_by, upstream: None, pass, holds: Vec::new(), tenant, correlation, expires };
            leases.restore(LeaseId { epoch: 1, number, nonce: 7 }, lease);
        }
        assert_eq!(leases.given_before(7).map(|(id, _)| id.number).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
