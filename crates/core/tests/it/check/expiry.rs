//! Nothing starts after its `expiresAt`, nor moves on to another upstream.

use super::{Checker, Step};
use crate::ledger::{Fact, Verdict, ensure};

pub(crate) struct NoStartAfterExpiry;

impl Checker for NoStartAfterExpiry {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        for fact in step.facts {
            let Fact::Started(start) = fact else { continue };
            let expires = start.job.map(|job| step.ledger.jobs[&job].expires_at);
            ensure!(expires.is_none_or(|at| step.now <= at), "{start:?} at {:?}", step.now);
        }
        Ok(())
    }
}
