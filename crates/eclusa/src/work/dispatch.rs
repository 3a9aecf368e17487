//! Dispatch: asks for jobs of one lane that may start, and starts them.

use std::sync::Arc;

use eclusa_core::{Denied, Dispatch, Dispatched, Name, Span, Store};
use tokio::time::Instant;

use super::run::Run;
use super::slots::{Room, Slots};
use super::until;
use crate::gateway::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>, lane: Name, sure: usize) {
    let rules = gateway.config.lanes.get(&lane);
    // What holds one job back holds back all that go the same way.
    let one_chain = rules.is_some_and(|rules| rules.chains.is_none());
    let concurrency = rules.and_then(|rules| rules.concurrency);
    let concurrency = concurrency.map_or(gateway.config.workers.concurrency, |own| own as usize);
    let slots = Slots::new(concurrency, sure, gateway.slots.clone());
    let lease = Span::from(gateway.config.workers.lease);
    let mut still = Still::default();
    loop {
        let rooms = tokio::select! {
            biased;
            () = gateway.stopping.cancelled() => return,
            rooms = slots.take() => rooms,
        };
        let asked_at = Instant::now();
        let max = rooms.iter().map(Room::len).sum();
        let ask = Dispatch { lane: lane.clone(), max, lease, nonce: gateway.nonce };
        let answer = match gateway.store.dispatch(ask).await {
            Ok(answer) => answer,
            Err(error) if gateway.bear(&error).await => continue,
            Err(_) => return,
        };
        gateway.note(&answer.ended);
        gateway.note_taken_up(&answer.taken_up);
        still.update(&gateway, &lane, &answer, asked_at);
        let (again_in, full) = (until(answer.next, answer.now), answer.grants.len() == max);
        let held_back = one_chain && answer.denied.is_some();
        start(&gateway, &lane, answer, asked_at, rooms);
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
            gateway.metrics.count_denial(Some(lane), denied.upstream.as_ref(), denied.reason);
            self.0 = Some((denied.clone(), now));
        }
    }
}

/// Starts what was granted; slots that are left over go back.
fn start(gateway: &Arc<Gateway>, lane: &Name, answer: Dispatched, asked_at: Instant, mut rooms: Vec<Room>) {
    let asked = (asked_at, answer.now);
    for grant in answer.grants {
        let (gateway, lane) = (gateway.clone(), lane.clone());
        let slot = rooms.iter_mut().find_map(Room::split_one);
        gateway.running.clone().spawn(async move {
            if let Some(rules) = gateway.config.lanes.get(&lane) {
                Run { gateway: &gateway, lane: &lane, rules, grant, asked }.to_its_end().await;
            }
            drop(slot);
        });
    }
}
