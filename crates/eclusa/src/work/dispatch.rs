//! Dispatch: asks for jobs of one lane that may start, and starts them.

use std::sync::Arc;

use eclusa_core::{Denied, Dispatch, Dispatched, MAX_BATCH, Name, Span, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::run::Run;
use super::until;
use crate::gateway::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>, lane: Name) {
    let rules = gateway.config.lanes.get(&lane);
    // What holds one job back holds back all that go the same way.
    let one_chain = rules.is_some_and(|rules| rules.chains.is_none());
    let concurrency = rules.and_then(|rules| rules.concurrency);
    let concurrency = concurrency.map_or(gateway.config.workers.concurrency, |own| own as usize);
    let own = Arc::new(Semaphore::new(concurrency));
    let lease = Span::from(gateway.config.workers.lease);
    let mut still = Still::default();
    loop {
        let permits = tokio::select! {
            () = gateway.stopping.cancelled() => return,
            permits = permits(&gateway.slots, &own) => permits,
        };
        let asked_at = Instant::now();
        let ask = Dispatch { lane: lane.clone(), max: permits.len(), lease, nonce: gateway.nonce };
        let answer = match gateway.store.dispatch(ask).await {
            Ok(answer) => answer,
            Err(error) => return gateway.give_up(&error),
        };
        gateway.note(&answer.ended);
        still.update(&gateway, &lane, &answer, asked_at);
        let (again_in, full) = (until(answer.next, answer.now), answer.grants.len() == permits.len());
        let held_back = one_chain && answer.denied.is_some();
        start(&gateway, &lane, answer, asked_at, permits);
        if full {
            continue;
        }
        tokio::select! {
            () = gateway.stopping.cancelled() => return,
            () = gateway.bells.heard(&lane, held_back) => {}
            () = tokio::time::sleep(again_in) => {}
        }
    }
}

/// Since when the lane stands still though it has jobs, and why.
#[derive(Default)]
struct Still(Option<(Denied, Instant)>);

impl Still {
    /// Counts each time a gate begins to hold the lane back, and how long it did so.
    fn update(&mut self, gateway: &Gateway, lane: &Name, answer: &Dispatched, now: Instant) {
        let held_back = answer.denied.as_ref().filter(|_| answer.grants.is_empty());
        if self.0.as_ref().map(|(denied, _)| denied) == held_back {
            return;
        }
        if let Some((denied, since)) = self.0.take() {
            gateway.metrics.time_wait(lane, denied.reason, now - since);
        }
        if let Some(denied) = held_back {
            gateway.metrics.count_denial(&denied.at, denied.reason);
            self.0 = Some((denied.clone(), now));
        }
    }
}

/// Starts what was granted; permits that are left over go back.
fn start(gateway: &Arc<Gateway>, lane: &Name, answer: Dispatched, asked_at: Instant, permits: Vec<Permit>) {
    let asked = (asked_at, answer.now);
    for (grant, permit) in answer.grants.into_iter().zip(permits) {
        let (gateway, lane) = (gateway.clone(), lane.clone());
        gateway.running.clone().spawn(async move {
            if let Some(rules) = gateway.config.lanes.get(&lane) {
                Run { gateway: &gateway, lane: &lane, rules, grant, asked }.to_its_end().await;
            }
            drop(permit);
        });
    }
}

/// A slot of the process and one of the lane.
type Permit = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Waits for a slot of the lane and of the process, then takes as many more as are free.
async fn permits(process: &Arc<Semaphore>, own: &Arc<Semaphore>) -> Vec<Permit> {
    let mut permits = Vec::new();
    // Own slots first: who holds one of the process's while waiting for its own keeps other lanes from it.
    if let Ok(first) = own.clone().acquire_owned().await
        && let Ok(second) = process.clone().acquire_owned().await
    {
        permits.push((second, first));
    }
    while permits.len() < MAX_BATCH
        && let Ok(first) = own.clone().try_acquire_owned()
        && let Ok(second) = process.clone().try_acquire_owned()
    {
        permits.push((second, first));
    }
    permits
}
