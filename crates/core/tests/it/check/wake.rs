//! `next` is never too late, and before it the same dispatch returns nothing.

use std::collections::BTreeMap;

use eclusa_core::{Engine, Time};

use super::{Checker, Step};
use crate::calls::{Call, Reply};
use crate::ledger::{Verdict, ensure};
use crate::plan::Op;
use crate::rules::lane_number;

/// For each lane, until when nothing starts if nothing else happens.
#[derive(Default)]
pub(crate) struct WakeUps {
    quiet_until: BTreeMap<usize, Time>,
}

impl Checker for WakeUps {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        let (Call::Dispatch(ask), Reply::Dispatch(given)) = (step.call, step.reply) else {
            self.quiet_until.clear();
            return Ok(());
        };
        let lane = lane_number(&ask.lane);
        let quiet = self.quiet_until.get(&lane).is_some_and(|until| step.now < *until);
        ensure!(!quiet || given.grants.is_empty(), "grants before the wake-up time: {given:?}");
        if !given.grants.is_empty() || !given.ended.is_empty() {
            self.quiet_until.clear();
        }
        if given.grants.is_empty() && ask.max > 0 && !step.ledger.paused[lane] {
            ensure!(given.next > step.now, "nothing to give, but asked to come back at once: {given:?}");
            self.quiet_until.insert(lane, given.next);
        }
        Ok(())
    }

    fn op(&mut self, op: &Op, _engine: &mut Engine, _now: Time) -> Verdict {
        if matches!(op, Op::Reopen) {
            // Which lines are parked is not in the journal: they are checked once more.
            self.quiet_until.clear();
        }
        Ok(())
    }
}
