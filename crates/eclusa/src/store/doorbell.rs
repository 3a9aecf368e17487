//! Wakes the thread that writes groups to the journal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long the thread sleeps when it is asked to come soon.
const NAP: Duration = Duration::from_millis(5);

/// Rung by many threads, heard by one.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    rung: Mutex<bool>,
    heard: Condvar,
    /// Whether a caller wants the thread to come soon.
    soon: AtomicBool,
    /// Whether the thread wakes within a [`NAP`] on its own.
    napping: AtomicBool,
}

impl Doorbell {
    /// Wakes the thread, now or when it next sleeps.
    pub(super) fn ring(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *rung, true) {
            self.heard.notify_one();
        }
    }

    /// Makes the thread come within a [`NAP`] or two. Many such calls cost one wake-up.
    pub(super) fn ring_soon(&self) {
        if !self.soon.swap(true, Ordering::SeqCst) && !self.napping.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Sleeps until the bell rings, or `at_most` has passed.
    pub(super) fn sleep(&self, at_most: Duration) {
        // The order matters: a caller that finds the thread napping relies on it to check `soon`.
        self.napping.store(true, Ordering::SeqCst);
        let at_most = if self.soon.swap(false, Ordering::SeqCst) {
            NAP
        } else {
            self.napping.store(false, Ordering::SeqCst);
            if self.soon.load(Ordering::SeqCst) { NAP } else { at_most }
        };
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.heard.wait_timeout_while(rung, at_most, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any test may take.
    const FOR_EVER: Duration = Duration::from_mins(10);

    #[test]
    fn ring_soon_wakes_the_thread_whether_it_naps_or_not() {
        let bell = Doorbell::default();
        bell.ring_soon();
        bell.sleep(FOR_EVER);
        assert!(bell.napping.load(Ordering::SeqCst), "it wakes again on its own");
        bell.ring_soon();
        assert!(!*bell.rung.lock().unwrap(), "no system call");
        bell.sleep(FOR_EVER);
    }
}
