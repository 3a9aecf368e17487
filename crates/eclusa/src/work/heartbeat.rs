//! Heartbeat: keeps the leases of running jobs alive, and ends the calls of those it could not keep.
//!
//! A worker that lost its lease must stop before somebody else gets the job. So each running call has a deadline on this
//! machine's own monotonic clock, counted from before its lease was asked for, and is cut off a little earlier.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::{LeaseId, MAX_BATCH, Span, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;

/// Beats per lease: two may be lost.
const BEATS: u32 = 3;
/// How much of a lease is left when a call under it is cut off.
const MARGIN: u32 = 10;

/// The leases this process holds.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: Mutex<BTreeMap<LeaseId, Held>>,
}

#[derive(Debug)]
struct Held {
    ends: Instant,
    lost: CancellationToken,
}

impl Leases {
    /// Keeps `lease` alive until the answer is dropped.
    pub(crate) fn hold(self: &Arc<Self>, lease: LeaseId, ends: Instant) -> Hold {
        let lost = CancellationToken::new();
        self.lock().insert(lease, Held { ends, lost: lost.clone() });
        Hold { leases: self.clone(), lease, lost }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ids(&self) -> Vec<LeaseId> {
        self.lock().keys().copied().collect()
    }

    /// `lease` lasts until `ends`, or is gone.
    fn update(&self, lease: LeaseId, ends: Option<Instant>) {
        let mut held = self.lock();
        match (held.get_mut(&lease), ends) {
            (Some(held), Some(ends)) => held.ends = ends,
            (Some(held), None) => held.lost.cancel(),
            (None, _) => {}
        }
    }

    fn cut_off(&self, before: Instant) {
        self.lock().values().filter(|held| held.ends <= before).for_each(|held| held.lost.cancel());
    }
}

/// A lease that is kept alive.
#[derive(Debug)]
pub(crate) struct Hold {
    leases: Arc<Leases>,
    lease: LeaseId,
    lost: CancellationToken,
}

impl Hold {
    /// Returns when the lease is lost: whatever is done under it must stop.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.leases.lock().remove(&self.lease);
    }
}

/// Beats until nothing runs any more: also while the process is stopping, jobs need their leases.
pub(super) async fn run(gateway: Arc<Gateway>) {
    let lease = gateway.config.workers.lease;
    loop {
        tokio::select! {
            () = gateway.finished.cancelled() => return,
            () = tokio::time::sleep(lease / BEATS) => {}
        }
        for batch in gateway.leases.ids().chunks(MAX_BATCH) {
            beat(&gateway, batch, lease).await;
        }
        gateway.leases.cut_off(Instant::now() + lease / MARGIN);
    }
}

async fn beat(gateway: &Gateway, leases: &[LeaseId], lease: Duration) {
    let asked = Instant::now();
    let extend = gateway.store.extend(leases.to_vec(), Span::from(lease));
    match tokio::time::timeout(lease / BEATS, extend).await {
        Ok(Ok(alive)) => {
            for (lease_id, alive) in leases.iter().zip(alive) {
                gateway.leases.update(*lease_id, alive.then(|| asked + lease));
            }
        }
        Ok(Err(error)) => gateway.give_up(&error),
        Err(_) => tracing::warn!("The store did not prolong leases in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(number: u64) -> LeaseId {
        LeaseId { epoch: 0, number, nonce: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_gone_or_runs_out_stops_its_call_and_no_other() {
        let (leases, soon) = (Arc::new(Leases::default()), Instant::now() + Duration::from_secs(1));
        let late = soon + Duration::from_secs(9);
        let holds = [leases.hold(lease(1), late), leases.hold(lease(2), soon), leases.hold(lease(3), soon)];
        leases.update(lease(1), None);
        leases.update(lease(3), Some(late));
        leases.cut_off(soon);
        let lost = holds.each_ref().map(|hold| hold.lost.is_cancelled());
        assert_eq!(lost, [true, true, false]);
        drop(holds);
        assert!(leases.ids().is_empty());
    }
}
