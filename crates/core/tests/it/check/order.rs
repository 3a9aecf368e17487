//! The exact order of grants where no gate ever says no, by a naive model: tenants take turns within a level, least
//! recently served first, at most a quota in a row while another waits; within a tenant the oldest job goes first.

use std::collections::BTreeMap;

use eclusa_core::{JobId, Level};

use super::{Checker, Step};
use crate::calls::{Call, Reply};
use crate::ledger::{Fact, Job, Verdict, ensure};
use crate::plan::RulePlan;
use crate::rules::{lane_number, quota};

/// A tenant that was not seen for so many turns waits no longer than one that was never seen.
const SATURATED: i64 = 4;

#[derive(Default)]
struct Turns {
    turn: i64,
    current: Option<String>,
    in_a_row: u32,
    last_turn: BTreeMap<String, i64>,
    /// Jobs in line, by tenant, with their place in the order of arrival.
    lines: BTreeMap<String, BTreeMap<u64, JobId>>,
    /// Where a tenant stands since it began to wait: the turn it counts as served in, then who came first.
    places: BTreeMap<String, (i64, u64)>,
}

impl Turns {
    fn stand(&mut self, tenant: &str, seq: u64, job: JobId) {
        let last = self.last_turn.get(tenant).copied().unwrap_or(i64::MIN);
        let place = (last.max(self.turn - SATURATED), seq);
        self.places.entry(tenant.to_owned()).or_insert(place);
        self.lines.entry(tenant.to_owned()).or_default().insert(seq, job);
    }

    fn leave(&mut self, tenant: &str, job: JobId) {
        let Some(line) = self.lines.get_mut(tenant) else { return };
        line.retain(|_, id| *id != job);
        if line.is_empty() {
            self.lines.remove(tenant);
            self.places.remove(tenant);
        }
    }

    /// The tenant to be served next.
    fn next(&self, batch: u32) -> Option<String> {
        if let Some(current) = self.current.as_ref().filter(|tenant| self.lines.contains_key(*tenant))
            && self.in_a_row < quota(batch, current)
        {
            return Some(current.clone());
        }
        self.places.iter().min_by_key(|(_, place)| **place).map(|(tenant, _)| tenant.clone())
    }

    fn serve(&mut self, tenant: &str, job: JobId) {
        self.leave(tenant, job);
        if self.current.as_deref() == Some(tenant) {
            self.in_a_row += 1;
            return;
        }
        self.turn += 1;
        (self.current, self.in_a_row) = (Some(tenant.to_owned()), 1);
        self.last_turn.insert(tenant.to_owned(), self.turn);
        if let Some(place) = self.places.get_mut(tenant) {
            place.0 = self.turn;
        }
    }
}

pub(crate) struct ExactOrder {
    batches: Vec<Option<u32>>,
    turns: [[Turns; 3]; 2],
}

impl ExactOrder {
    pub(crate) fn new(plan: &RulePlan) -> Self {
        Self { batches: plan.lanes.iter().map(|lane| lane.batch).collect(), turns: Default::default() }
    }

    fn serve(&mut self, id: JobId, job: &Job) -> Verdict {
        let levels = &self.turns[job.lane];
        let first = Level::ALL.into_iter().find(|level| !levels[*level as usize].lines.is_empty());
        ensure!(first == Some(job.level), "{id:?} was served before a job of level {first:?}");
        let turns = &mut self.turns[job.lane][job.level as usize];
        let tenant = self.batches[job.lane].map_or("", |_| &job.tenant);
        let next = turns.next(self.batches[job.lane].unwrap_or(1)).unwrap_or_default();
        ensure!(next == tenant, "{id:?} of {tenant} was served, but it is the turn of {next}");
        let oldest = turns.lines[tenant].values().next().copied();
        ensure!(oldest == Some(id), "{id:?} was served before {oldest:?}");
        turns.serve(tenant, id);
        Ok(())
    }
}

impl Checker for ExactOrder {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        for fact in step.facts {
            let (Fact::Stood(id, job) | Fact::Left(id, job) | Fact::Served(id, job)) = fact else { continue };
            let tenant = self.batches[job.lane].map_or("", |_| &job.tenant);
            let turns = &mut self.turns[job.lane][job.level as usize];
            match fact {
                Fact::Stood(..) => turns.stand(tenant, job.seq, *id),
                Fact::Left(..) => turns.leave(tenant, *id),
                _ => self.serve(*id, job)?,
            }
        }
        if let (Call::Dispatch(ask), Reply::Dispatch(given)) = (step.call, step.reply) {
            let lane = lane_number(&ask.lane);
            let idle = self.turns[lane].iter().all(|turns| turns.lines.is_empty());
            let enough = given.grants.len() == ask.max || step.ledger.paused[lane];
            ensure!(idle || enough, "jobs were left in line though nothing hinders them");
        }
        Ok(())
    }
}
