//! How slow a client may be while it owes bytes, or while bytes wait for it to read them. Time that an upstream takes, or in
//! which nothing is to be sent, does not count.

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

/// Over how much waiting the rate is measured: a shorter stall is nobody's fault.
const WINDOW: Duration = Duration::from_secs(10);

/// A client was waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the client is slower than `server.client` allows")]
pub(crate) struct TooSlow;

/// Measures one direction of a transfer, while the client is waited for.
#[derive(Debug)]
struct Meter {
    bounds: ClientBounds,
    /// Since when the client is waited for, or up to when that was counted.
    since: Option<Instant>,
    /// How long it was waited for in all.
    total: Duration,
    /// How long in the present window, and how many bytes came meanwhile.
    window: Duration,
    bytes: u64,
    /// Set only once there was something to wait for.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Meter {
    const fn new(bounds: ClientBounds) -> Self {
        let (total, window) = (Duration::ZERO, Duration::ZERO);
        Self { bounds, since: None, total, window, bytes: 0, alarm: None }
    }

    /// So many bytes came or went: the client is not waited for any more.
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

    /// The client is waited for. Ready when that has been too long.
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
    async fn one_that_is_too_slow_is_cut_after_a_window_and_any_other_after_its_total() {
        let window = tolerated(Meter::new(BOUNDS), 50).await;
        assert!((WINDOW..WINDOW + Duration::from_secs(1)).contains(&window), "{window:?}");
        let total = tolerated(Meter::new(BOUNDS), 200).await;
        assert!((BOUNDS.total..BOUNDS.total + Duration::from_secs(1)).contains(&total), "{total:?}");
    }

    /// What was sent fast in the past does not buy time.
    #[tokio::test(start_paused = true)]
    async fn one_that_was_fast_before_is_cut_after_two_windows() {
        let mut meter = Meter::new(BOUNDS);
        meter.moved(1 << 30);
        assert!(tolerated(meter, 1).await <= 2 * WINDOW + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_time_of_waiting_counts() {
        let mut meter = Meter::new(BOUNDS);
        for _ in 0..100 {
            meter.moved(1);
            tokio::time::sleep(WINDOW).await;
        }
        assert!(tolerated(meter, 200).await >= BOUNDS.total);
    }
}
