//! High before normal before low for every upstream, and first in first out within a line, with any gates.

use eclusa_core::JobId;
use eclusa_core::gate::Reason;

use super::{Checker, Step};
use crate::calls::{Call, Reply};
use crate::ledger::{Job, State, Verdict, ensure};
use crate::rules::{lane_number, upstream_number};

pub(crate) struct Priority;

impl Checker for Priority {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        let (Call::Dispatch(ask), Reply::Dispatch(given)) = (step.call, step.reply) else { return Ok(()) };
        let lane = lane_number(&ask.lane);
        let served: Vec<_> = given.grants.iter().map(|grant| grant.job).collect();
        // Others pass a tenant at its own limit.
        let gates = &step.ledger.plan.lanes[lane].gates;
        let limited = gates.tenant_bucket.is_some() || gates.tenant_slots.is_some();
        for (n, grant) in given.grants.iter().enumerate() {
            let job = &step.ledger.jobs[&grant.job];
            // Jobs that still wait, and jobs that were served only after it.
            let later = served[n + 1..].iter().map(|id| (*id, &step.ledger.jobs[id]));
            for (id, other) in still_in_line(step, lane).chain(later) {
                ensure!(!same_line(job, other) || job.seq < other.seq, "{:?} went before {id:?}", grant.job);
            }
            let upstream = upstream_number(&grant.upstream);
            for (id, other) in still_in_line(step, lane) {
                let passed_over = other.level < job.level
                    && other.holds.is_empty()
                    && other.untried().contains(&upstream)
                    && (!limited || other.tenant == job.tenant);
                ensure!(!passed_over, "{grant:?} went before {id:?}: {other:?}");
            }
        }
        let levels: Vec<_> = given.grants.iter().map(|grant| grant.level).collect();
        ensure!(levels.is_sorted(), "grants out of order: {levels:?}");
        Ok(())
    }
}

/// Jobs that wait for the answer of an equal one let others pass.
fn still_in_line<'a>(step: &Step<'a>, lane: usize) -> impl Iterator<Item = (JobId, &'a Job)> {
    let coalesced =
        |id| step.engine.why(id, step.now).is_some_and(|why| why.reason == Some(Reason::Coalesced));
    let queued = step.ledger.waiting(lane).filter(|(_, job)| job.state == State::Queued);
    queued.filter(move |(id, job)| job.cache_key.is_none() || !coalesced(*id))
}

fn same_line(job: &Job, other: &Job) -> bool {
    let key = |job: &Job| (job.level, job.untried(), job.holds.clone(), job.tenant.clone());
    key(job) == key(other)
}
