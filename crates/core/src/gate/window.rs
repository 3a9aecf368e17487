//! Window: at most N starts in *any* stretch of the given length, not per calendar minute.
//!
//! Starts are kept as (moment, count). Up to [`MAX_ENTRIES`] starts they are exact; for larger limits moments are
//! rounded *up* to a grain of `span / MAX_ENTRIES`, which can only delay the next start (by under 1 % of the
//! span), never let one too many through. So the state of a window is small whatever its limit.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{NotUntil, Part, Reason};
use crate::error::{SpecError, positive};
use crate::time::{Span, Time};

const MAX_ENTRIES: u32 = 128;

/// At most `limit` starts in any `span`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSpec {
    limit: u32,
    span: Span,
}

impl WindowSpec {
    /// At most `limit` starts in any 60 seconds.
    pub fn per_minute(limit: u32) -> Result<Self, SpecError> {
        Ok(Self { limit: positive("rpm", limit)?, span: Span::from_secs(60) })
    }

    /// The limit.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// A part of it, if anything falls to that.
    pub(super) fn part(self, part: Part) -> Option<Self> {
        let limit = part.of(self.limit);
        (limit > 0).then_some(Self { limit, ..self })
    }

    fn grain_ms(&self) -> u64 {
        if self.limit <= MAX_ENTRIES { 1 } else { self.span.as_millis().div_ceil(u64::from(MAX_ENTRIES)) }
    }
}

/// The starts of the last window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Window {
    starts: VecDeque<(Time, u32)>,
}

impl Window {
    /// One in which `count` calls started at `now`.
    pub(super) fn used(spec: &WindowSpec, count: u32, now: Time) -> Self {
        let mut window = Self::default();
        (0..count).for_each(|_| window.take(spec, now));
        window
    }

    /// How many starts count at `now`.
    pub fn count(&self, spec: &WindowSpec, now: Time) -> u32 {
        self.live(spec, now).map(|(_, count)| count).sum()
    }

    /// Whether one more may start at `now`.
    pub fn admits(&self, spec: &WindowSpec, now: Time) -> Result<(), NotUntil> {
        if self.count(spec, now) < spec.limit {
            return Ok(());
        }
        let oldest = self.live(spec, now).next().map_or(now, |(at, _)| *at);
        Err(NotUntil::new(Reason::Window, oldest + spec.span))
    }

    /// Counts a start. A clock that steps back cannot make an old start look older.
    pub fn take(&mut self, spec: &WindowSpec, now: Time) {
        while self.starts.front().is_some_and(|(at, _)| *at + spec.span <= now) {
            self.starts.pop_front();
        }
        let rounded = now.as_millis().checked_next_multiple_of(spec.grain_ms());
        let at = rounded.map_or(Time::NEVER, Time::from_millis);
        match self.starts.back_mut() {
            Some((last, count)) if *last >= at => *count += 1,
            _ => self.starts.push_back((at, 1)),
        }
    }

    fn live<'a>(&'a self, spec: &'a WindowSpec, now: Time) -> impl Iterator<Item = &'a (Time, u32)> {
        self.starts.iter().skip_while(move |(at, _)| *at + spec.span <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    #[test]
    fn the_limit_holds_over_the_boundary_of_a_minute() {
        let spec = WindowSpec::per_minute(10).unwrap();
        let mut window = Window::default();
        for ms in (59_000..60_000).step_by(100) {
            assert_eq!(window.admits(&spec, at(ms)), Ok(()));
            window.take(&spec, at(ms));
        }
        assert_eq!(window.admits(&spec, at(60_001)), Err(NotUntil::new(Reason::Window, at(119_000))));
        assert_eq!(window.admits(&spec, at(119_000)), Ok(()));
        window.take(&spec, at(119_000));
        assert_eq!(window.admits(&spec, at(119_000)), Err(NotUntil::new(Reason::Window, at(119_100))));
    }

    #[test]
    fn large_limits_keep_a_small_state_and_lose_under_one_percent() {
        let spec = WindowSpec::per_minute(60_000).unwrap();
        let mut window = Window::default();
        let mut started = 0;
        for ms in 0..600_000 {
            for _ in 0..2 {
                if window.admits(&spec, at(ms)).is_ok() {
                    window.take(&spec, at(ms));
                    started += 1;
                }
            }
            assert!(window.starts.len() <= 130, "{}", window.starts.len());
        }
        assert!((594_000..=600_000 + 60_000).contains(&started), "{started}");
    }

    #[test]
    fn a_limit_of_zero_is_refused() {
        assert_eq!(WindowSpec::per_minute(0).unwrap_err().field, "rpm");
    }
}
