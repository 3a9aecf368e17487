//! Sample: writes the lanes' totals down from time to time, so that rates can be told, and looks for balances that run low.

use std::collections::BTreeSet;
use std::sync::Arc;

use eclusa_core::{Name, Store};
use tokio::time::Instant;

use crate::config::Upstream;
use crate::decide::Decider;
use crate::life::Life;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::{EVERY, Metrics, Rates, policy_levels};

pub(super) async fn run(
    store: Arc<AnyStore>,
    (rates, metrics): (Arc<Rates>, Arc<Metrics>),
    rules: Arc<CurrentRules>,
    decider: Arc<Decider>,
    life: Arc<Life>,
) {
    let mut low = LowBalances::default();
    loop {
        match store.lanes().await {
            Ok(lanes) => {
                decider.store_answers();
                rates.sample(&lanes, &metrics.answers, Instant::now());
                low.look(&store, &rules).await;
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

/// Policies with a balance below their `alert_below`, so that each is logged once when that begins.
#[derive(Default)]
struct LowBalances(BTreeSet<Name>);

impl LowBalances {
    async fn look(&mut self, store: &AnyStore, rules: &CurrentRules) {
        let rules = rules.get();
        let mut policies = rules.config.upstreams.values().flat_map(Upstream::policies);
        if policies.all(|policy| policy.alert_below.is_none()) {
            return;
        }
        // What cannot be read now is read the next time.
        for level in policy_levels(store, &rules.config.upstreams).await.unwrap_or_default() {
            if level.low == 0 {
                self.0.remove(&level.policy);
            } else if self.0.insert(level.policy.clone()) {
                let (policy, upstream, buckets) = (level.policy, level.upstream, level.low);
                tracing::warn!(%policy, %upstream, buckets, "Balance below alert_below");
            }
        }
    }
}
