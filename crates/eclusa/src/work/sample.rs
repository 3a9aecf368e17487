//! Sample: writes the lanes' totals down from time to time, so that rates can be told.

use std::sync::Arc;

use eclusa_core::Store;
use tokio::time::Instant;

use crate::gateway::Gateway;
use crate::telemetry::EVERY;

pub(super) async fn run(gateway: Arc<Gateway>) {
    loop {
        match gateway.store.lanes().await {
            Ok(lanes) => gateway.rates.sample(&lanes, Instant::now()),
            Err(error) if gateway.bear(&error).await => {}
            Err(_) => return,
        }
        tokio::select! {
            () = gateway.life.stopping.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
