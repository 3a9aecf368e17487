//! Bounds on slow clients: while they owe bytes, or while bytes wait for them to read. Time that an upstream takes, or
//! in which nothing has to be sent, does not count.

mod connection;
mod download;
mod received;
mod upload;

pub(crate) use connection::{ClientConnection, Requests};
pub(crate) use download::Download;
pub(crate) use received::{NoRoom, Received, Uploads};
pub(crate) use upload::Upload;

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::config::ClientBounds;

/// The waiting time over which the rate is measured. Shorter stalls are tolerated.
const WINDOW: Duration = Duration::from_secs(10);

/// The client was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the client is slower than `server.client` allows")]
pub(crate) struct TooSlow;

/// Measures one direction of a transfer while it waits for the client.
#[derive(Debug)]
struct Meter {
    bounds: ClientBounds,
    /// When the wait for the client began, or up to when it is counted.
    since: Option<Instant>,
    /// The waiting time in total.
    total: Duration,
    /// The waiting time in the current window, and the bytes moved in it.
    window: Duration,
    bytes: u64,
    /// Created with the first wait.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Meter {
    const fn new(bounds: ClientBounds) -> Self {
        let (total, window) = (Duration::ZERO, Duration::ZERO);
        Self { bounds, since: None, total, window, bytes: 0, alarm: None }
    }

    /// Counts bytes that were moved; the wait for the client is over.
    fn moved(&mut self, bytes: usize) {
        if self.since.is_some() {
            self.count(Instant::now());
            self.since = None;
        }
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    fn count(&mut self, now: Instant) {
        let waited = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.total += waited;
        self.window += waited;
        self.since = Some(now);
    }

    /// Waits for the client. Ready when that has taken too long.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<TooSlow> {
        loop {
            let now = Instant::now();
            self.count(now);
            if self.window >= WINDOW {
                if self.bytes < self.bounds.min_rate.saturating_mul(WINDOW.as_secs()) {
                    return Poll::Ready(TooSlow);
                }
                (self.window, self.bytes) = (Duration::ZERO, 0);
            }
            let Some(left) = self.bounds.total.checked_sub(self.total).filter(|left| !left.is_zero()) else {
                return Poll::Ready(TooSlow);
            };
            let due = now + left.min(WINDOW.saturating_sub(self.window));
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(due)));
            alarm.as_mut().reset(due);
            ready!(alarm.as_mut().poll(cx));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const BOUNDS: ClientBounds = ClientBounds { total: Duration::from_mins(1), min_rate: 100 };

    /// Waits for a client that moves `bytes` every second; returns how long it was tolerated.
    async fn tolerated(mut meter: Meter, bytes: usize) -> Duration {
        let begin = Instant::now();
        loop {
            let second = tokio::time::sleep(Duration::from_secs(1));
            tokio::select! {
                _ = poll_fn(|cx| meter.poll_waiting(cx)) => return begin.elapsed(),
                () = second => meter.moved(bytes),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_cut_off_after_a_window_and_any_other_after_the_total() {
        let window = tolerated(Meter::new(BOUNDS), 50).await;
        assert!((WINDOW..WINDOW + Duration::from_secs(1)).contains(&window), "{window:?}");
        let total = tolerated(Meter::new(BOUNDS), 200).await;
        assert!((BOUNDS.total..BOUNDS.total + Duration::from_secs(1)).contains(&total), "{total:?}");
    }

    /// Bytes sent fast in the past do not buy time.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_was_fast_before_is_cut_off_after_two_windows() {
        let mut meter = Meter::new(BOUNDS);
        meter.moved(1 << 30);
        assert!(tolerated(meter, 1).await <= 2 * WINDOW + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn only_waiting_time_counts() {
        let mut meter = Meter::new(BOUNDS);
        for _ in 0..100 {
            meter.moved(1);
            tokio::time::sleep(WINDOW).await;
        }
        assert!(tolerated(meter, 200).await >= BOUNDS.total);
    }
}
