//! Log lines about requests that were refused for their key, a few at a time: whoever guesses keys must not fill the disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines within [`PERIOD`].
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// Refused requests of this process. There is one log, so there is one limit on it.
static REFUSALS: Refusals = Refusals {
    unauthorized: AtomicU64::new(0),
    forbidden: AtomicU64::new(0),
    quota: Mutex::new(LineQuota { since: None, lines: 0, skipped: 0 }),
};

struct Refusals {
    unauthorized: AtomicU64,
    forbidden: AtomicU64,
    quota: Mutex<LineQuota>,
}

/// How many lines may still be written.
struct LineQuota {
    since: Option<Instant>,
    lines: u32,
    skipped: u64,
}

impl LineQuota {
    /// How many lines were skipped before this one, if it may be written.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now - since >= PERIOD) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines == LINES {
            self.skipped += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.skipped))
    }
}

/// A request was refused with this status, 401 or 403. `reason` is our own text and never holds the key.
pub(crate) fn log_refusal(status: u16, request: Option<&str>, reason: &str) {
    let count = if status == 401 { &REFUSALS.unauthorized } else { &REFUSALS.forbidden };
    count.fetch_add(1, Ordering::Relaxed);
    let skipped = REFUSALS.quota.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
    if let Some(skipped) = skipped {
        let skipped = Some(skipped).filter(|skipped| *skipped > 0);
        tracing::warn!(status, request, reason, skipped, "Request refused");
    }
}

/// Requests refused so far: without a valid key, and with a key that may not.
pub(super) fn refused() -> [(&'static str, u64); 2] {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [("unauthorized", count(&REFUSALS.unauthorized)), ("forbidden", count(&REFUSALS.forbidden))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_some_lines_are_written_and_the_next_says_how_many_were_not() {
        let mut quota = LineQuota { since: None, lines: 0, skipped: 0 };
        let written = (0..100).filter(|_| quota.take(Instant::now()).is_some()).count();
        assert_eq!(written, LINES as usize);
        tokio::time::advance(PERIOD).await;
        assert_eq!(quota.take(Instant::now()), Some(90));
        assert_eq!(quota.take(Instant::now()), Some(0));
    }
}
