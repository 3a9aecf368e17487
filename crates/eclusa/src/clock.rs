//! The only place that reads the time.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eclusa_core::{Clock, Time};

/// How much the clock may deviate from the monotonic clock to follow the wall clock, in parts per million: half a
/// millisecond per second, as `adjtime` does.
pub(crate) const MAX_SLEW_PPM: i64 = 500;

/// How often the wall clock is read.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Starts at the wall clock and then follows the monotonic clock. A step of the wall clock does not make it jump: it
/// only runs faster or slower, by at most [`MAX_SLEW_PPM`], until both agree again. So windows, leases and jobs last as
/// long as they should. It stops while the machine is suspended, as the monotonic clock does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SteadyClock {
    /// The monotonic time of the last adjustment.
    anchor: Duration,
    /// The time shown then, in nanoseconds since the Unix epoch.
    shown_ns: i64,
    /// How far the wall clock was ahead then, in nanoseconds.
    ahead_ns: i64,
}

impl SteadyClock {
    /// A clock that shows the wall clock's time.
    pub(crate) fn new(monotonic: Duration, wall: Duration) -> Self {
        Self { anchor: monotonic, shown_ns: nanos(wall), ahead_ns: 0 }
    }

    /// The time, given the current readings of both clocks: the monotonic one since any fixed moment, the wall clock
    /// since the Unix epoch.
    pub(crate) fn read(&mut self, monotonic: Duration, wall: Duration) -> Time {
        let elapsed = monotonic.saturating_sub(self.anchor);
        let elapsed_ns = nanos(elapsed);
        let most = elapsed_ns.saturating_mul(MAX_SLEW_PPM) / 1_000_000;
        let now_ns =
            self.shown_ns.saturating_add(elapsed_ns).saturating_add(self.ahead_ns.clamp(-most, most));
        if elapsed >= FOLLOW_EVERY {
            *self =
                Self { anchor: monotonic, shown_ns: now_ns, ahead_ns: nanos(wall).saturating_sub(now_ns) };
        }
        Time::from_millis(now_ns.unsigned_abs() / 1_000_000)
    }
}

/// Converts to nanoseconds, which fit until the year 2262.
fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The clock of this process. All values of this type share one `SteadyClock`.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "all other code gets the time from here")]
    fn now(&self) -> Time {
        static SHARED: OnceLock<(Instant, Mutex<SteadyClock>)> = OnceLock::new();
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (start, steady) =
            SHARED.get_or_init(|| (Instant::now(), Mutex::new(SteadyClock::new(Duration::ZERO, wall()))));
        // Read under the lock, so that later readings are never earlier.
        let mut steady = steady.lock().unwrap_or_else(PoisonError::into_inner);
        steady.read(start.elapsed(), wall())
    }
}

/// The wall clock in nanoseconds since the Unix epoch, for spans, which are compared with those of other programs.
#[expect(clippy::disallowed_methods, reason = "no rule depends on it")]
pub(crate) fn unix_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// The virtual time of the runtime since a moment.
#[cfg(test)]
pub(crate) struct VirtualClock(pub(crate) tokio::time::Instant);

#[cfg(test)]
impl Clock for VirtualClock {
    fn now(&self) -> Time {
        Time::from_millis(1_700_000_000_000) + self.0.elapsed().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const WALL: Duration = Duration::from_secs(1_700_000_000);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// What the clock shows up to `after`, in milliseconds since its start, if the wall clock is changed by `step` and
    /// both are read every `every`.
    fn shown(every: Duration, after: Duration, step: impl Fn(Duration) -> Duration) -> Vec<u64> {
        let mut clock = SteadyClock::new(secs(5), WALL);
        let mut shown = Vec::new();
        let mut passed = Duration::ZERO;
        while passed <= after {
            let time = clock.read(secs(5) + passed, step(WALL + passed));
            shown.push(time.as_millis() - 1_700_000_000_000);
            passed += every;
        }
        shown
    }

    #[test]
    fn it_follows_a_correct_wall_clock() {
        assert_eq!(shown(secs(1), secs(5), |wall| wall), [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
    }

    #[test]
    fn a_step_of_an_hour_only_makes_it_run_a_little_faster_or_slower() {
        for every in [Duration::from_micros(700), Duration::from_millis(10), secs(1), secs(10)] {
            let ahead = shown(every, secs(100), |wall| wall + HOUR);
            let behind = shown(every, secs(100), |wall| wall.saturating_sub(HOUR));
            assert!(ahead.is_sorted() && behind.is_sorted(), "it ran backwards, read every {every:?}");
            let (ahead, behind) = (ahead.last().unwrap(), behind.last().unwrap());
            assert!((100_030..=100_050).contains(ahead), "{ahead} ms, read every {every:?}");
            assert!((99_949..=99_970).contains(behind), "{behind} ms, read every {every:?}");
        }
    }

    #[test]
    fn a_small_difference_is_corrected_without_overshooting() {
        let late = Duration::from_millis(3);
        for (step, end) in [(true, 20_003), (false, 19_997)] {
            let moved = |wall: Duration| if step { wall + late } else { wall.saturating_sub(late) };
            let shown = shown(Duration::from_millis(100), secs(20), moved);
            assert_eq!(shown.last(), Some(&end));
            let slowest = shown.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
            assert!(slowest >= 99, "{slowest} ms in 100");
        }
    }

    #[test]
    fn a_clock_that_is_not_read_for_a_day_is_right_afterwards() {
        let day = 24 * HOUR;
        let mut clock = SteadyClock::new(Duration::ZERO, WALL);
        assert_eq!(clock.read(day, WALL + day), Time::from_millis(1_700_086_400_000));
    }

    #[test]
    fn an_earlier_reading_goes_no_further_back_than_the_anchor() {
        let mut clock = SteadyClock::new(secs(5), WALL);
        clock.read(secs(15), WALL + secs(10));
        assert_eq!(clock.read(secs(10), WALL), Time::from_millis(1_700_000_010_000));
    }

    #[test]
    fn every_value_shows_the_same_time() {
        let (first, second) = (SystemClock.now(), SystemClock.now());
        assert!(second >= first && second.since(first).as_millis() < 60_000);
    }
}
