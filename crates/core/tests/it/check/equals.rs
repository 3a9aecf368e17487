//! A job that waits for the answer of an equal job gets one: there is always an equal job that runs or is in line.

use std::collections::BTreeMap;

use eclusa_core::Status;
use eclusa_core::gate::Reason;

use super::{Checker, Step};
use crate::ledger::{State, Verdict, ensure};

/// The jobs with one key.
#[derive(Debug, Default)]
struct Equal {
    processing: usize,
    /// Jobs shown as waiting for an equal one.
    coalesced: usize,
    /// Jobs shown as waiting in a line for anything else.
    in_line: usize,
}

pub(crate) struct Equals;

impl Checker for Equals {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        let mut by_key: BTreeMap<(usize, &str), Equal> = BTreeMap::new();
        for (id, job) in &step.ledger.jobs {
            let Some(key) = job.cache_key.as_deref() else { continue };
            let equal = by_key.entry((job.lane, key)).or_default();
            match job.state {
                State::Processing(_) => equal.processing += 1,
                State::Queued => {
                    let why = step.engine.why(*id, step.now).unwrap();
                    ensure!(why.status == Status::Queued, "{id:?} is {why:?}");
                    let coalesced = why.reason == Some(Reason::Coalesced);
                    equal.coalesced += usize::from(coalesced);
                    equal.in_line += usize::from(!coalesced);
                }
                State::Pending(_) | State::Ended(_) => {}
            }
        }
        for (key, equal) in by_key {
            ensure!(equal.processing < 2, "{key:?} is sent more than once at a time: {equal:?}");
            let comes = equal.processing == 1 || equal.in_line > 0;
            ensure!(comes || equal.coalesced == 0, "{key:?} waits for nobody: {equal:?}");
            let informed = equal.processing == 0 || equal.in_line == 0;
            ensure!(informed, "{key:?} does not know that an equal one is under way: {equal:?}");
        }
        Ok(())
    }
}
