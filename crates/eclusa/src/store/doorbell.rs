//! Wakes the one thread that takes groups to the journal.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Rung by many, heard by one.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Doorbell {
    /// Wakes the thread, now or when it next sleeps.
    pub(super) fn ring(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *rung, true) {
            self.heard.notify_one();
        }
    }

    /// Sleeps until somebody rings, or `at_most` has passed.
    pub(super) fn sleep(&self, at_most: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.heard.wait_timeout_while(rung, at_most, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}
