//! What happened at the gates of an upstream, for the log: each change once, from the engine that decided it.

use super::Gates;
use crate::ids::Name;
use crate::time::{Span, Time};

/// A rest that grows by less than this is not reported: calls that ran at the same time also end at about the same
/// time.
const PROLONGED: Span = Span::from_secs(1);

/// One change at the gates of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateChange {
    /// The upstream, or one of its keys.
    pub upstream: Name,
    /// The policy whose bucket changed; `None` if the change concerns the whole upstream.
    pub policy: Option<Name>,
    /// What changed.
    pub kind: GateChangeKind,
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateChangeKind {
    /// The breaker opened after this many failures in a row.
    BreakerOpened {
        /// Failures in a row.
        failures: u32,
        /// How long it stays open.
        lasts: Span,
    },
    /// The breaker let the first probe through.
    BreakerHalfOpened,
    /// The breaker closed.
    BreakerClosed,
    /// A cooldown began, or was prolonged, after this many errors in a row.
    CooldownBegan {
        /// Errors in a row.
        errors: u32,
        /// How long it lasts from now on.
        lasts: Span,
    },
    /// A cooldown ended before its time.
    CooldownEnded,
    /// The upstream asked to stop calling, by Retry-After or `RateLimit`.
    Closed {
        /// For how long from now on.
        lasts: Span,
    },
    /// That ended early.
    Reopened,
}

/// What [`Gates::changes_since`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GateMarks {
    opened: u64,
    half_opened: u64,
    closed: u64,
    hot_until: Time,
    closed_until: Time,
}

impl Gates {
    pub(crate) const fn marks(&self) -> GateMarks {
        GateMarks {
            opened: self.breaker.opened,
            half_opened: self.breaker.half_opened,
            closed: self.breaker.closed,
            hot_until: self.cooldown.hot_until,
            closed_until: self.closed_until,
        }
    }

    /// What one step changed, in order. A breaker that healed without a probe closes before it counts anything else.
    pub(crate) fn changes_since(&self, before: GateMarks, now: Time) -> Vec<GateChangeKind> {
        let after = self.marks();
        let mut changes = Vec::new();
        if after.closed != before.closed {
            changes.push(GateChangeKind::BreakerClosed);
        }
        if after.half_opened != before.half_opened {
            changes.push(GateChangeKind::BreakerHalfOpened);
        }
        if after.opened != before.opened {
            let lasts = self.breaker.open_until.map_or(Span::ZERO, |until| until.since(now));
            changes.push(GateChangeKind::BreakerOpened { failures: self.breaker.failures, lasts });
        }
        if begins(before.hot_until, after.hot_until, now) {
            let (errors, lasts) = (self.cooldown.errors, after.hot_until.since(now));
            changes.push(GateChangeKind::CooldownBegan { errors, lasts });
        } else if before.hot_until > now && after.hot_until <= now {
            changes.push(GateChangeKind::CooldownEnded);
        }
        if begins(before.closed_until, after.closed_until, now) {
            changes.push(GateChangeKind::Closed { lasts: after.closed_until.since(now) });
        } else if before.closed_until > now && after.closed_until <= now {
            changes.push(GateChangeKind::Reopened);
        }
        changes
    }
}

/// Whether a rest until `after` is worth reporting at `now`, after a rest until `before` was reported.
pub(crate) fn begins(before: Time, after: Time, now: Time) -> bool {
    after > now && after > before && (before <= now || after.since(before) >= PROLONGED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_reported_when_it_begins_and_when_it_grows_by_a_second() {
        let at = |ms: u64| Time::from_millis(1_000_000 + ms);
        assert!(begins(Time::default(), at(10), at(0)));
        assert!(begins(at(0), at(10), at(0)), "the one before is over");
        assert!(begins(at(10), at(1_010), at(0)));
        assert!(!begins(at(10), at(1_009), at(0)), "calls that ended together");
        assert!(!begins(at(10), at(10), at(0)) && !begins(at(10), at(5), at(0)));
        assert!(!begins(Time::default(), at(0), at(0)), "it is over already");
    }
}
