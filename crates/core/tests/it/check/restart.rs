//! A restart is invisible: an engine rebuilt from the journal has the same state and gives the same answers, even if
//! the oldest chunks of the journal were removed. Changes are saved after every operation or after several.
//!
//! The same holds for engines that were built from the first part of the journal and then followed it: they are equal
//! to the rebuilt one and stay so.
//!
//! Which lines are parked at scoped buckets (including limits per tenant) is not in the journal: after a restart they
//! are checked once more. So with such buckets only the state is compared with the engine, and all other checkers
//! continue with an engine that was rebuilt or has followed.
//!
//! Which minute is running is saved with the next change of anything else: while nothing happens, nothing is written. So its
//! record is compared only between rebuilt engines. What it counts is compared with the engine, in `shown`; how long jobs waited,
//! requests without a job and calls are left out there, because the running minute loses them.

use std::fmt::Debug;

use eclusa_core::gate::Reason;
use eclusa_core::{Engine, JobId, JobView, LeaseId, Mentions, Restorer, TenantQuery, Time};

use super::history::job_counts;
use super::{Checker, Step};
use crate::calls::forget_counts;
use crate::ledger::{Verdict, ensure};
use crate::plan::{Op, RulePlan};
use crate::rules::{SCOPED, lane_name};

/// Minutes of the history that are compared.
const HISTORY: u32 = 10;

const META_RECORD: u8 = 0;
const RUNNING_MINUTE_RECORD: u8 = 46;

/// Rebuilt engines that have run the same calls since, the first one built from the whole journal at once.
struct Twins {
    engines: Vec<Engine>,
    /// Leases with a higher number were issued after it was rebuilt, in another epoch.
    last_number: u64,
}

pub(crate) struct Restarts {
    parks: bool,
    /// Saves after this many operations.
    every: usize,
    operations: usize,
    /// Of the engine.
    epoch: u64,
    chunks: Vec<Vec<u8>>,
    /// All chunks, including the removed ones.
    history: Vec<Vec<u8>>,
    /// Once the journal has this many chunks, it contains everything.
    whole: usize,
    last_number: u64,
    twins: Option<Twins>,
}

impl Restarts {
    pub(crate) fn new(plan: &RulePlan) -> Self {
        let every = usize::try_from(plan.lanes[0].capacity % 4).unwrap() + 1;
        Self {
            parks: plan.parks(),
            every,
            operations: 0,
            epoch: 0,
            chunks: Vec::new(),
            history: Vec::new(),
            whole: 0,
            last_number: 0,
            twins: None,
        }
    }

    fn save(&mut self, engine: &mut Engine) {
        let mut chunk = Engine::begin_chunk();
        let mentions = engine.save_changes(&mut chunk).unwrap();
        assert_eq!(mentions, Mentions::read(&chunk).unwrap());
        self.history.push(chunk.clone());
        self.chunks.push(chunk);
    }

    /// Engines that are the same as `engine`.
    fn restart(&mut self, engine: &Engine) -> Verdict<Vec<Engine>> {
        let (epoch, all) = (self.epoch + 1, self.history.len());
        let cut = self.operations % all;
        let mut rebuilt = vec![
            follow(&self.chunks, epoch, |_| false),
            follow(&self.history, epoch, |_| true),
            follow(&self.history, epoch, |number| number == cut),
            follow(&self.chunks, epoch, |number| number >= self.whole),
        ];
        same_records(&records(engine, false), &records(&rebuilt[0], false), "a restart")?;
        let (cold, followed) = rebuilt.split_first_mut().unwrap();
        for one in followed {
            let (was, is) = (records(cold, true), records(one, true));
            same_records(&was, &is, "following")?;
            ensure!(unsaved(cold) == unsaved(one), "after following there is something to save");
            ensure!(cold.footprint() == one.footprint(), "after following it takes another room");
        }
        Ok(rebuilt)
    }
}

/// An engine that was built after the chunks that `builds` selects, and at the end.
pub(crate) fn follow(chunks: &[Vec<u8>], epoch: u64, builds: impl Fn(usize) -> bool) -> Engine {
    let mut restorer = Restorer::default();
    for (number, chunk) in (1..).zip(chunks) {
        restorer.apply(chunk).unwrap();
        if builds(number) {
            restorer.build().unwrap();
        }
    }
    restorer.finish(epoch).unwrap()
}

/// All records; if they are those of an engine that was not rebuilt, without those that need not be saved.
fn records(engine: &Engine, rebuilt: bool) -> Vec<Vec<u8>> {
    let mut records = engine.snapshot().unwrap();
    records.retain(|record| rebuilt || ![META_RECORD, RUNNING_MINUTE_RECORD].contains(&record[0]));
    records
}

fn same_records(was: &[Vec<u8>], is: &[Vec<u8>], after: &str) -> Verdict {
    if was == is {
        return Ok(());
    }
    let lost: Vec<_> = was.iter().filter(|record| !is.contains(record)).collect();
    let new: Vec<_> = is.iter().filter(|record| !was.contains(record)).collect();
    Err(format!("{after} lost {lost:?} and brought {new:?}"))
}

/// What would go to the journal next.
fn unsaved(engine: &mut Engine) -> Vec<u8> {
    let mut chunk = Engine::begin_chunk();
    engine.save_changes(&mut chunk).unwrap();
    chunk
}

fn ageless(lease: LeaseId) -> LeaseId {
    LeaseId { epoch: 0, ..lease }
}

/// Everything that is shown, except epochs.
pub(crate) fn shown(
    engine: &Engine,
    jobs: &mut dyn Iterator<Item = JobId>,
    now: Time,
) -> impl PartialEq + Debug + use<> {
    let view = |id| engine.job(id).map(|job| JobView { lease: job.lease.map(ageless), ..job });
    let jobs: Vec<_> = jobs.map(|id| (view(id), engine.why(id, now))).collect();
    let per_lane = |lane| {
        let mut tenants: Vec<_> = engine.tenants(&TenantQuery::new(lane_name(lane), 100), now).tenants;
        tenants.sort_unstable_by(|a, b| a.tenant.cmp(&b.tenant));
        (tenants, crate::rules::letters(engine, &lane_name(lane)))
    };
    let full = |capacity: u32| i64::from(capacity) * 1_000_000;
    let left = |key: &str| engine.bucket(key, now).map(eclusa_core::Tokens::as_micro);
    let buckets: Vec<_> =
        SCOPED.iter().map(|(key, plan)| left(key).unwrap_or_else(|| full(plan.0))).collect();
    // What is counted since the engine began, and decides nothing.
    let (mut lanes, mut upstreams) = (engine.lanes(now), engine.upstreams(now));
    for lane in &mut lanes {
        lane.held = lane.held.take().filter(|hold| hold.reason != Reason::NoWorker);
    }
    upstreams.iter_mut().for_each(forget_counts);
    let history = [0, 1].map(|lane| job_counts(engine, &lane_name(lane), HISTORY, now));
    (lanes, upstreams, jobs, [0, 1].map(per_lane), buckets, history)
}

/// Nothing, or the first lines that differ.
pub(crate) fn same<T: PartialEq + Debug>(was: &T, is: &T, after: &str) -> Verdict {
    if was == is {
        return Ok(());
    }
    let (was, is) = (format!("{was:#?}"), format!("{is:#?}"));
    let differing = was.lines().zip(is.lines()).find(|(was, is)| was != is);
    Err(format!("after {after} something else is shown: {differing:?}"))
}

impl Checker for Restarts {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        self.last_number = step.ledger.issued.iter().map(|lease| lease.number).max().unwrap_or_default();
        let Some(twins) = &mut self.twins else { return Ok(()) };
        let (last_number, epoch) = (twins.last_number, self.epoch);
        let call = step.call.clone().with_leases(|lease| {
            let newer = lease.number > last_number && lease.epoch == epoch;
            LeaseId { epoch: lease.epoch + u64::from(newer), ..lease }
        });
        let all = || step.ledger.jobs.keys().copied();
        let mut expected = (
            step.reply.clone().without_counts().with_leases(ageless),
            shown(step.engine, &mut all(), step.now),
        );
        for (number, twin) in twins.engines.iter_mut().enumerate() {
            twin.now(step.now);
            let reply = call.clone().make(twin, step.now).without_counts().with_leases(ageless);
            let found = (reply, shown(twin, &mut all(), step.now));
            if number == 0 && self.parks {
                expected = found;
                continue;
            }
            let after = if number == 0 { "a restart" } else { "following" };
            ensure!(found.0 == expected.0, "after {after} {:?} instead of {:?}", found.0, expected.0);
            same(&expected.1, &found.1, after)?;
        }
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
            self.whole = self.chunks.len();
        }
        if !looks {
            return Ok(());
        }
        let mut rebuilt = self.restart(engine)?;
        if let Op::Reopen = op {
            *engine = rebuilt.swap_remove(self.operations % rebuilt.len());
            self.epoch += 1;
            self.twins = None;
        } else {
            // Comparing everything takes long: compare one follower, a different one each time.
            let followed = rebuilt.swap_remove(1 + self.operations % 3);
            rebuilt.truncate(1);
            rebuilt.push(followed);
            self.twins = Some(Twins { engines: rebuilt, last_number: self.last_number });
        }
        Ok(())
    }
}
