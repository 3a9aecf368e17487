//! Every waiting job has a reason.

use super::{Checker, Step};
use crate::ledger::{State, Verdict, ensure};

pub(crate) struct Whys;

impl Checker for Whys {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        for (id, job) in &step.ledger.jobs {
            let Some(why) = step.engine.why(*id, step.now) else {
                ensure!(matches!(job.state, State::Ended(_)), "{id:?} is {job:?}, but there is no why");
                continue;
            };
            if !job.waits() {
                continue;
            }
            ensure!(why.reason.is_some(), "{id:?} waits for nothing: {why:?}");
            let waiting = step.ledger.waiting(job.lane).count() as u64;
            ensure!(
                why.position < waiting,
                "{id:?} is behind more jobs than the {waiting} that wait: {why:?}"
            );
        }
        Ok(())
    }
}
