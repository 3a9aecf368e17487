//! What the calls of the API share. Each call takes only the parts that it needs, by a type of its own noun.

use std::sync::Arc;

use axum::extract::FromRef;
use eclusa_core::Clock;

use super::events::Streams;
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

macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident: $part:ty;)+) => {
        /// All parts.
        pub(crate) struct Parts {
            $($(#[$doc])* pub(crate) $name: Arc<$part>,)+
        }

        $(impl FromRef<Api> for Arc<$part> {
            fn from_ref(api: &Api) -> Self {
                api.0.$name.clone()
            }
        })+
    };
}

parts! {
    /// For what changes something.
    decider: Decider;
    /// For what only looks.
    store: AnyStore;
    /// The rules in force.
    rules: CurrentRules;
    /// For new jobs and leases.
    ids: Ids;
    /// For limits by scope.
    scopes: Scopes;
    /// Leases of calls that pass through here.
    leases: Leases;
    /// Who may ask for a call next.
    turns: Turns;
    /// The processes that share the store.
    peers: Peers;
    /// Whether the process is stopping.
    life: Life;
    /// Who follows jobs.
    streams: Streams;
    /// What is counted.
    metrics: Metrics;
    /// Begins spans.
    traces: Traces;
    /// How fast lanes move.
    rates: Rates;
    /// For what callers are shown; decisions take the store's time.
    clock: dyn Clock;
}

/// The parts, which each request clones as one.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) Arc<Parts>);
