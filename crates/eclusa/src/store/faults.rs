//! What went wrong lately with the store and between its processes, as this process saw it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eclusa_core::{Clock, Time};

/// More are forgotten, the oldest first.
const KEPT: usize = 50;

/// Something that went wrong, or is right again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFault {
    /// When this process noticed, by its own clock.
    pub at: Time,
    /// What: `takeover`, `store_lost`, `store_back` or `data_lost`.
    pub code: &'static str,
    /// The same in a sentence.
    pub text: String,
}

/// The last faults.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<VecDeque<StoreFault>>);

impl Faults {
    pub(super) fn note(&self, code: &'static str, text: impl Into<String>) {
        let fault = StoreFault { at: crate::SystemClock.now(), code, text: text.into() };
        let mut faults = self.lock();
        faults.truncate(KEPT - 1);
        faults.push_front(fault);
    }

    /// The newest first.
    pub(super) fn list(&self) -> Vec<StoreFault> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<StoreFault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_come_first() {
        let faults = Faults::default();
        for number in 0..=KEPT {
            faults.note("takeover", number.to_string());
        }
        let texts: Vec<_> = faults.list().into_iter().map(|fault| fault.text).collect();
        assert_eq!(texts.len(), KEPT);
        assert_eq!((texts.first().unwrap().as_str(), texts.last().unwrap().as_str()), ("50", "1"));
    }
}
