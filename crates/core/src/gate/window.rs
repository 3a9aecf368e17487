//! Window: at most N arrivals in *any* 60 seconds as the upstream counts them, not per calendar minute.
//!
//! A request arrives at some time between its start and its answer. So a call holds a place from its start on, and the
//! place comes free 60 s after the answer or the end of the lease: two calls that held the same place arrived at least
//! 60 s apart.
//!
//! Up to a limit of [`EXACT`], places come free to the millisecond; with larger limits the times are rounded *up*,
//! which can only delay a start (by under 1 % of the span). So the state of a window is small for every limit.

use super::tally::Tally;
use super::{NotUntil, Reason, Share};
use crate::error::{SpecError, positive};
use crate::time::{Span, Time};

const EXACT: u32 = 128;

/// At most `limit` arrivals in any `span`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpec {
    limit: u32,
    span: Span,
}

impl WindowSpec {
    /// The rule assumed for calls that end while the rules are unknown, so that the window is right when they are known
    /// again.
    pub(super) const UNKNOWN: WindowSpec = WindowSpec { limit: EXACT, span: Span::from_secs(60) };

    /// At most `limit` arrivals in any 60 seconds.
    pub fn per_minute(limit: u32) -> Result<Self, SpecError> {
        Ok(Self { limit: positive("rpm", limit)?, span: Span::from_secs(60) })
    }

    /// The limit.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The length of the window.
    pub(super) const fn span(&self) -> Span {
        self.span
    }

    /// A share of it; `None` if the share is zero.
    pub(super) fn share(self, share: Share) -> Option<Self> {
        let limit = share.of(self.limit);
        (limit > 0).then_some(Self { limit, ..self })
    }

    /// At most [`EXACT`] entries: a window of 60 s touches one grain more than fit into it.
    fn grain_ms(&self) -> u64 {
        if self.limit <= EXACT { 1 } else { self.span.as_millis().div_ceil(u64::from(EXACT - 2)) }
    }
}

/// The places that are taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Window {
    /// Calls that began and were not answered yet. Not stored: rebuilt from the leases at every start.
    in_flight: u32,
    /// Places of calls that were answered, until they come free.
    answered: Tally,
}

/// Only the answered calls of a window are stored.
impl From<Tally> for Window {
    fn from(answered: Tally) -> Self {
        Self { in_flight: 0, answered }
    }
}

impl Window {
    /// Places of calls that were answered.
    pub(crate) const fn answered(&self) -> &Tally {
        &self.answered
    }

    /// A window with `count` places taken by calls that will have ended by `ended`.
    pub(super) fn used(spec: &WindowSpec, count: u32, ended: Time, now: Time) -> Self {
        let mut window = Self::default();
        window.answered.add(count, ended + spec.span, spec.grain_ms(), now);
        window
    }

    /// How many places are taken at `now`.
    pub fn count(&self, now: Time) -> u32 {
        self.in_flight.saturating_add(self.answered.count(now))
    }

    /// Whether one more may start at `now`. `lease_ends_at` is when the first lease of the running calls expires.
    pub fn admits(&self, spec: &WindowSpec, now: Time, lease_ends_at: Time) -> Result<(), NotUntil> {
        let used = self.count(now);
        if used < spec.limit {
            return Ok(());
        }
        let over = self.answered.over_at(used - spec.limit + 1, now);
        Err(NotUntil::new(Reason::Window, over.unwrap_or(lease_ends_at.max(now) + spec.span)))
    }

    /// Takes a place.
    pub fn take(&mut self) {
        self.in_flight += 1;
    }

    /// Releases the place of a call that was never sent.
    pub fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Keeps the running calls of `old`; only answered ones are stored.
    pub(super) fn restore(&mut self, old: &Window) {
        self.in_flight = old.in_flight;
    }

    /// The call was answered, or its lease ended, at `ended`: its place comes free one span later.
    pub fn answer(&mut self, spec: &WindowSpec, ended: Time, now: Time) {
        self.release();
        self.answered.add(1, ended + spec.span, spec.grain_ms(), now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEASE: Span = Span::from_secs(10);

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    fn admits(window: &Window, spec: &WindowSpec, now: Time) -> Result<(), NotUntil> {
        window.admits(spec, now, now + LEASE)
    }

    fn until(ms: u64) -> Result<(), NotUntil> {
        Err(NotUntil::new(Reason::Window, at(ms)))
    }

    #[test]
    fn the_limit_holds_over_the_boundary_of_a_minute() {
        let spec = WindowSpec::per_minute(10).unwrap();
        let mut window = Window::default();
        for ms in (59_000..60_000).step_by(100) {
            assert_eq!(admits(&window, &spec, at(ms)), Ok(()));
            window.take();
            window.answer(&spec, at(ms), at(ms));
        }
        assert_eq!(admits(&window, &spec, at(60_001)), until(119_000));
        assert_eq!(admits(&window, &spec, at(119_000)), Ok(()));
        window.take();
        assert_eq!(admits(&window, &spec, at(119_000)), until(119_100));
    }

    #[test]
    fn a_place_comes_free_sixty_seconds_after_the_answer_and_at_once_if_nothing_was_sent() {
        let spec = WindowSpec::per_minute(2).unwrap();
        let mut window = Window::default();
        window.take();
        window.take();
        assert_eq!(admits(&window, &spec, at(5_000)), until(5_000 + 10_000 + 60_000), "both are in flight");
        window.answer(&spec, at(7_000), at(7_000));
        assert_eq!(admits(&window, &spec, at(7_000)), until(67_000));
        window.release();
        assert_eq!((admits(&window, &spec, at(7_000)), window.count(at(7_000))), (Ok(()), 1));
    }

    #[test]
    fn with_too_many_places_taken_a_window_opens_when_enough_came_free() {
        let spec = WindowSpec::per_minute(2).unwrap();
        let mut window = Window::default();
        (0..4).for_each(|_| window.take());
        (0..3).for_each(|n| window.answer(&spec, at(n * 1_000), at(2_000)));
        assert_eq!(
            admits(&window, &spec, at(2_000)),
            until(62_000),
            "one is in flight, so all three must go"
        );
        window.take();
        assert_eq!(admits(&window, &spec, at(2_000)), until(72_000));
    }

    #[test]
    fn large_limits_keep_a_small_state_and_lose_under_one_percent() {
        let spec = WindowSpec::per_minute(60_000).unwrap();
        let mut window = Window::default();
        let mut started = 0;
        for ms in 0..600_000 {
            for _ in 0..2 {
                if admits(&window, &spec, at(ms)).is_ok() {
                    window.take();
                    window.answer(&spec, at(ms), at(ms));
                    started += 1;
                }
            }
            assert!(window.answered.len() <= 128, "{}", window.answered.len());
        }
        assert!((594_000..=600_000 + 60_000).contains(&started), "{started}");
    }

    #[test]
    fn a_limit_of_zero_is_refused() {
        assert_eq!(WindowSpec::per_minute(0).unwrap_err().field, "rpm");
    }

    /// A planned call: how long after the previous one it is tried, how long it takes, and where between its start and
    /// its answer the upstream sees it, in 256ths.
    type Plan = (u64, u64, u8);

    proptest! {
        /// An upstream that counts arrivals in an exact sliding minute never sees more than the limit, and the time in
        /// a denial is never too late.
        #[test]
        fn the_upstream_never_counts_more_than_the_limit(
            limit in prop_oneof![1..20_u32, 120..300_u32],
            calls in prop::collection::vec((0..4_000_u64, 0..20_000_u64, any::<u8>()) as (_, _, _), 1..600),
        ) {
            let spec = WindowSpec::per_minute(limit).unwrap();
            let calls: Vec<Plan> = calls;
            let (mut window, mut now) = (Window::default(), 0);
            let mut under_way: Vec<u64> = Vec::new();
            let mut arrivals: Vec<u64> = Vec::new();
            for (gap, takes, seen) in calls {
                now += gap;
                let answer = |window: &mut Window, under_way: &mut Vec<u64>, now: u64| {
                    under_way.sort_unstable();
                    while let Some(end) = under_way.first().copied().filter(|end| *end <= now) {
                        under_way.remove(0);
                        window.answer(&spec, at(end), at(end));
                    }
                };
                answer(&mut window, &mut under_way, now);
                while let Err(denial) = window.admits(&spec, at(now), at(under_way.first().copied().unwrap_or(now))) {
                    let then = denial.at.since(at(0)).as_millis();
                    prop_assert!(then > now, "asked to come back at once");
                    answer(&mut window, &mut under_way, then - 1);
                    let early = window.admits(&spec, at(then - 1), at(then));
                    prop_assert!(early.is_err(), "it was open before {then}");
                    now = then;
                    answer(&mut window, &mut under_way, now);
                }
                window.take();
                under_way.push(now + takes);
                arrivals.push(now + takes * u64::from(seen) / 255);
            }
            arrivals.sort_unstable();
            for (n, last) in arrivals.iter().enumerate().skip(limit as usize) {
                let first = arrivals[n - limit as usize];
                prop_assert!(last - first >= 60_000, "{limit} + 1 arrivals between {first} and {last}");
            }
        }
    }
}
