//! The circuit breaker.

use eclusa_core::gate::CallResult;
use eclusa_core::{Store, UpstreamView};

use super::state::ApiState;

/// Tracks whether an API is down. See [the module](super).
///
/// A number of consecutive failures marks the API as degraded for a time. After that it is no longer degraded; the next
/// result decides whether it stays that way or is degraded again at once.
pub struct CircuitBreaker {
    state: ApiState,
}

impl CircuitBreaker {
    pub(super) fn new(state: ApiState) -> Self {
        Self { state }
    }

    /// Counts a call that failed.
    pub async fn record_failure(&self) {
        self.record(CallResult::Failed).await;
    }

    /// Forgets all failures; the API is no longer degraded.
    pub async fn record_success(&self) {
        self.record(CallResult::Success).await;
    }

    /// Forgets the failures if the degraded time is over. Returns whether the API may be called.
    pub async fn try_recover(&self) -> bool {
        let recovered = self.state.store().await.recover(self.state.name.clone()).await;
        !recovered.is_ok_and(|view| view.as_ref().is_some_and(is_degraded))
    }

    /// Whether the API should not be called now.
    pub async fn is_degraded(&self) -> bool {
        let views = self.state.store().await.upstreams().await.unwrap_or_default();
        views.iter().any(|view| view.name == self.state.name && is_degraded(view))
    }

    async fn record(&self, result: CallResult) {
        let _ = self.state.store().await.record(self.state.name.clone(), result).await;
    }
}

fn is_degraded(view: &UpstreamView) -> bool {
    view.degraded_until.is_some()
}
