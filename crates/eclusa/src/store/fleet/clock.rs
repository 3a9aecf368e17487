//! The server's time, carried on this process's monotonic clock: a server whose clock steps, or another server, moves it only
//! slowly.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eclusa_core::{Clock, Time};
use tokio::time::Instant;

use crate::clock::SteadyClock;

/// See the module. Before the server was first heard it shows the time of this machine.
pub(super) struct ServerClock {
    start: Instant,
    state: Mutex<Option<Heard>>,
}

struct Heard {
    steady: SteadyClock,
    /// What the server said last, and when by the monotonic clock.
    told: Duration,
    at: Duration,
}

impl ServerClock {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), state: Mutex::new(None) }
    }

    /// The server says that it is `time`.
    pub(super) fn hear(&self, time: Time) {
        let at = self.start.elapsed();
        let told = Duration::from_millis(time.as_millis());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let steady = state.as_ref().map_or_else(|| SteadyClock::new(at, told), |heard| heard.steady);
        *state = Some(Heard { steady, told, at });
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Time {
        let elapsed = self.start.elapsed();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            Some(heard) => heard.steady.read(elapsed, heard.told + elapsed.saturating_sub(heard.at)),
            None => crate::SystemClock.now(),
        }
    }
}
