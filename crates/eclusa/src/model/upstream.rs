//! Upstreams and their breakers.

use eclusa_core::gate::{BreakerState, PaceView};
use eclusa_core::{Name, Quantiles, Span, UpstreamView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::iso;
use super::why::{Gate, gate};
use crate::words::starts_per_second;

/// An upstream.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// Calls in progress.
    pub in_flight: u32,
    /// Calls started in the last 60 seconds: exact below 128, above that each may count for up to a second longer.
    pub requests_last_minute: u64,
    /// The state of every gate.
    pub gates: Vec<Gate>,
    /// `closed`, `open` or `half_open`; absent if it has no breaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<super::vocabulary::BreakerState>, nullable = false)]
    pub breaker: Option<String>,
    /// Its pace, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Its keys, if configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<UpstreamKey>,
    /// About how many calls failed in the last minute. This and the next two are counted by the process that decides, from
    /// when it began to.
    #[serde(default)]
    pub errors_last_minute: u64,
    /// How long the calls of about the last minute took; absent if there were none.
    #[serde(default)]
    pub latency_ms: Option<Latency>,
    /// The last call that failed, if any did.
    #[serde(default)]
    pub last_failure: Option<UpstreamFailure>,
}

/// How long calls took until their answers began, in milliseconds, to about an eighth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// Half took no longer.
    pub p50: u64,
    /// Nineteen of twenty took no longer.
    pub p95: u64,
}

impl From<Quantiles> for Latency {
    fn from(Quantiles { p50, p95 }: Quantiles) -> Self {
        Self { p50: p50.as_millis(), p95: p95.as_millis() }
    }
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpstreamFailure {
    /// The HTTP status, SMTP reply, SES code, or a word for a failure without an answer.
    pub code: String,
    /// When the call failed.
    #[schema(format = DateTime)]
    pub at: Option<String>,
}

/// The pace of starts.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pace {
    /// Starts per second allowed now.
    pub rate: f64,
    /// Whether the rate is learned (`adaptive = true`).
    pub adaptive: bool,
    /// Latency of calls without load, in milliseconds; absent until learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_latency_ms: Option<u64>,
}

impl From<&PaceView> for Pace {
    fn from(view: &PaceView) -> Self {
        Self {
            rate: starts_per_second(view),
            adaptive: view.adaptive,
            floor_latency_ms: view.floor_latency.map(Span::as_millis),
        }
    }
}

/// One of several accounts at an upstream.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamKey {
    /// Its name in the config.
    pub name: String,
    /// Calls in progress with it.
    pub in_flight: u32,
    /// Calls started with it in the last 60 seconds: exact below 128, above that each may count for up to a second longer.
    pub requests_last_minute: u64,
    /// The state of its own gates; those of the upstream apply too.
    pub gates: Vec<Gate>,
}

/// Upstreams with their keys. `in_force` says whether the config still has one.
pub(crate) fn upstreams(views: &[UpstreamView], in_force: impl Fn(&Name) -> bool) -> Vec<Upstream> {
    let key = |view: &UpstreamView| UpstreamKey {
        name: view.name.key().unwrap_or_default().to_owned(),
        in_flight: view.in_flight,
        requests_last_minute: view.starts_last_minute,
        gates: view.gates.iter().map(|view| gate(None, view)).collect(),
    };
    let keys_of = |upstream: &Name| {
        let keys =
            views.iter().filter(|view| view.name.key().is_some() && view.name.without_key() == *upstream);
        keys.filter(|view| in_force(&view.name)).map(key).collect()
    };
    let plain = views.iter().filter(|view| view.name.key().is_none());
    let upstream = |view: &UpstreamView| Upstream {
        name: view.name.to_string(),
        in_flight: view.in_flight,
        requests_last_minute: view.starts_last_minute,
        gates: view.gates.iter().map(|view| gate(None, view)).collect(),
        breaker: view.breaker.as_ref().map(|breaker| breaker_state(breaker.state).into()),
        pace: view.pace.as_ref().map(Pace::from),
        keys: keys_of(&view.name),
        errors_last_minute: view.errors_last_minute,
        latency_ms: view.latency.map(Latency::from),
        last_failure: view
            .last_failure
            .as_ref()
            .map(|last| UpstreamFailure { code: last.code.to_string(), at: iso(last.at) }),
    };
    plain.map(upstream).collect()
}

/// A breaker.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// Its upstream.
    pub name: String,
    /// Consecutive failures.
    pub failures: u32,
    /// Whether it blocks calls now.
    pub degraded: bool,
    /// Until when it blocks calls.
    #[schema(format = DateTime)]
    pub degraded_until: Option<String>,
    /// `closed`, `open` or `half_open`.
    #[schema(value_type = super::vocabulary::BreakerState)]
    pub state: String,
}

/// The name of a breaker's state.
const fn breaker_state(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half_open",
    }
}

/// The breaker of an upstream, if it has one.
pub(crate) fn breaker(view: &UpstreamView) -> Option<Breaker> {
    view.breaker.is_some().then(|| breaker_or_closed(view))
}

/// The breaker of an upstream; an upstream without one is never blocked, like one whose breaker is closed.
pub(crate) fn breaker_or_closed(view: &UpstreamView) -> Breaker {
    let state = view.breaker.as_ref().map_or(BreakerState::Closed, |breaker| breaker.state);
    Breaker {
        name: view.name.to_string(),
        failures: view.failures,
        degraded: state == BreakerState::Open,
        degraded_until: view.degraded_until.and_then(iso),
        state: breaker_state(state).into(),
    }
}
