//! Cooldown: after consecutive errors an upstream rests, longer each time.

use super::{CallResult, NotUntil, Reason};
use crate::error::{SpecError, positive};
use crate::time::{Span, Time};

/// Errors older than this are forgotten.
const FORGET_AFTER: Span = Span::from_secs(600);

/// How long to rest after the first, second, … error in a row; the last rest applies to all further errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CooldownSpec(Box<[Span]>);

impl CooldownSpec {
    /// Creates a cooldown from its rests.
    pub fn new(ladder: &[Span]) -> Result<Self, SpecError> {
        if ladder.is_empty() {
            return Err(SpecError::new(
                "cooldown",
                "needs at least one duration, such as [\"10s\", \"30s\"]",
            ));
        }
        for rest in ladder {
            positive("cooldown", *rest)?;
        }
        Ok(Self(ladder.into()))
    }

    pub(crate) fn ladder(&self) -> &[Span] {
        &self.0
    }
}

/// The errors so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cooldown {
    pub(crate) errors: u32,
    pub(crate) last_error: Time,
    pub(crate) hot_until: Time,
}

impl Cooldown {
    /// A cooldown that rests until `until`.
    pub(super) fn hot_until(until: Time) -> Self {
        Self { hot_until: until, ..Self::default() }
    }

    /// Errors in a row.
    pub const fn errors(&self) -> u32 {
        self.errors
    }

    /// Whether the rest is over.
    pub fn admits(&self, now: Time) -> Result<(), NotUntil> {
        if self.hot_until > now { Err(NotUntil::new(Reason::Cooldown, self.hot_until)) } else { Ok(()) }
    }

    /// Counts the result of a call that ended at `now`, which may be in the past: a success does not cancel a later
    /// error.
    pub fn report(&mut self, spec: &CooldownSpec, result: CallResult, now: Time) {
        if matches!(result, CallResult::Success | CallResult::Rejected) {
            if now >= self.last_error {
                *self = Self::default();
            }
        } else if result.is_error() {
            if now.since(self.last_error) >= FORGET_AFTER {
                self.errors = 0;
            }
            self.errors = self.errors.saturating_add(1);
            self.last_error = self.last_error.max(now);
            let step = (self.errors as usize).min(spec.0.len()) - 1;
            self.hot_until = self.hot_until.max(now + spec.0[step]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_millis((10_000 + secs) * 1_000)
    }

    fn ladder() -> CooldownSpec {
        CooldownSpec::new(&[10, 30, 60, 120].map(Span::from_secs)).unwrap()
    }

    #[test]
    fn the_ladder_is_10_30_60_120_seconds_and_stays_there() {
        let mut cooldown = Cooldown::default();
        let mut now = at(0);
        for rest in [10, 30, 60, 120, 120, 120] {
            cooldown.report(&ladder(), CallResult::Throttled, now);
            let open = now + Span::from_secs(rest);
            assert_eq!(cooldown.admits(now), Err(NotUntil::new(Reason::Cooldown, open)));
            assert_eq!(cooldown.admits(open), Ok(()));
            now = open;
        }
    }

    #[test]
    fn success_resets_and_old_errors_are_forgotten() {
        let mut cooldown = Cooldown::default();
        cooldown.report(&ladder(), CallResult::Failed, at(0));
        cooldown.report(&ladder(), CallResult::Failed, at(20));
        cooldown.report(&ladder(), CallResult::Success, at(50));
        assert_eq!((cooldown.errors(), cooldown.admits(at(50))), (0, Ok(())));
        cooldown.report(&ladder(), CallResult::TimedOut, at(60));
        cooldown.report(&ladder(), CallResult::NotSent, at(61));
        cooldown.report(&ladder(), CallResult::TimedOut, at(660));
        assert_eq!(cooldown.errors(), 1);
    }

    #[test]
    fn an_empty_ladder_is_refused() {
        assert_eq!(CooldownSpec::new(&[]).unwrap_err().field, "cooldown");
        assert_eq!(CooldownSpec::new(&[Span::ZERO]).unwrap_err().field, "cooldown");
    }
}
