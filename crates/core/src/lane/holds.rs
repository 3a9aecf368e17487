//! What held a lane, or one of its lines: the denials that dispatches saw, so that a job that starts can tell why it had waited.
//!
//! Only a dispatch looks, and it looks anyway, so waiting jobs cost nothing. What denies a single line (a scoped bucket or a limit
//! of its tenant, where it is parked) is remembered by the line, because others pass it. That is not stored: after a restart
//! lines are parked anew, and their holds begin then. A brief hold does not replace the memory of a long one.

use crate::gate::Reason;
use crate::table::UpstreamIx;
use crate::time::{Span, Time};
use crate::timeline::Waited;

/// Shorter holds are forgotten, and shorter gaps between two holds for the same reason do not count.
const BRIEF: Span = Span::from_secs(1);

/// What denied the most urgent job of a lane, or of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HoldCause {
    pub(crate) reason: Reason,
    /// The number of the upstream that denied; `None` if the lane did.
    pub(crate) upstream: Option<u32>,
}

/// A hold of a lane or line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PastHold {
    pub(crate) cause: HoldCause,
    pub(crate) since: Time,
    /// `None` while it lasts.
    pub(crate) until: Option<Time>,
}

/// The cause of a paused lane's hold.
pub(crate) const PAUSED: HoldCause = HoldCause { reason: Reason::Paused, upstream: None };

impl PastHold {
    fn end(&self, now: Time) -> Time {
        self.until.unwrap_or(now)
    }

    fn is_brief(&self, now: Time) -> bool {
        self.end(now).since(self.since) < BRIEF
    }
}

/// The newest hold of a lane or line, and the one before it that was not brief.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Holds {
    pub(crate) newest: Option<PastHold>,
    pub(crate) before: Option<PastHold>,
}

impl Holds {
    /// Notes what a dispatch saw. Returns whether that changed anything. A hold that returns after a moment has never ended: a
    /// dispatch that starts as many jobs as it may does not look further.
    pub(crate) fn see(&mut self, cause: Option<HoldCause>, now: Time) -> bool {
        let before = *self;
        match (&mut self.newest, cause) {
            (None, None) => {}
            (Some(newest), None) => newest.until = Some(newest.end(now)),
            (Some(newest), Some(cause)) if newest.cause == cause && now.since(newest.end(now)) < BRIEF => {
                newest.until = None;
            }
            (newest, Some(cause)) => {
                let ended = newest.map(|newest| PastHold { until: Some(newest.end(now)), ..newest });
                self.before = ended.filter(|ended| !ended.is_brief(now)).or(self.before);
                *newest = Some(PastHold { cause, since: now, until: None });
            }
        }
        *self != before
    }

    /// Notes that the lane is paused or resumed. Returns whether that changed anything.
    pub(crate) fn pause(&mut self, paused: bool, now: Time) -> bool {
        match (paused, self.paused_since()) {
            (true, None) => self.see(Some(PAUSED), now),
            (false, Some(_)) => self.see(None, now),
            _ => false,
        }
    }

    /// Since when the lane has been paused, if it is.
    pub(crate) fn paused_since(&self) -> Option<Time> {
        self.newest
            .filter(|newest| newest.cause == PAUSED && newest.until.is_none())
            .map(|newest| newest.since)
    }

    /// What held a job that has been in line since `from` and may use the upstreams `at`; `None` if it was nothing, or only
    /// briefly.
    pub(crate) fn waited(&self, from: Time, at: &[UpstreamIx], now: Time) -> Option<Box<Waited>> {
        let hold = self.newest.filter(|newest| !newest.is_brief(now)).or(self.before)?;
        let concerns = hold.cause.upstream.is_none_or(|upstream| at.contains(&UpstreamIx(upstream)));
        let (since, until) = (hold.since.max(from), hold.end(now));
        (concerns && until.since(since) >= BRIEF)
            .then(|| Box::new(Waited { reason: hold.cause.reason, since, until }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    const WINDOW: HoldCause = HoldCause { reason: Reason::Window, upstream: Some(1) };
    const SLOTS: HoldCause = HoldCause { reason: Reason::Concurrency, upstream: None };

    fn waited(holds: &Holds, from: u64, now: u64) -> Option<(Reason, Time, Time)> {
        holds
            .waited(at(from), &[UpstreamIx(1)], at(now))
            .map(|waited| (waited.reason, waited.since, waited.until))
    }

    #[test]
    fn a_brief_hold_does_not_replace_a_long_one() {
        let mut holds = Holds::default();
        assert!(holds.see(Some(WINDOW), at(0)));
        assert!(!holds.see(Some(WINDOW), at(500)), "nothing changed");
        assert!(holds.see(Some(SLOTS), at(60_000)));
        assert_eq!(waited(&holds, 0, 60_100), Some((Reason::Window, at(0), at(60_000))));
        assert_eq!(waited(&holds, 0, 61_500), Some((Reason::Concurrency, at(60_000), at(61_500))));
        assert_eq!(waited(&holds, 59_500, 60_100), None, "it waited for half a second");
    }

    #[test]
    fn a_hold_goes_on_while_jobs_trickle_through_and_ends_when_they_flow() {
        let mut holds = Holds::default();
        for ms in (0..10_000).step_by(100) {
            holds.see(Some(WINDOW), at(ms));
            holds.see(None, at(ms + 90));
        }
        assert_eq!(waited(&holds, 0, 10_050), Some((Reason::Window, at(0), at(9_990))));
        holds.see(Some(WINDOW), at(20_000));
        assert_eq!(waited(&holds, 0, 20_100), Some((Reason::Window, at(0), at(9_990))), "another hold");
    }
}
