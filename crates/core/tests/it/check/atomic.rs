//! What is denied takes nothing: no token, no slot, no place in a window.

use eclusa_core::gate::GateView;
use eclusa_core::{Admission, Engine, Time};

use super::{Checker, Step};
use crate::calls::{Call, Reply};
use crate::ledger::{Ledger, Verdict, ensure};
use crate::rules::SCOPED;

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    gates: Vec<(u32, Vec<GateView>)>,
    buckets: Vec<i64>,
    /// Everything except full scoped buckets, which are equal to none.
    records: Vec<Vec<u8>>,
}

const BUCKET_RECORD: u8 = 10;

fn look(engine: &Engine, now: Time, whole: bool) -> Seen {
    let upstreams = engine.upstreams(now).into_iter().map(|view| (view.in_flight, view.gates));
    let lanes = engine.lanes(now).into_iter().map(|view| (0, view.gates));
    let full = |capacity: u32| i64::from(capacity) * 1_000_000;
    let left = |key: &str| engine.bucket(key, now).map(eclusa_core::Tokens::as_micro);
    let mut records = if whole { engine.snapshot().unwrap() } else { Vec::new() };
    records.retain(|record| record[0] != BUCKET_RECORD);
    Seen {
        gates: upstreams.chain(lanes).collect(),
        buckets: SCOPED.iter().map(|(key, plan)| left(key).unwrap_or_else(|| full(plan.0))).collect(),
        records,
    }
}

#[derive(Default)]
pub(crate) struct AllOrNothing {
    before: Option<Seen>,
}

impl Checker for AllOrNothing {
    fn before(&mut self, call: &Call, ledger: &Ledger, engine: &Engine, now: Time) {
        let asks = matches!(call, Call::Admit(_) | Call::Dispatch(_)) && !ledger.has_expired_leases(now);
        self.before = asks.then(|| look(engine, now, matches!(call, Call::Admit(_))));
    }

    fn after(&mut self, step: &Step<'_>) -> Verdict {
        let Some(before) = self.before.take() else { return Ok(()) };
        let (denied, whole) = match step.reply {
            Reply::Admit(answer) => (!matches!(answer.admission, Admission::Granted { .. }), true),
            Reply::Dispatch(given) => (given.grants.is_empty(), false),
            _ => (false, false),
        };
        let after = look(step.engine, step.now, whole);
        ensure!(!denied || before == after, "a denied {:?} took something: {before:?}, {after:?}", step.call);
        Ok(())
    }
}
