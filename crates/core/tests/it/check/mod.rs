//! One checker per guarantee. Each works only from calls, answers and views.

mod atomic;
mod breaker;
mod buckets;
mod conservation;
mod equals;
mod expiry;
mod fence;
mod history;
mod order;
mod priority;
pub(crate) mod restart;
mod slots;
mod wake;
mod why;
mod window;

use eclusa_core::{Engine, Time};

use crate::calls::{Call, Reply};
use crate::ledger::{Fact, Ledger, Verdict};
use crate::plan::{Op, RulePlan};

/// One step.
pub(crate) struct Step<'a> {
    pub(crate) call: &'a Call,
    pub(crate) reply: &'a Reply,
    /// The resulting facts, in order.
    pub(crate) facts: &'a [Fact],
    pub(crate) ledger: &'a Ledger,
    pub(crate) engine: &'a Engine,
    pub(crate) now: Time,
}

pub(crate) trait Checker {
    /// Inspects the state before a call.
    fn before(&mut self, _call: &Call, _ledger: &Ledger, _engine: &Engine, _now: Time) {}
    /// Checks a call.
    fn after(&mut self, step: &Step<'_>) -> Verdict;
    /// Does what only this checker needs; `engine` may be asked to save.
    fn op(&mut self, _op: &Op, _engine: &mut Engine, _now: Time) -> Verdict {
        Ok(())
    }
}

/// All checkers. `open` rules have no gates, so that the exact order is predictable.
pub(crate) fn all(plan: &RulePlan, open: bool) -> Vec<Box<dyn Checker>> {
    let mut checkers: Vec<Box<dyn Checker>> = vec![
        Box::new(conservation::Conservation),
        Box::new(priority::Priority),
        Box::new(window::AnyWindow::new(plan)),
        Box::new(buckets::NeverMint::new(plan)),
        Box::new(slots::Slots),
        Box::new(expiry::NoStartAfterExpiry),
        Box::new(fence::Fences::default()),
        Box::new(atomic::AllOrNothing::default()),
        Box::new(breaker::Breakers::new(plan)),
        Box::new(wake::WakeUps::default()),
        Box::new(why::Whys),
        Box::new(equals::Equals),
        Box::new(history::Sums::default()),
        Box::new(restart::Restarts::new(plan)),
    ];
    if open {
        checkers.push(Box::new(order::ExactOrder::new(plan)));
    }
    checkers
}
