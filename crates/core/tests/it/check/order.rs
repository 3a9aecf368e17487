//! The exact order of grants without gates, by a naive model: tenants take turns within a level, least recently served
//! first, at most a quota in a row while another waits; within a tenant the oldest job goes first. A job that a running
//! equal job will answer leaves its line when its turn comes.

use std::collections::{BTreeMap, BTreeSet};

use eclusa_core::{JobId, Level};

use super::{Checker, Step};
use crate::calls::{Call, Reply};
use crate::ledger::{Fact, Job, Verdict, ensure};
use crate::plan::RulePlan;
use crate::rules::{lane_number, quota};

/// A tenant that was idle for this many turns is treated like a new one.
const SATURATED: i64 = 4;

#[derive(Default)]
struct Turns {
    turn: i64,
    current: Option<String>,
    in_a_row: u32,
    last_turn: BTreeMap<String, i64>,
    /// Jobs in line, by tenant, with their place in the order of arrival.
    lines: BTreeMap<String, BTreeMap<u64, JobId>>,
    /// A tenant's place since it began to wait: the turn it counts as served in, then the order of arrival.
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

/// The jobs of a lane under one cache key.
#[derive(Default)]
struct Equal {
    processing: BTreeSet<JobId>,
    /// By their place in the order of arrival.
    in_line: BTreeMap<u64, JobId>,
    aside: BTreeMap<(Level, u64), (JobId, Job)>,
}

pub(crate) struct ExactOrder {
    batches: Vec<Option<u32>>,
    turns: [[Turns; 3]; 2],
    equals: BTreeMap<(usize, String), Equal>,
    /// Jobs in line.
    standing: BTreeMap<JobId, Job>,
}

impl ExactOrder {
    pub(crate) fn new(plan: &RulePlan) -> Self {
        Self {
            batches: plan.lanes.iter().map(|lane| lane.batch).collect(),
            turns: Default::default(),
            equals: BTreeMap::new(),
            standing: BTreeMap::new(),
        }
    }

    fn equal(&mut self, job: &Job) -> Option<&mut Equal> {
        let key = job.cache_key.clone()?;
        Some(self.equals.entry((job.lane, key)).or_default())
    }

    /// The tenant whose turn a job takes, and the turns of its level.
    fn turns(&mut self, job: &Job) -> (String, &mut Turns) {
        let tenant = self.batches[job.lane].map_or("", |_| &job.tenant).to_owned();
        (tenant, &mut self.turns[job.lane][job.level as usize])
    }

    fn stand(&mut self, id: JobId, job: &Job) {
        let (tenant, turns) = self.turns(job);
        turns.stand(&tenant, job.seq, id);
        if let Some(equal) = self.equal(job) {
            equal.in_line.insert(job.seq, id);
        }
        self.standing.insert(id, job.clone());
    }

    fn leave(&mut self, id: JobId, job: &Job) {
        let aside = |equal: &mut Equal| equal.aside.remove(&(job.level, job.seq)).is_some();
        if self.equal(job).is_some_and(aside) {
            return;
        }
        let (tenant, turns) = self.turns(job);
        turns.leave(&tenant, id);
        self.step_out(id, job);
    }

    fn step_out(&mut self, id: JobId, job: &Job) {
        self.standing.remove(&id);
        if let Some(equal) = self.equal(job) {
            equal.in_line.remove(&job.seq);
        }
    }

    /// The next job of a lane according to turns.
    fn next(&self, lane: usize) -> Option<JobId> {
        let turns = self.turns[lane].iter().find(|turns| !turns.lines.is_empty())?;
        let tenant = turns.next(self.batches[lane].unwrap_or(1)).unwrap_or_default();
        turns.lines.get(&tenant)?.values().next().copied()
    }

    /// The next job of a lane, after jobs that an equal one will answer are set aside.
    fn settle_next(&mut self, lane: usize) -> Option<JobId> {
        while let Some(id) = self.next(lane) {
            let job = self.standing[&id].clone();
            if self.equal(&job).is_none_or(|equal| equal.processing.is_empty()) {
                return Some(id);
            }
            self.leave(id, &job);
            self.equals
                .get_mut(&(lane, job.cache_key.clone()?))?
                .aside
                .insert((job.level, job.seq), (id, job));
        }
        None
    }

    fn serve(&mut self, id: JobId, job: &Job) -> Verdict {
        let next = self.settle_next(job.lane);
        ensure!(next == Some(id), "{id:?} was served, but it is the turn of {next:?}");
        let (tenant, turns) = self.turns(job);
        turns.serve(&tenant, id);
        self.step_out(id, job);
        if let Some(equal) = self.equal(job) {
            equal.processing.insert(id);
        }
        Ok(())
    }

    fn give_way(&mut self, lane: usize, key: &str, failed: Option<u64>) {
        let Some(equal) = self.equals.get_mut(&(lane, key.to_owned())) else { return };
        let comes = !equal.processing.is_empty() || equal.in_line.keys().any(|seq| Some(*seq) != failed);
        if !comes && let Some((_, (id, job))) = equal.aside.pop_first() {
            self.stand(id, &job);
        }
    }
}

impl Checker for ExactOrder {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        for fact in step.facts {
            match fact {
                Fact::Stood(id, job) => self.stand(*id, job),
                Fact::Left(id, job) => self.leave(*id, job),
                Fact::Served(id, job) => self.serve(*id, job)?,
                Fact::Stopped(id, job) => {
                    if let Some(equal) = self.equal(job) {
                        equal.processing.remove(id);
                    }
                }
                Fact::GaveWay(lane, key, failed) => self.give_way(*lane, key, *failed),
                _ => {}
            }
        }
        if let (Call::Dispatch(ask), Reply::Dispatch(given)) = (step.call, step.reply) {
            let lane = lane_number(&ask.lane);
            if given.grants.len() < ask.max && !step.ledger.paused[lane] {
                let next = self.settle_next(lane);
                ensure!(next.is_none(), "{next:?} was left in line though nothing hinders it");
            }
        }
        Ok(())
    }
}
