//! A restart is invisible: an engine rebuilt from the journal has the same state and gives the same answers, also
//! when the oldest chunks of the journal were let go. Changes are saved after every operation or after several.
//!
//! Which lines are parked at scoped buckets is not in the journal: after a restart they are looked at once more. So
//! where there are such buckets only the state is compared, and all other checkers go on with the rebuilt engine.

use eclusa_core::{Engine, JobId, JobView, LeaseId, Mentions, Restorer, Time};

use super::{Checker, Step};
use crate::ledger::{Verdict, ensure};
use crate::plan::{Op, RulePlan};
use crate::rules::{SCOPED, lane_name};

const META_RECORD: u8 = 0;

/// An engine that was rebuilt and has done the same since.
struct Twin {
    engine: Engine,
    /// Leases with a higher number were issued after it was rebuilt, in another epoch.
    last_number: u64,
}

pub(crate) struct Restarts {
    scoped: bool,
    /// Saves after so many operations.
    every: usize,
    operations: usize,
    /// Of the engine.
    epoch: u64,
    chunks: Vec<Vec<u8>>,
    last_number: u64,
    twin: Option<Twin>,
}

impl Restarts {
    pub(crate) fn new(plan: &RulePlan) -> Self {
        let every = usize::try_from(plan.lanes[0].capacity % 4).unwrap() + 1;
        let (scoped, chunks) = (plan.scoped, Vec::new());
        Self { scoped, every, operations: 0, epoch: 0, chunks, last_number: 0, twin: None }
    }

    fn save(&mut self, engine: &mut Engine) {
        let mut chunk = Engine::begin_chunk();
        engine.save_changes(&mut chunk).unwrap();
        self.chunks.push(chunk);
    }

    fn rebuild(&self) -> Engine {
        let mut restorer = Restorer::default();
        self.chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
        restorer.finish(self.epoch + 1).unwrap()
    }

    /// An engine that is the same as `engine`.
    fn restart(&mut self, engine: &Engine) -> Verdict<Engine> {
        let rebuilt = self.rebuild();
        let records = |engine: &Engine| {
            let mut records = engine.snapshot().unwrap();
            records.retain(|record| record[0] != META_RECORD);
            records
        };
        let (was, is) = (records(engine), records(&rebuilt));
        let lost: Vec<_> = was.iter().filter(|record| !is.contains(record)).collect();
        let new: Vec<_> = is.iter().filter(|record| !was.contains(record)).collect();
        ensure!(lost.is_empty() && new.is_empty(), "a restart lost {lost:?} and brought {new:?}");
        Ok(rebuilt)
    }
}

fn ageless(lease: LeaseId) -> LeaseId {
    LeaseId { epoch: 0, ..lease }
}

/// All that is shown, but for epochs.
pub(crate) fn shown(engine: &Engine, jobs: impl Iterator<Item = JobId>, now: Time) -> String {
    let view = |id| engine.job(id).map(|job| JobView { lease: job.lease.map(ageless), ..job });
    let jobs: Vec<_> = jobs.map(|id| (view(id), engine.why(id, now))).collect();
    let per_lane = |lane| {
        let mut tenants: Vec<_> =
            engine.tenants(&lane_name(lane), 0, 100).into_iter().map(|(_, t)| t).collect();
        tenants.sort_unstable_by(|a, b| a.tenant.cmp(&b.tenant));
        (tenants, engine.dead_letters(&lane_name(lane), 0, 100))
    };
    let full = |capacity: u32| i64::from(capacity) * 1_000_000;
    let left = |key: &str| engine.bucket(key, now).map(eclusa_core::Tokens::as_micro);
    let buckets: Vec<_> =
        SCOPED.iter().map(|(key, plan)| left(key).unwrap_or_else(|| full(plan.0))).collect();
    format!("{:#?}", (engine.lanes(now), engine.upstreams(now), jobs, [0, 1].map(per_lane), buckets))
}

impl Checker for Restarts {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        self.last_number = step.ledger.issued.iter().map(|lease| lease.number).max().unwrap_or_default();
        let Some(twin) = &mut self.twin else { return Ok(()) };
        let (last_number, epoch) = (twin.last_number, self.epoch);
        let call = step.call.clone().with_leases(|lease| {
            let newer = lease.number > last_number && lease.epoch == epoch;
            LeaseId { epoch: lease.epoch + u64::from(newer), ..lease }
        });
        let reply = call.make(&mut twin.engine, step.now).with_leases(ageless);
        let expected = step.reply.clone().with_leases(ageless);
        ensure!(reply == expected, "after a restart {reply:?} instead of {expected:?}");
        let all = || step.ledger.jobs.keys().copied();
        let (was, is) = (shown(step.engine, all(), step.now), shown(&twin.engine, all(), step.now));
        let differing = was.lines().zip(is.lines()).find(|(was, is)| was != is);
        ensure!(was == is, "after a restart something else is shown: {differing:?}");
        Ok(())
    }

    fn op(&mut self, op: &Op, engine: &mut Engine, _now: Time) -> Verdict {
        let looks = matches!(op, Op::Restart | Op::Reopen | Op::Clean(_));
        self.operations += 1;
        if looks || self.operations.is_multiple_of(self.every) {
            self.save(engine);
        }
        if let Op::Clean(count) = op {
            for _ in 0..(*count).min(u8::try_from(self.chunks.len() - 1).unwrap_or(u8::MAX)) {
                let oldest = self.chunks.remove(0);
                engine.refresh(&Mentions::read(&oldest).unwrap());
                self.save(engine);
            }
        }
        if !looks {
            return Ok(());
        }
        let rebuilt = self.restart(engine)?;
        if let Op::Reopen = op {
            *engine = rebuilt;
            self.epoch += 1;
            self.twin = None;
        } else if !self.scoped {
            self.twin = Some(Twin { engine: rebuilt, last_number: self.last_number });
        }
        Ok(())
    }
}
