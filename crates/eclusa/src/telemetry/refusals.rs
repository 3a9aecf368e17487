//! Log lines for requests refused for their key. They are rate limited, so that guessing keys does not fill the disk.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines within [`PERIOD`].
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// Refused requests of this process. There is one log, so there is one limit.
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
    /// If a line may be written, the number of lines skipped before it.
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

/// A request refused with 401 or 403, for the log.
pub(crate) struct RefusedRequest<'a> {
    pub(crate) status: u16,
    /// Method, path and query, masked.
    pub(crate) request: String,
    /// The name of the key, if the request was sent with a known one.
    pub(crate) key: Option<&'a str>,
    pub(crate) client: SocketAddr,
    /// Never contains the key.
    pub(crate) reason: &'a str,
}

/// Logs and counts a refused request.
pub(crate) fn log_refusal(refused: &RefusedRequest<'_>) {
    let RefusedRequest { status, request, key, client, reason } = refused;
    let count = if *status == 401 { &REFUSALS.unauthorized } else { &REFUSALS.forbidden };
    count.fetch_add(1, Ordering::Relaxed);
    let skipped = REFUSALS.quota.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
    if let Some(skipped) = skipped {
        let skipped = Some(skipped).filter(|skipped| *skipped > 0);
        tracing::warn!(status, request, key, %client, reason, skipped, "Request refused");
    }
}

/// Requests refused so far: without a valid key, and with a key that lacks the right.
pub(super) fn refused() -> [(&'static str, u64); 2] {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [("unauthorized", count(&REFUSALS.unauthorized)), ("forbidden", count(&REFUSALS.forbidden))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_are_limited_and_the_next_one_reports_how_many_were_skipped() {
        let mut quota = LineQuota { since: None, lines: 0, skipped: 0 };
        let written = (0..100).filter(|_| quota.take(Instant::now()).is_some()).count();
        assert_eq!(written, LINES as usize);
        tokio::time::advance(PERIOD).await;
        assert_eq!(quota.take(Instant::now()), Some(90));
        assert_eq!(quota.take(Instant::now()), Some(0));
    }
}
