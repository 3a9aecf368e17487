//! The leases held by this process. The heartbeat extends them; work under a lost lease must stop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::LeaseId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The leases held by this process.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: Mutex<BTreeMap<LeaseId, HeldLease>>,
}

#[derive(Debug)]
struct HeldLease {
    /// When it expires; `None` if it is lost.
    ends: Option<Instant>,
    /// Notified of changes. Created by the first waiter: most calls end before there is one.
    changed: Option<Arc<Notify>>,
}

impl Leases {
    /// Keeps `lease` alive until the returned [`Hold`] is dropped.
    pub(crate) fn hold(self: &Arc<Self>, lease: LeaseId, ends: Instant) -> Hold {
        self.lock().insert(lease, HeldLease { ends: Some(ends), changed: None });
        Hold { leases: self.clone(), lease }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, HeldLease>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All leases held.
    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        self.lock().keys().copied().collect()
    }

    /// Sets a new expiry, or marks the lease as lost.
    pub(crate) fn update(&self, lease: LeaseId, ends: Option<Instant>) {
        if let Some(held) = self.lock().get_mut(&lease) {
            held.ends = ends;
            held.changed.iter().for_each(|changed| changed.notify_one());
        }
    }
}

/// Keeps a lease alive until dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    leases: Arc<Leases>,
    lease: LeaseId,
}

impl Hold {
    /// Returns when the lease is lost, or `margin` before it expires unless it is extended: the work under it must
    /// stop.
    pub(crate) async fn lost(&self, margin: Duration) {
        while let Some((ends, changed)) = self.ends() {
            tokio::select! {
                () = tokio::time::sleep_until(ends - margin) => return,
                () = changed.notified() => {}
            }
        }
    }

    fn ends(&self) -> Option<(Instant, Arc<Notify>)> {
        let mut held = self.leases.lock();
        let held = held.get_mut(&self.lease)?;
        Some((held.ends?, held.changed.get_or_insert_default().clone()))
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
    async fn a_lost_or_expiring_lease_stops_its_call_and_an_extended_one_does_not() {
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
