//! Upstreams and their breakers.

use eclusa_core::UpstreamView;
use eclusa_core::gate::BreakerState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::iso;
use super::why::{Gate, gate};

/// An upstream.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// Calls under way.
    pub in_flight: u32,
    /// About how many calls were started in the last minute.
    pub requests_last_minute: u64,
    /// Every gate's state.
    pub gates: Vec<Gate>,
}

impl From<UpstreamView> for Upstream {
    fn from(view: UpstreamView) -> Self {
        Self {
            name: view.name.to_string(),
            in_flight: view.in_flight,
            requests_last_minute: view.starts_last_minute,
            gates: view.gates.iter().map(|view| gate(None, view)).collect(),
        }
    }
}

/// A breaker.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// Its upstream.
    pub name: String,
    /// Failures in a row.
    pub failures: u32,
    /// Whether it keeps calls away now.
    pub degraded: bool,
    /// Until when.
    pub degraded_until: Option<String>,
    /// `closed`, `open` or `half_open`.
    pub state: String,
}

/// The word for a breaker's state.
const fn breaker_state(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half_open",
    }
}

/// The breaker of an upstream that has one.
pub(crate) fn breaker(view: &UpstreamView) -> Option<Breaker> {
    let state = view.breaker.as_ref()?.state;
    Some(Breaker {
        name: view.name.to_string(),
        failures: view.failures,
        degraded: state == BreakerState::Open,
        degraded_until: view.degraded_until.and_then(iso),
        state: breaker_state(state).into(),
    })
}
