//! Observes the gates and the other processes, so that this process can continue on its own if the fleet is lost.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::RegistrationView;
use eclusa_core::StoreError;
use eclusa_core::gate::Share;
use eclusa_core::layout::{Question, Reply};
use eclusa_fleet::ProcessId;
use tokio::time::{Instant, sleep, timeout};

use super::ask::FleetAccess;
use super::shared::unavailable;
use crate::store::fallback::SharedState;

const EVERY: Duration = Duration::from_secs(2);
/// The pause after a transient failure, or at the start.
const SOON: Duration = Duration::from_millis(100);

/// Observes until the process stops.
pub(super) async fn run(fleet: Arc<FleetAccess>) {
    loop {
        match look(&fleet).await {
            Err(error) if error.is_transient() => sleep(SOON).await,
            Ok(()) | Err(_) => {
                let _ = timeout(EVERY, fleet.shared.fleet_changed.notified()).await;
            }
        }
    }
}

async fn look(fleet: &FleetAccess) -> Result<(), StoreError> {
    let asked = Instant::now();
    if let Reply::Fleet(instances) = fleet.ask_fleet(&Question::Fleet).await? {
        // The asking process itself is marked as heard at the time of the answer.
        if let Some(time) = instances.iter().filter_map(|one| one.last_heard).max() {
            fleet.shared.engine_time.hear(time, asked);
        }
        fleet.shared.set_instances(instances);
    }
    if !fleet.rejoin_if_possible().await {
        return Err(unavailable("not all processes are back"));
    }
    let Some(fallback) = fleet.fallback.as_ref().filter(|fallback| !fallback.decides()) else {
        return Ok(());
    };
    let before = fallback.started();
    let lanes = fleet.ask_fleet(&Question::Lanes).await?;
    let upstreams = fleet.ask_fleet(&Question::Upstreams).await?;
    let buckets = fleet.ask_fleet(&Question::NotFull).await?;
    if let (Reply::Lanes(lanes), Reply::Upstreams(upstreams), Reply::NotFull(buckets)) =
        (lanes, upstreams, buckets)
    {
        let share = share_of(&fleet.shared.instances(), fleet.shared.membership.process);
        fallback.see(share, SharedState { lanes, upstreams, buckets }, &before);
    }
    Ok(())
}

/// The share of a process while the others cannot be asked. Processes that only run jobs start nothing then.
fn share_of(instances: &[RegistrationView], own: ProcessId) -> Share {
    let mut sharing: Vec<_> =
        instances.iter().filter(|one| !one.about.starts_with("worker")).map(|one| one.process.0).collect();
    sharing.sort_unstable();
    let place = sharing.iter().position(|one| *one == own.0).and_then(|place| u32::try_from(place).ok());
    let shares = u32::try_from(sharing.len()).unwrap_or(u32::MAX);
    place.and_then(|place| Share::new(place, shares)).unwrap_or(Share::WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: u64, about: &str) -> RegistrationView {
        let process = eclusa_core::ProcessId(id);
        RegistrationView {
            process,
            stamp: 1,
            about: about.into(),
            last_heard: None,
            differs: 0,
            differing: Vec::new(),
        }
    }

    #[test]
    fn limits_are_divided_among_processes_that_start_calls_on_their_own() {
        let alive = [process(3, "api 7f"), process(2, "worker 7f"), process(1, "all 7f")];
        assert_eq!(share_of(&alive, ProcessId(1)), Share::new(0, 2).unwrap());
        assert_eq!(share_of(&alive, ProcessId(3)), Share::new(1, 2).unwrap());
        assert_eq!(share_of(&alive, ProcessId(2)), Share::WHOLE, "it starts nothing");
    }
}
