//! Verbs under a lease that is not open change nothing, including repeated ones.

use eclusa_core::{Advanced, Engine, LeaseId, Settled, Time};

use super::{Checker, Step};
use crate::calls::{Call, Reply};
use crate::ledger::{Ledger, Verdict, ensure};

#[derive(Default)]
pub(crate) struct Fences {
    /// The state before a call that must not change it.
    before: Option<Vec<Vec<u8>>>,
}

fn is_stale(call: &Call, ledger: &Ledger) -> bool {
    let out = |lease: &LeaseId| ledger.leases.get(lease);
    match call {
        Call::Advance(ask) => out(&ask.lease).is_none_or(|lease| lease.job.is_none() || lease.awaiting),
        Call::Extend(leases, _) => leases.iter().all(|lease| out(lease).is_none()),
        Call::Settle(settlements) => settlements.iter().all(|settlement| out(&settlement.lease).is_none()),
        _ => false,
    }
}

/// The leases to settle.
fn asked(call: &Call) -> Vec<LeaseId> {
    let Call::Settle(settlements) = call else { return Vec::new() };
    settlements.iter().map(|settlement| settlement.lease).collect()
}

impl Checker for Fences {
    fn before(&mut self, call: &Call, ledger: &Ledger, engine: &Engine, _now: Time) {
        self.before = is_stale(call, ledger).then(|| engine.snapshot().unwrap());
    }

    fn after(&mut self, step: &Step<'_>) -> Verdict {
        let Some(before) = self.before.take() else { return Ok(()) };
        let was_stale = match step.reply {
            Reply::Advance(advanced) => *advanced == Advanced::Stale,
            Reply::Extend(lives) => lives.iter().all(|lives| !lives),
            Reply::Settle(answer) => answer.leases.iter().zip(asked(step.call)).all(|(settled, lease)| {
                *settled == Settled::Stale || step.ledger.settled_before(lease) == Some(*settled)
            }),
            _ => false,
        };
        ensure!(was_stale, "{:?} was not stale: {:?}", step.call, step.reply);
        ensure!(before == step.engine.snapshot().unwrap(), "a stale {:?} changed something", step.call);
        Ok(())
    }
}
