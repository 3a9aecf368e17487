//! Heartbeat: keeps the leases of running jobs alive, and ends the calls of those it could not keep.
//!
//! A worker that lost its lease must stop before somebody else gets the job. So each running call has a deadline on this
//! machine's own monotonic clock, counted from before its lease was asked for, and is cut off a little earlier.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{LeaseId, MAX_BATCH, Span, Store};
use tokio::time::Instant;

use crate::gateway::Gateway;

/// Beats per lease: two may be lost.
const BEATS: u32 = 3;
/// The part of a lease that is left when a call under it is cut off.
pub(super) const MARGIN: u32 = 10;

/// Beats until nothing runs any more: also while the process is stopping, jobs need their leases.
pub(super) async fn run(gateway: Arc<Gateway>) {
    let lease = gateway.rules.get().config.workers.lease;
    loop {
        tokio::select! {
            () = gateway.life.finished.cancelled() => return,
            () = tokio::time::sleep(lease / BEATS) => {}
        }
        for batch in gateway.leases.ids().chunks(MAX_BATCH) {
            beat(&gateway, batch, lease).await;
        }
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
        Ok(Err(error)) => {
            gateway.bear(&error).await;
        }
        Err(_) => tracing::warn!("The store did not prolong leases in time"),
    }
}
