//! The loops that move jobs along: one per file, each named by what it does.

mod alerts;
mod dispatch;
mod heartbeat;
mod lanes;
mod poll;
mod reconcile;
mod run;
mod sample;
mod schedule;
mod slots;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{Clock, Time};
use tokio::task::JoinSet;

use crate::decide::Decider;
use crate::ids::Ids;
use crate::leases::Leases;
use crate::life::Life;
use crate::peers::{Peers, ProcessRole};
use crate::policy::Scopes;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::traces::Traces;
use crate::telemetry::{Metrics, Rates};

/// The longest that any loop sleeps.
const POLL: Duration = Duration::from_secs(1);

/// What the loops need to run jobs.
pub(crate) struct Workers {
    pub(crate) decider: Arc<Decider>,
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) life: Arc<Life>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) traces: Arc<Traces>,
    /// For answers that name a point in time.
    pub(crate) clock: Arc<dyn Clock>,
    /// The seed of the jitter of retries; different in each process.
    pub(crate) seed: u64,
}

/// The loops of one process.
pub(crate) struct Loops {
    /// Loops that start work; they end when the process is stopping.
    pub(crate) begin: JoinSet<()>,
    /// Loops that running jobs need; they end when all jobs are finished.
    pub(crate) keep: JoinSet<()>,
}

/// Starts all loops of a process with this role.
pub(crate) fn start(
    role: ProcessRole,
    workers: Workers,
    (store, scopes, ids): (&Arc<AnyStore>, &Arc<Scopes>, Arc<Ids>),
    (rates, peers): (Arc<Rates>, Arc<Peers>),
) -> Loops {
    let workers = Arc::new(workers);
    let Workers { decider, rules, leases, life, metrics, .. } = &*workers;
    let mut loops = Loops { begin: JoinSet::new(), keep: JoinSet::new() };
    let counted = (rates, metrics.clone());
    loops.begin.spawn(sample::run(store.clone(), counted, decider.clone(), life.clone()));
    let lease = rules.get().config.workers.lease;
    loops.keep.spawn(heartbeat::run(store.clone(), leases.clone(), lease, decider.clone(), life.clone()));
    let (store, scopes) = (store.clone(), scopes.clone());
    let timetable = schedule::ScheduleParts {
        workers: workers.clone(),
        store: store.clone(),
        scopes: scopes.clone(),
        ids,
    };
    loops.begin.spawn(schedule::run(timetable));
    let watching = alerts::AlertsParts { workers: workers.clone(), store: store.clone(), peers };
    loops.begin.spawn(alerts::run(watching));
    let parts = reconcile::ReconcileParts { workers: workers.clone(), store: store.clone(), scopes };
    loops.begin.spawn(reconcile::run(parts));
    if role != ProcessRole::Api {
        loops.begin.spawn(sweep::run(decider.clone(), life.clone()));
        loops.begin.spawn(poll::run(workers.clone(), store));
        loops.begin.spawn(lanes::run(workers));
    }
    loops
}

/// How long to sleep when the store says at `now` that something is due at `next`.
fn until(next: Time, now: Time) -> Duration {
    Duration::from_millis(next.since(now).as_millis()).min(POLL)
}
