//! The rules as a deterministic state machine.
//!
//! Every verb gets the time as an argument and is atomic: it is done whole or, with an answer that says why, not at
//! all. For each thing it is given or lets go a verb costs no more than a walk down a search tree, however many jobs,
//! tenants or leases there are. The verbs are in files of their own; this one holds what they work on.

mod admit;
mod alone;
mod buckets;
mod cache;
mod cancel;
mod coalesce;
mod dispatch;
mod ending;
mod enqueue;
mod jobs;
mod leases;
mod record;
mod refresh;
mod replay;
mod reset;
mod restore;
mod save;
mod settle;
mod sweep;
mod view;
mod why;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use alone::{Seen, Starts};
use hashbrown::HashMap;
pub use refresh::Mentions;
pub use restore::{RestoreError, Restorer};
pub use save::SaveError;

use self::buckets::Buckets;
use self::jobs::{Job, Jobs, Phase};
use self::leases::Leases;
use crate::ended::Ended;
use crate::gate::{GateSpecs, Gates, NotUntil, Reason};
use crate::ids::Name;
use crate::lane::{Lane, LineKey};
use crate::spec::{LaneSpec, Spec};
use crate::table::{JobIx, LaneIx, UpstreamIx};
use crate::time::{Span, SteadyTime, Time};

#[derive(Debug)]
struct Upstream {
    name: Name,
    /// `None` when the config no longer has it: jobs that need it wait.
    spec: Option<GateSpecs>,
    gates: Gates,
    dirty: bool,
}

/// All state of the lanes and upstreams that are decided together.
#[derive(Debug, Default)]
pub struct Engine {
    lanes: Vec<Lane>,
    lane_by_name: HashMap<Name, LaneIx, foldhash::fast::FixedState>,
    upstreams: Vec<Upstream>,
    upstream_by_name: HashMap<Name, UpstreamIx, foldhash::fast::FixedState>,
    jobs: Jobs,
    leases: Leases,
    buckets: Buckets,
    time: SteadyTime,
    /// Keys whose waiting jobs are owed an answer that was just stored, by the entry's number.
    owed: BTreeMap<(LaneIx, u64), Arc<str>>,
    /// Jobs that ended in the verb under way; its answer takes them.
    ended: Vec<Ended>,
    /// The last lease number and the step of the clock that are in the journal.
    saved_meta: Option<(u64, Span)>,
}

impl Engine {
    /// An engine without jobs.
    pub fn new(spec: &Spec) -> Self {
        let mut engine = Self::default();
        engine.configure(spec);
        engine
    }

    /// The time to pass to verbs when the clock shows `clock`: it neither runs backwards nor stands still when the clock
    /// is turned back, also over a restart.
    pub fn now(&mut self, clock: Time) -> Time {
        self.time.at(clock)
    }

    /// Puts the rules in force, before any job is there. Lanes and upstreams that the rules do not name keep their
    /// state, but nothing is dispatched from or to them.
    fn configure(&mut self, spec: &Spec) {
        for rule in &spec.upstreams {
            let upstream = self.add_upstream(&rule.name);
            let upstream = &mut self.upstreams[upstream.0 as usize];
            upstream.gates.fit(&rule.gates);
            upstream.spec = Some(rule.gates.clone());
        }
        for rule in &spec.lanes {
            let chain = rule.chain.names().iter().map(|name| self.add_upstream(name)).collect::<Vec<_>>();
            let lane = self.add_lane(&rule.name);
            let lane = self.lane_mut(lane);
            lane.default_chain = lane.group(&chain);
            lane.gates.fit(&rule.gates);
            lane.spec = Some(rule.clone());
        }
    }

    fn add_upstream(&mut self, name: &Name) -> UpstreamIx {
        let next = UpstreamIx(u32::try_from(self.upstreams.len()).unwrap_or(u32::MAX));
        let found = *self.upstream_by_name.entry(name.clone()).or_insert(next);
        if found == next {
            self.upstreams.push(Upstream {
                name: name.clone(),
                spec: None,
                gates: Gates::default(),
                dirty: true,
            });
        }
        found
    }

    fn add_lane(&mut self, name: &Name) -> LaneIx {
        let next = LaneIx(u32::try_from(self.lanes.len()).unwrap_or(u32::MAX));
        let found = *self.lane_by_name.entry(name.clone()).or_insert(next);
        if found == next {
            self.lanes.push(Lane::new(name.clone()));
        }
        found
    }

    fn lane(&self, lane: LaneIx) -> &Lane {
        &self.lanes[lane.0 as usize]
    }

    fn lane_mut(&mut self, lane: LaneIx) -> &mut Lane {
        &mut self.lanes[lane.0 as usize]
    }

    fn lane_of(&mut self, job: JobIx) -> &mut Lane {
        let lane = self.jobs[job].lane;
        self.lane_mut(lane)
    }

    /// The lane with `name` and its rules, if the config has it.
    fn configured_lane(&self, name: &Name) -> Option<(LaneIx, &LaneSpec)> {
        let lane = *self.lane_by_name.get(name)?;
        self.lane(lane).spec.as_ref().map(|spec| (lane, spec))
    }

    fn upstream(&self, upstream: UpstreamIx) -> &Upstream {
        &self.upstreams[upstream.0 as usize]
    }

    fn upstream_mut(&mut self, upstream: UpstreamIx) -> &mut Upstream {
        let upstream = &mut self.upstreams[upstream.0 as usize];
        upstream.dirty = true;
        upstream
    }

    /// The upstreams a job has not tried in this attempt.
    fn untried(&self, job: &Job) -> Vec<UpstreamIx> {
        let chain = self.lane(job.lane).chain(job.chain).iter().enumerate();
        chain.filter(|(place, _)| job.tried & (1 << place) == 0).map(|(_, upstream)| *upstream).collect()
    }

    /// The first untried upstream of a job's chain that admits it, or the one that will first.
    fn first_admitting(&self, job: &Job, now: Time) -> Result<UpstreamIx, (Option<UpstreamIx>, NotUntil)> {
        let holds = job.holds().map_or([].as_slice(), |holds| holds);
        let rank = match job.phase {
            Phase::Queued { line } => self.lane(job.lane).lines[line].rank(),
            _ => (job.level, 0),
        };
        let mut earliest = (None, NotUntil::new(Reason::NoWorker, Time::NEVER));
        for upstream in self.untried(job) {
            let scoped =
                || self.denied_hold(holds, upstream, rank, now).map_or(Ok(()), |(_, denial)| Err(denial));
            match self.upstream_admits(upstream, now).and_then(|()| scoped()) {
                Ok(()) => return Ok(upstream),
                Err(denial) if denial.at <= earliest.1.at => earliest = (Some(upstream), denial),
                Err(_) => {}
            }
        }
        Err(earliest)
    }

    /// Puts a waiting job into the line it belongs to, by its number.
    fn stand_in_line(&mut self, index: JobIx) {
        let untried = if self.jobs[index].tried == 0 { Vec::new() } else { self.untried(&self.jobs[index]) };
        if untried.is_empty() {
            // Its worker vanished or gave it back after the whole chain had failed: that attempt is over.
            self.jobs[index].tried = 0;
        }
        let job = &self.jobs[index];
        let (lane, level, seq) = (job.lane, job.level, job.seq);
        let group = if job.tried == 0 { job.chain } else { self.lanes[lane.0 as usize].group(&untried) };
        let holds = job.holds().cloned();
        let tenant = job.tenant;
        let state = self.lane_mut(lane);
        let tenant = state.turn_of(tenant);
        let place = state.push(LineKey { level, group, tenant, holds }, seq, index);
        self.jobs[index].phase = Phase::Queued { line: place };
    }

    /// Counts a job among the waiting ones and puts it into its line, or holds it back until `due`.
    fn wait(&mut self, index: JobIx, due: Option<Time>) {
        let waiter = self.jobs[index].waiter(index);
        self.lane_of(index).enter(&waiter);
        if let Some(due) = due {
            self.jobs[index].phase = Phase::Pending { due };
            self.lane_of(index).due.insert((due, waiter.seq), index);
        } else {
            self.stand_in_line(index);
        }
        self.join_equals(index);
        self.jobs.touch(index);
    }

    /// Takes a job out of everything that waits; the opposite of [`Engine::wait`].
    fn stop_waiting(&mut self, index: JobIx) {
        self.leave_equals(index);
        let job = &self.jobs[index];
        let (seq, waiter, phase) = (job.seq, job.waiter(index), job.phase);
        let lane = self.lane_of(index);
        match phase {
            Phase::Pending { due } => {
                lane.due.remove(&(due, seq));
            }
            Phase::Queued { line } => {
                if let Some((bucket, parked)) = lane.pull(line, seq) {
                    self.buckets.unpark(bucket, &parked);
                }
            }
            Phase::Coalesced => lane.levels[waiter.level as usize].aside -= 1,
            Phase::Processing { .. } | Phase::Finished { .. } => return,
        }
        self.lane_of(index).exit(&waiter);
    }

    /// How much the journal would be if it held each thing once.
    pub fn footprint(&self) -> u64 {
        const PER_THING: u64 = 128;
        let things = |lane: &Lane| lane.tenants.len() + lane.dead.len() + lane.keys.len() + lane.cache.len();
        let things = self.jobs.len() + self.buckets.len() + self.lanes.iter().map(things).sum::<usize>() + 1;
        let kept: u64 = self.lanes.iter().map(|lane| lane.dead.bytes() + lane.cache.bytes()).sum();
        self.jobs.bytes + kept + things as u64 * PER_THING
    }
}
