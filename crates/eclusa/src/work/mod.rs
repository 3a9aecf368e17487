//! The loops that move jobs along: one per file, each named by what it does.

mod dispatch;
mod heartbeat;
mod run;
mod sweep;

pub(crate) use heartbeat::{Hold, Leases};

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Time;
use tokio::task::JoinSet;

use crate::config::Mode;
use crate::gateway::Gateway;

/// However quiet it is, every loop looks again after this long: the safety net under all wake-ups.
const POLL: Duration = Duration::from_secs(1);

/// Starts all loops; they end when the gateway is stopping.
pub(crate) fn start(gateway: &Arc<Gateway>) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    for (lane, rules) in &gateway.config.lanes {
        if rules.mode == Mode::Queue {
            loops.spawn(dispatch::run(gateway.clone(), lane.clone()));
        }
    }
    loops.spawn(heartbeat::run(gateway.clone()));
    loops.spawn(sweep::run(gateway.clone()));
    loops
}

/// How long to wait when the store says at `now` that something happens at `next`.
fn until(next: Time, now: Time) -> Duration {
    Duration::from_millis(next.since(now).as_millis()).min(POLL)
}
