//! The loops that move jobs along: one per file, each named by what it does.

mod dispatch;
mod heartbeat;
mod listen;
mod register;
mod run;
mod sample;
mod slots;
mod sweep;

pub(crate) use heartbeat::{Hold, Leases};

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{Name, Time};
use tokio::task::JoinSet;

use crate::config::{Config, Mode};
use crate::gateway::{Duty, Gateway};
use crate::store::AnyStore;

/// However quiet it is, every loop looks again after this long: the safety net under all wake-ups.
const POLL: Duration = Duration::from_secs(1);

/// The loops of one process.
pub(crate) struct Loops {
    /// Those that begin things; they end when the gateway is stopping.
    pub(crate) begin: JoinSet<()>,
    /// Those that what runs needs; they end when the gateway is finished.
    pub(crate) keep: JoinSet<()>,
}

/// Starts all loops.
pub(crate) fn start(gateway: &Arc<Gateway>) -> Loops {
    let mut loops = Loops { begin: JoinSet::new(), keep: JoinSet::new() };
    let sure = sure_slots(&gateway.config);
    if gateway.duty != Duty::Api {
        for lane in queues(&gateway.config) {
            loops.begin.spawn(dispatch::run(gateway.clone(), lane.clone(), sure));
        }
        loops.begin.spawn(sweep::run(gateway.clone()));
    }
    if let AnyStore::Redis(store) = &gateway.store {
        loops.keep.spawn(listen::run(gateway.clone(), store.redis().clone()));
        loops.keep.spawn(register::run(gateway.clone()));
    }
    loops.begin.spawn(sample::run(gateway.clone()));
    loops.keep.spawn(heartbeat::run(gateway.clone()));
    loops
}

fn queues(config: &Config) -> impl Iterator<Item = &Name> {
    config.lanes.iter().filter(|(_, rules)| rules.mode == Mode::Queue).map(|(lane, _)| lane)
}

/// Slots of the process that each lane has for itself, so that one whose upstream hangs cannot stop the others. Where
/// there are fewer slots than lanes, all are for whoever comes first.
fn sure_slots(config: &Config) -> usize {
    usize::from(config.workers.concurrency >= queues(config).count())
}

/// Slots of the process for jobs of any lane.
pub(crate) fn shared_slots(config: &Config) -> usize {
    config.workers.concurrency - sure_slots(config) * queues(config).count()
}

/// How long to wait when the store says at `now` that something happens at `next`.
fn until(next: Time, now: Time) -> Duration {
    Duration::from_millis(next.since(now).as_millis()).min(POLL)
}
