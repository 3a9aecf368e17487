//! The leases that this process holds. The heartbeat keeps them alive; what runs under one that is lost must stop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::LeaseId;
use tokio::sync::watch;
use tokio::time::Instant;

/// The leases this process holds, each with when it ends; `None` when it is gone.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: Mutex<BTreeMap<LeaseId, watch::Sender<Option<Instant>>>>,
}

impl Leases {
    /// Keeps `lease` alive until the answer is dropped.
    pub(crate) fn hold(self: &Arc<Self>, lease: LeaseId, ends: Instant) -> Hold {
        let (told, ends) = watch::channel(Some(ends));
        self.lock().insert(lease, told);
        Hold { leases: self.clone(), lease, ends }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, watch::Sender<Option<Instant>>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        self.lock().keys().copied().collect()
    }

    /// `lease` lasts until `ends`, or is gone.
    pub(crate) fn update(&self, lease: LeaseId, ends: Option<Instant>) {
        if let Some(told) = self.lock().get(&lease) {
            told.send_replace(ends);
        }
    }
}

/// A lease that is kept alive.
#[derive(Debug)]
pub(crate) struct Hold {
    leases: Arc<Leases>,
    lease: LeaseId,
    ends: watch::Receiver<Option<Instant>>,
}

impl Hold {
    /// Returns when the lease is gone, or `margin` before it ends unless it is prolonged: whatever is done under it must
    /// stop.
    pub(crate) async fn lost(&self, margin: Duration) {
        let mut told = self.ends.clone();
        loop {
            let Some(ends) = *told.borrow_and_update() else { return };
            tokio::select! {
                () = tokio::time::sleep_until(ends - margin) => return,
                changed = told.changed() => if changed.is_err() { return },
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.leases.lock().remove(&self.lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(number: u64) -> LeaseId {
        LeaseId { epoch: 0, number, nonce: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_gone_or_runs_out_stops_its_call_and_one_that_is_prolonged_does_not() {
        let (leases, begin) = (Arc::new(Leases::default()), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        let holds = [1, 2, 3].map(|number| leases.hold(lease(number), after(10)));
        leases.update(lease(1), None);
        leases.update(lease(3), Some(after(20)));
        let mut lost_at = Vec::new();
        for hold in &holds {
            hold.lost(Duration::from_secs(1)).await;
            lost_at.push(Instant::now() - begin);
        }
        assert_eq!(lost_at, [0, 9, 19].map(Duration::from_secs));
        drop(holds);
        assert!(leases.ids().is_empty());
    }
}
