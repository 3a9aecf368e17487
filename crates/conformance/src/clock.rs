//! A clock that a scenario moves.

use std::sync::atomic::{AtomicU64, Ordering};

use eclusa_core::{Clock, Span, Time};

/// A time in 2026, so that times look realistic.
const START_MS: u64 = 1_768_000_000_000;

/// The time of a scenario.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl Default for ManualClock {
    fn default() -> Self {
        Self(AtomicU64::new(START_MS))
    }
}

impl ManualClock {
    /// Lets time pass.
    pub fn advance(&self, span: Span) {
        self.0.fetch_add(span.as_millis(), Ordering::SeqCst);
    }

    /// Turns the clock back, as an administrator or a leap second may.
    pub fn step_back(&self, span: Span) {
        self.0.fetch_sub(span.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_millis(self.0.load(Ordering::SeqCst))
    }
}
