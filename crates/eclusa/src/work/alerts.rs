//! Alerts: evaluates them periodically, in one of the processes that share a store.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{AlertChanges, AlertKey, AlertRule, Condition, Evaluation, Severity, Watch};

use super::Workers;
use crate::config::{Config, UpstreamConfig};
use crate::peers::Peers;
use crate::store::{AnyStore, ServerFacts};
use crate::telemetry::{log_alert, policy_levels};

const EVERY: Duration = Duration::from_secs(2);

/// What this loop needs.
pub(super) struct AlertsParts {
    pub(super) workers: Arc<Workers>,
    pub(super) store: Arc<AnyStore>,
    pub(super) peers: Arc<Peers>,
}

pub(super) async fn run(AlertsParts { workers, store, peers }: AlertsParts) {
    let mut reported = 0;
    loop {
        let losses = peers.losses();
        let evaluates = peers.evaluates_alerts();
        if evaluates || losses > reported {
            let evaluation =
                if evaluates { Some(evaluation(&workers.rules.get().config, &store).await) } else { None };
            match workers.decider.watch(Watch { lost_data: losses > reported, evaluation }).await {
                Ok(changes) => {
                    log(&changes);
                    reported = losses;
                }
                Err(error) if workers.decider.wait_out_outage(&error).await => {}
                Err(_) => return,
            }
        }
        tokio::select! {
            () = workers.life.stopping.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

fn log(changes: &AlertChanges) {
    changes.fired.iter().chain(&changes.resolved).for_each(log_alert);
}

/// What the store does not know: thresholds, recipients, balances under policies, and the state of Redis.
async fn evaluation(config: &Config, store: &AnyStore) -> Evaluation {
    let alerts = &config.alerts;
    let mut seen = low_policies(config, store).await;
    // A server that does not reply now is asked again next time.
    let server = store.server_facts().await;
    seen.extend(server.iter().flat_map(|server| server_conditions(config, server)));
    Evaluation {
        limits: alerts.limits.clone(),
        seen,
        rejected_connections: server.and_then(|server| server.rejected_connections),
        operators: alerts.webhook.is_some(),
        tenants: alerts.tenants.keys().cloned().collect(),
    }
}

async fn low_policies(config: &Config, store: &AnyStore) -> Vec<Condition> {
    if config.upstreams.values().flat_map(UpstreamConfig::policies).all(|one| one.alert_below.is_none()) {
        return Vec::new();
    }
    let levels = policy_levels(store, &config.upstreams).await.unwrap_or_default();
    let low = levels.into_iter().filter(|level| level.low > 0).filter_map(|level| {
        let policies = config.upstreams.get(&level.upstream)?.policies();
        let percent = policies.iter().find(|policy| policy.name == level.policy)?.alert_below?;
        let key = AlertKey::new(AlertRule::PolicyLow, Severity::Warning);
        Some(Condition {
            key: AlertKey { upstream: Some(level.upstream), policy: Some(level.policy), ..key },
            value_micros: level.low.saturating_mul(1_000_000),
            threshold_micros: u64::from(percent) * 10_000,
        })
    });
    low.collect()
}

fn server_conditions(config: &Config, server: &ServerFacts) -> Vec<Condition> {
    let alerts = &config.alerts;
    let found = |rule, severity| Condition {
        key: AlertKey::new(rule, severity),
        value_micros: 1_000_000,
        threshold_micros: 0,
    };
    let mut seen = Vec::new();
    if let (Some([warning, critical]), Some(used)) = (alerts.redis_memory, server.memory_share_micros) {
        for (severity, most) in [(Severity::Warning, warning), (Severity::Critical, critical)] {
            if used > most {
                let key = AlertKey::new(AlertRule::RedisMemory, severity);
                seen.push(Condition { key, value_micros: used, threshold_micros: most });
            }
        }
    }
    if alerts.redis_aof_off && server.aof_off {
        seen.push(found(AlertRule::RedisAofOff, Severity::Warning));
    }
    if alerts.redis_eviction && server.evicts {
        seen.push(found(AlertRule::RedisEviction, Severity::Critical));
    }
    seen
}
