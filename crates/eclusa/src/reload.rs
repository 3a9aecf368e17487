//! Reload: puts a config that was read again in force, as a whole or not at all.

use thiserror::Error;

use crate::config::{Changes, Config, need_restart};
use crate::gateway::Gateway;
use crate::rules::{BadCertificates, Rules};

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

/// Goes by `config` from now on, or says in the log why not. Nothing that waits or runs is lost: jobs that run end under the
/// rules they began with.
pub(crate) async fn reload(gateway: &Gateway, config: Config) {
    match apply(gateway, config).await {
        Ok(changes) => tracing::info!(changes = %changes, "The config was reloaded"),
        Err(error) => {
            tracing::error!(error = %error, "The config was not reloaded; the old one is in force");
        }
    }
}

async fn apply(gateway: &Gateway, config: Config) -> Result<Changes, ReloadError> {
    let old = gateway.rules.get();
    let fixed = need_restart(&old.config, &config);
    if !fixed.is_empty() {
        return Err(ReloadError::NeedsRestart(fixed));
    }
    let changes = Changes::between(&old.config, &config);
    let rules = Rules::new(config)?;
    // The store first: what comes in under the new rules must find its lane there.
    match gateway.peers.configure(&rules).await {
        Err(error) if error.is_transient() => {
            tracing::warn!(error = %error, "The other processes hear of the new rules when the store answers");
        }
        told => told?,
    }
    gateway.metrics.expect(&rules.config);
    gateway.rules.replace(rules);
    Ok(changes)
}
