//! Heartbeat: keeps the leases of running jobs alive, and ends the calls of those it could not keep.
//!
//! A worker that lost its lease must stop before somebody else gets the job. So each running call has a deadline on this
//! machine's own monotonic clock, counted from before its lease was asked for, and is cut off a little earlier.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{LeaseId, MAX_BATCH, Span, Store};
use tokio::time::Instant;

use crate::decide::Decider;
use crate::leases::Leases;
use crate::life::Life;
use crate::store::AnyStore;

/// Beats per lease: two may be lost.
const BEATS: u32 = 3;
/// The part of a lease that is left when a call under it is cut off.
pub(super) const MARGIN: u32 = 10;

/// Beats until nothing runs any more: also while the process is stopping, jobs need their leases.
pub(super) async fn run(
    store: Arc<AnyStore>,
    leases: Arc<Leases>,
    lease: Duration,
    decider: Arc<Decider>,
    life: Arc<Life>,
) {
    loop {
        tokio::select! {
            () = life.finished.cancelled() => return,
            () = tokio::time::sleep(lease / BEATS) => {}
        }
        for batch in leases.ids().chunks(MAX_BATCH) {
            let asked = Instant::now();
            let extend = store.extend(batch.to_vec(), Span::from(lease));
            match tokio::time::timeout(lease / BEATS, extend).await {
                Ok(Ok(alive)) => update_deadlines(&leases, batch, &alive, asked + lease),
                Ok(Err(error)) => {
                    decider.wait_out_outage(&error).await;
                }
                Err(_) => tracing::warn!("The store did not prolong leases in time"),
            }
        }
    }
}

/// Those that are alive last until `ends`.
fn update_deadlines(leases: &Leases, ids: &[LeaseId], alive: &[bool], ends: Instant) {
    for (lease, alive) in ids.iter().zip(alive) {
        leases.update(*lease, alive.then_some(ends));
    }
}
