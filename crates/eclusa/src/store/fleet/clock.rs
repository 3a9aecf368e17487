//! The server's time, carried on this process's monotonic clock: if the server's clock steps, or another server takes
//! over, the time moves only slowly.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eclusa_core::{Clock, Time};
use tokio::time::Instant;

use crate::clock::SteadyClock;

/// The owner's time as last reported, carried on this process's monotonic clock.
///
/// A new owner does not exceed it: the server's clock may have been turned forward since the old owner first read it, and
/// all leases and jobs would end at once. Without an owner, a process compares the moments it has seen with it.
#[derive(Default)]
pub(super) struct EngineTime(Mutex<Option<HeardTime>>);

#[derive(Clone, Copy)]
struct HeardTime {
    time: Time,
    asked: Instant,
    answered: Instant,
}

impl EngineTime {
    /// Notes that the owner reported `time` in answer to a question asked at `asked`; the answer came now.
    pub(super) fn hear(&self, time: Time, asked: Instant) {
        let heard = HeardTime { time, asked, answered: Instant::now() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(heard);
    }

    fn heard(&self) -> Option<HeardTime> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest time it can be now; `None` if the owner never reported one.
    pub(super) fn at_most(&self) -> Option<Time> {
        self.heard().map(|heard| heard.time + heard.asked.elapsed().into())
    }

    /// The earliest time it can be now; `None` if the owner never reported one.
    pub(super) fn at_least(&self) -> Option<Time> {
        self.heard().map(|heard| heard.time + heard.answered.elapsed().into())
    }
}

/// See the module. Before the server's first reply it shows the time of this machine.
pub(super) struct ServerClock {
    start: Instant,
    state: Mutex<Option<ServerTime>>,
}

struct ServerTime {
    steady: SteadyClock,
    /// The server's last time, and when it was read, by the monotonic clock.
    time: Duration,
    at: Duration,
}

impl ServerClock {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), state: Mutex::new(None) }
    }

    /// Notes the server's time.
    pub(super) fn hear(&self, time: Time) {
        let at = self.start.elapsed();
        let time = Duration::from_millis(time.as_millis());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let steady = state.as_ref().map_or_else(|| SteadyClock::new(at, time), |heard| heard.steady);
        *state = Some(ServerTime { steady, time, at });
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Time {
        let elapsed = self.start.elapsed();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            Some(heard) => heard.steady.read(elapsed, heard.time + elapsed.saturating_sub(heard.at)),
            None => crate::SystemClock.now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_owners_time_advances_from_when_it_was_asked() {
        let time = EngineTime::default();
        assert_eq!(time.at_most(), None);
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(30)).await;
        time.hear(Time::from_millis(5_000), asked);
        tokio::time::advance(Duration::from_millis(70)).await;
        assert_eq!(time.at_most(), Some(Time::from_millis(5_100)));
        assert_eq!(time.at_least(), Some(Time::from_millis(5_070)));
    }
}
