//! Reload: puts a new config in force, as a whole or not at all.

use thiserror::Error;

use crate::config::{Changes, Config, need_restart};
use crate::peers::Peers;
use crate::rules::{BadCertificates, CurrentRules, Rules};
use crate::telemetry::Metrics;

/// Why a config was not put in force.
#[derive(Debug, Error)]
enum ReloadError {
    #[error("`{}` can only be changed by a restart", .0.join("`, `"))]
    NeedsRestart(Vec<&'static str>),
    #[error(transparent)]
    Certificates(#[from] BadCertificates),
    #[error(transparent)]
    Store(#[from] eclusa_core::StoreError),
}

/// Puts `config` in force, or logs why not. Nothing waiting or running is lost: running jobs end under the rules they
/// began with.
pub(crate) async fn reload(current: &CurrentRules, peers: &Peers, metrics: &Metrics, config: Config) {
    match apply(current, peers, metrics, config).await {
        Ok(changes) => {
            tracing::info!(changes = %changes, "The config was reloaded");
            log_warnings(&current.get().config);
        }
        Err(error) => {
            tracing::error!(error = %error, "The config was not reloaded; the old one is in force");
        }
    }
}

/// Logs what the config allows but cannot work.
pub(crate) fn log_warnings(config: &Config) {
    for warning in config.warnings() {
        tracing::warn!(key = warning.key, help = warning.help, "{warning}");
    }
}

async fn apply(
    current: &CurrentRules,
    peers: &Peers,
    metrics: &Metrics,
    config: Config,
) -> Result<Changes, ReloadError> {
    let old = current.get();
    let fixed = need_restart(&old.config, &config);
    if !fixed.is_empty() {
        return Err(ReloadError::NeedsRestart(fixed));
    }
    let changes = Changes::between(&old.config, &config);
    let rules = Rules::new(config)?;
    // The store first: jobs that arrive under the new rules must find their lane there.
    match peers.configure(&rules).await {
        Err(error) if error.is_transient() => {
            tracing::warn!(error = %error, "The other processes get the new rules when the store answers again");
        }
        configured => configured?,
    }
    metrics.expect(&rules.config);
    current.replace(rules);
    Ok(changes)
}
