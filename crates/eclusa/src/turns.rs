//! Callers that wait for a permit to call an upstream: one queue per upstream, first come, first served.
//!
//! Only the head of a queue asks the store; the others wait for their turn, so that no caller can be overtaken by one
//! that happens to ask at the right moment. The head is woken when a call ends. Wake-ups are hints: it also asks from
//! time to time without one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eclusa_core::Name;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// One queue per upstream that a caller has waited for.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<Name, Arc<Line>>>);

/// The callers that wait for one upstream.
#[derive(Debug)]
pub(crate) struct Line {
    turn: Arc<Semaphore>,
    bell: Notify,
}

impl Turns {
    /// The queue of `upstream`, which must be in the config: queues are never removed.
    pub(crate) fn line(&self, upstream: &Name) -> Arc<Line> {
        let new = || Arc::new(Line { turn: Arc::new(Semaphore::new(1)), bell: Notify::new() });
        self.lock().entry(upstream.clone()).or_insert_with(new).clone()
    }

    /// Wakes the head of the queue of `upstream`: a call may be possible now.
    pub(crate) fn ring(&self, upstream: &Name) {
        self.lock().get(upstream).into_iter().for_each(|line| line.bell.notify_one());
    }

    /// Wakes the heads of all queues.
    pub(crate) fn ring_all(&self) {
        self.lock().values().for_each(|line| line.bell.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Returns when all earlier callers have had their turn or gone. The turn ends when the permit is dropped.
    pub(crate) async fn next(&self) -> Option<OwnedSemaphorePermit> {
        self.turn.clone().acquire_owned().await.ok()
    }

    /// Returns when a call may be possible.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }
}
