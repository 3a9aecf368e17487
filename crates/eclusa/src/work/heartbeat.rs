//! Heartbeat: extends the leases of running jobs, and cancels the calls whose leases it could not extend.
//!
//! A worker that lost its lease must stop before another worker gets the job. So each running call has a deadline on
//! this machine's monotonic clock, counted from before its lease was requested, and is cancelled a little earlier.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{LeaseId, MAX_BATCH, Span, Store};
use tokio::time::Instant;

use crate::decide::Decider;
use crate::leases::Leases;
use crate::life::Life;
use crate::store::AnyStore;

/// Beats per lease: two may fail.
const BEATS: u32 = 3;
/// A call is cancelled when this fraction (1/n) of its lease is left.
pub(super) const MARGIN: u32 = 10;

/// Beats until nothing is running: jobs need their leases also while the process is stopping.
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
                Err(_) => tracing::warn!("The store did not extend leases in time"),
            }
        }
    }
}

/// Moves the deadline of the live leases to `ends`.
fn update_deadlines(leases: &Leases, ids: &[LeaseId], alive: &[bool], ends: Instant) {
    for (lease, alive) in ids.iter().zip(alive) {
        leases.update(*lease, alive.then_some(ends));
    }
}
