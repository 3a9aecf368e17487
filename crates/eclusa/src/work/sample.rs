//! Sample: records the lanes' totals periodically, so that rates can be computed.

use std::sync::Arc;

use eclusa_core::Store;
use tokio::time::Instant;

use crate::decide::Decider;
use crate::life::Life;
use crate::store::AnyStore;
use crate::telemetry::{EVERY, Metrics, Rates};

pub(super) async fn run(
    store: Arc<AnyStore>,
    (rates, metrics): (Arc<Rates>, Arc<Metrics>),
    decider: Arc<Decider>,
    life: Arc<Life>,
) {
    loop {
        match store.lanes().await {
            Ok(lanes) => {
                decider.store_answers();
                rates.sample(&lanes, &metrics.answers, Instant::now());
            }
            Err(error) if decider.wait_out_outage(&error).await => {}
            Err(_) => return,
        }
        tokio::select! {
            () = life.stopping.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
