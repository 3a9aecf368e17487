//! Lanes: one dispatch loop for each lane of the current rules.
//!
//! A direct lane has one too: it may hold jobs from when it was a queue, jobs of processes with the old config, and
//! replayed dead letters.

use std::collections::BTreeMap;
use std::sync::Arc;

use eclusa_core::Name;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Workers;
use super::dispatch;
use super::slots::{SlotPool, Slots};
use crate::config::Config;

/// The running loops.
struct LaneLoops {
    workers: Arc<Workers>,
    /// Slots of the process for jobs of any lane.
    shared: SlotPool,
    running: BTreeMap<Name, LaneLoop>,
    loops: JoinSet<()>,
}

/// The loop of one lane.
#[derive(Default)]
struct LaneLoop {
    /// What the lane's `concurrency` allows.
    own: SlotPool,
    /// Slots of the process that no other lane can take, so that a hanging upstream of one lane does not stop the
    /// others.
    reserved: SlotPool,
    stop: CancellationToken,
}

/// Keeps the loops in line with the rules until the process is stopping and all loops have ended.
pub(super) async fn run(workers: Arc<Workers>) {
    let mut changes = workers.rules.watch();
    let mut lanes =
        LaneLoops { workers, shared: SlotPool::default(), running: BTreeMap::new(), loops: JoinSet::new() };
    let stopping = lanes.workers.life.stopping.clone();
    loop {
        let rules = changes.borrow_and_update().clone();
        lanes.follow(&rules.config);
        tokio::select! {
            () = stopping.cancelled() => break,
            _ = changes.changed() => {}
            failed = lanes.a_loop_failed() => if failed { return },
        }
    }
    while lanes.loops.join_next().await.is_some() {}
}

impl LaneLoops {
    /// Starts loops of new lanes, ends those of removed ones, and redistributes the slots.
    fn follow(&mut self, config: &Config) {
        let wanted = &config.lanes;
        self.running.retain(|lane, running| {
            let stays = wanted.contains_key(lane);
            if !stays {
                running.stop.cancel();
            }
            stays
        });
        let concurrency = config.workers.concurrency;
        // With fewer slots than lanes, all slots are shared.
        let reserved = usize::from(concurrency >= wanted.len());
        self.shared.resize(concurrency - reserved * wanted.len());
        for (lane, rules) in wanted {
            let own = rules.concurrency.map_or(concurrency, |own| own as usize);
            let running = self.running.entry(lane.clone()).or_insert_with(|| {
                let new = LaneLoop { stop: self.workers.life.stopping.child_token(), ..LaneLoop::default() };
                let slots = Slots::new(&new.own, &new.reserved, &self.shared);
                self.loops.spawn(dispatch::run(self.workers.clone(), lane.clone(), slots, new.stop.clone()));
                new
            });
            running.own.resize(own);
            running.reserved.resize(reserved);
        }
    }

    /// Waits until a loop ends; returns whether its lane still needs it.
    async fn a_loop_failed(&mut self) -> bool {
        match self.loops.join_next().await {
            None => std::future::pending().await,
            Some(Err(_)) => true,
            Some(Ok(())) => self.loops.len() < self.running.len(),
        }
    }
}
