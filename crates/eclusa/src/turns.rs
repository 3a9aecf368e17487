//! Callers that wait for leave to call an upstream: one line per upstream, first come, first served.
//!
//! Only the first of a line asks the store; the others wait for their turn, so that none of them can be overtaken by one
//! that happens to ask at the right moment. The first is woken when a call ends; wake-ups are hints, it also asks by itself
//! from time to time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eclusa_core::Name;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// One line for each upstream that somebody has waited for.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<Name, Arc<Line>>>);

/// Those who wait for one upstream.
#[derive(Debug)]
pub(crate) struct Line {
    turn: Arc<Semaphore>,
    bell: Notify,
}

impl Turns {
    /// The line of `upstream`, which must be one of the config: lines are kept.
    pub(crate) fn line(&self, upstream: &Name) -> Arc<Line> {
        let new = || Arc::new(Line { turn: Arc::new(Semaphore::new(1)), bell: Notify::new() });
        self.lock().entry(upstream.clone()).or_insert_with(new).clone()
    }

    /// Something may have become possible at `upstream`.
    pub(crate) fn ring(&self, upstream: &Name) {
        self.lock().get(upstream).into_iter().for_each(|line| line.bell.notify_one());
    }

    /// Something may have become possible anywhere.
    pub(crate) fn ring_all(&self) {
        self.lock().values().for_each(|line| line.bell.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Returns when all who came before have had their turn or gone. The turn ends when the answer is dropped.
    pub(crate) async fn next(&self) -> Option<OwnedSemaphorePermit> {
        self.turn.clone().acquire_owned().await.ok()
    }

    /// Returns when something may have become possible.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }
}
