//! State shared by the handlers. Each handler extracts only the parts it needs.

use std::sync::Arc;

use axum::extract::FromRef;
use eclusa_core::Clock;

use super::events::Streams;
use super::live::Live;
use crate::decide::Decider;
use crate::ids::Ids;
use crate::leases::Leases;
use crate::life::Life;
use crate::peers::Peers;
use crate::policy::Scopes;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::traces::Traces;
use crate::telemetry::{Metrics, Rates};
use crate::turns::Turns;

macro_rules! api_state {
    ($($(#[$doc:meta])* $name:ident: $part:ty;)+) => {
        /// What the handlers share.
        pub(crate) struct ApiState {
            $($(#[$doc])* pub(crate) $name: Arc<$part>,)+
        }

        $(impl FromRef<Api> for Arc<$part> {
            fn from_ref(api: &Api) -> Self {
                api.0.$name.clone()
            }
        })+
    };
}

api_state! {
    /// Applies changes.
    decider: Decider;
    /// For reads.
    store: AnyStore;
    /// The rules in force.
    rules: CurrentRules;
    /// Makes ids of jobs and leases.
    ids: Ids;
    /// Finds the scoped buckets of a request.
    scopes: Scopes;
    /// Leases of calls that pass through this process.
    leases: Leases;
    /// Queues of callers that wait for a permit.
    turns: Turns;
    /// The processes that share the store.
    peers: Peers;
    /// Signals that the process is draining or stopping.
    life: Life;
    /// Limits the open event streams.
    streams: Streams;
    /// Streams of everything that changes.
    live: Live;
    /// The metrics of this process.
    metrics: Metrics;
    /// Begins spans.
    traces: Traces;
    /// Recent rates of lanes.
    rates: Rates;
    /// For displayed times; decisions use the store's time.
    clock: dyn Clock;
}

/// The state behind one pointer, cloned per request.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) Arc<ApiState>);
