//! The loops that move jobs along: one per file, each named by what it does.

mod dispatch;
mod heartbeat;
mod lanes;
mod run;
mod sample;
mod slots;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Time;
use tokio::task::JoinSet;

use crate::gateway::Gateway;
use crate::peers::Duty;

/// However quiet it is, every loop looks again after this long.
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
    if gateway.peers.duty != Duty::Api {
        loops.begin.spawn(lanes::run(gateway.clone()));
        loops.begin.spawn(sweep::run(gateway.clone()));
    }
    loops.begin.spawn(sample::run(gateway.clone()));
    loops.keep.spawn(heartbeat::run(gateway.clone()));
    loops
}

/// How long to wait when the store says at `now` that something happens at `next`.
fn until(next: Time, now: Time) -> Duration {
    Duration::from_millis(next.since(now).as_millis()).min(POLL)
}
