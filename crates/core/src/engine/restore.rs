//! From records back to the engine's state.
//!
//! Records are applied in the order in which they were written; the newest of a thing wins. Whatever can be derived
//! (lines, orders, counters of what is in flight) is not in the records and is built anew at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use thiserror::Error;

use super::Engine;
use super::jobs::{Job, Phase};
use super::leases::{Lease, Use};
use super::record::{
    JobRecord, LaneRecord, LeaseRecord, PhaseRecord, Record, TenantRecord, UseRecord, VERSION,
};
use crate::dead_letter::DeadLetter;
use crate::gate::{Bucket, BucketSpec, Gates};
use crate::ids::{JobId, LeaseId, Name};
use crate::job::Event;
use crate::lane::{Entry, JobHold, KeyEntry, Tenant};
use crate::spec::Spec;
use crate::table::{LaneIx, TenantIx, UpstreamIx};
use crate::time::SteadyTime;

/// Records that cannot be read.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// Written by a newer program.
    #[error("the records have version {found}, but this program knows only up to {known}: use a newer one")]
    NewerVersion {
        /// Of the records.
        found: u8,
        /// Of this program.
        known: u8,
    },
    /// Not readable.
    #[error("a record cannot be read: {0}")]
    Unreadable(#[from] postcard::Error),
    /// Readable, but they do not fit together.
    #[error("the records do not fit together: {0}")]
    Inconsistent(String),
}

/// Gathers records and makes an engine of them.
#[derive(Debug, Default)]
pub struct Restorer {
    epoch: u32,
    next_lease: u64,
    time: SteadyTime,
    lanes: BTreeMap<u32, LaneRecord>,
    upstreams: BTreeMap<u32, (Name, Gates)>,
    tenants: BTreeMap<(u32, u64), TenantRecord>,
    jobs: HashMap<JobId, JobRecord, foldhash::fast::FixedState>,
    leases: BTreeMap<LeaseId, LeaseRecord>,
    buckets: BTreeMap<Arc<str>, (BucketSpec, Bucket)>,
    dead: BTreeMap<(u32, u64), (JobId, Box<DeadLetter>)>,
    keys: BTreeMap<(u32, Arc<str>), KeyEntry>,
    cache: BTreeMap<(u32, Arc<str>), Entry>,
}

/// Tenants by number of their lane and arrival.
type TenantsByArrival = HashMap<(u32, u64), TenantIx, foldhash::fast::FixedState>;

/// Calls `each` with every record of `chunk`.
pub(super) fn records(chunk: &[u8], mut each: impl FnMut(Record)) -> Result<(), RestoreError> {
    let Some((&found, mut rest)) = chunk.split_first() else {
        return Ok(());
    };
    if found > VERSION {
        return Err(RestoreError::NewerVersion { found, known: VERSION });
    }
    while !rest.is_empty() {
        let (record, after) = postcard::take_from_bytes(rest)?;
        each(record);
        rest = after;
    }
    Ok(())
}

impl Restorer {
    /// Applies the records of one chunk. Chunks must come in the order in which they were written.
    pub fn apply(&mut self, chunk: &[u8]) -> Result<(), RestoreError> {
        records(chunk, |record| self.apply_one(record))
    }

    fn apply_one(&mut self, record: Record) {
        match record {
            Record::Meta { epoch, next_lease, time } => {
                (self.epoch, self.next_lease, self.time) = (epoch, next_lease, time);
            }
            Record::Lane(lane) => drop(self.lanes.insert(lane.number, *lane)),
            Record::Upstream { number, name, gates } => drop(self.upstreams.insert(number, (name, gates))),
            Record::Tenant(tenant) => drop(self.tenants.insert((tenant.lane, tenant.arrival), tenant)),
            Record::TenantGone { lane, arrival } => drop(self.tenants.remove(&(lane, arrival))),
            Record::Job(job) => drop(self.jobs.insert(job.id, *job)),
            Record::JobState { id, state } => {
                // A job that is not known was let go of and will be written anew, or is gone, further on.
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.state = *state;
                }
            }
            Record::JobGone(id) => drop(self.jobs.remove(&id)),
            Record::Lease(id, lease) => drop(self.leases.insert(id, lease)),
            Record::LeaseGone(id) => drop(self.leases.remove(&id)),
            Record::Bucket { key, spec, bucket } => drop(self.buckets.insert(key, (spec, bucket))),
            Record::BucketGone(key) => drop(self.buckets.remove(&key)),
            Record::Dead { lane, number, job, letter } => {
                drop(self.dead.insert((lane, number), (job, letter)));
            }
            Record::DeadGone { lane, number } => drop(self.dead.remove(&(lane, number))),
            Record::Key { lane, key, entry } => drop(self.keys.insert((lane, key), entry)),
            Record::KeyGone { lane, key } => drop(self.keys.remove(&(lane, key))),
            Record::Cache { lane, key, answer, stored_at, number } => {
                drop(self.cache.insert((lane, key), Entry { answer: answer.0, stored_at, number }));
            }
            Record::CacheGone { lane, key } => drop(self.cache.remove(&(lane, key))),
        }
    }

    /// The engine that wrote the records, under the rules of now.
    pub fn finish(mut self, spec: &Spec) -> Result<Engine, RestoreError> {
        let mut engine = Engine::default();
        engine.leases.epoch = self.epoch + 1;
        engine.leases.next_number = self.next_lease;
        engine.time = self.time;
        self.restore_rules(&mut engine)?;
        engine.configure(spec);
        let tenants = self.restore_tenants(&mut engine)?;
        for (key, (spec, bucket)) in self.buckets {
            engine.buckets.restore(key, spec, bucket);
        }
        for ((lane, number), (job, letter)) in self.dead {
            lane_at(&mut engine, lane)?.dead.restore(number, job, *letter);
        }
        for ((lane, key), entry) in self.keys {
            lane_at(&mut engine, lane)?.keys.restore(key, entry);
        }
        for ((lane, key), entry) in self.cache {
            lane_at(&mut engine, lane)?.cache.restore(key, entry);
        }
        restore_jobs(&mut engine, self.jobs.into_values().collect(), &tenants)?;
        for (id, record) in self.leases {
            let lane = record.lane.map(LaneIx);
            let later = record.used_by == UseRecord::LaterCall;
            let used_by = if later { Use::LaterCall(lane) } else { Use::Call(lane) };
            restore_lease(&mut engine, id, &record, used_by)?;
        }
        // What came from the records need not go there again, but for the new epoch.
        engine.jobs.drain_changes(|_| {});
        engine.saved_meta = None;
        engine.settle_equals();
        Ok(engine)
    }

    fn restore_rules(&mut self, engine: &mut Engine) -> Result<(), RestoreError> {
        for (number, (name, gates)) in std::mem::take(&mut self.upstreams) {
            let index = engine.add_upstream(&name);
            expect(index.0 == number, || format!("upstream {name} has number {number}"))?;
            engine.upstreams[number as usize].gates = gates;
            engine.upstreams[number as usize].dirty = false;
        }
        for (number, record) in &self.lanes {
            let index = engine.add_lane(&record.name);
            expect(index.0 == *number, || format!("lane {} has number {number}", record.name))?;
            let lane = engine.lane_mut(index);
            lane.paused = record.paused;
            lane.next_seq = record.next_seq;
            lane.gates = record.gates.clone();
            lane.totals = record.totals;
            lane.tempo = record.tempo;
            lane.dirty = false;
        }
        Ok(())
    }

    fn restore_tenants(&mut self, engine: &mut Engine) -> Result<TenantsByArrival, RestoreError> {
        let mut found = TenantsByArrival::default();
        for (at, record) in std::mem::take(&mut self.tenants) {
            let mut tenant = Tenant::new(record.name, record.arrival);
            tenant.processed = record.processed;
            tenant.last_processed = record.last_processed;
            for (level, (last_turn, place)) in tenant.levels.iter_mut().zip(record.levels) {
                level.last_turn = last_turn;
                level.place = place;
            }
            found.insert(at, lane_at(engine, at.0)?.tenants.add(tenant));
        }
        for (number, record) in &self.lanes {
            let lane = lane_at(engine, *number)?;
            for (level, turns) in lane.levels.iter_mut().zip(record.turns) {
                level.turns.turn = turns.turn;
                level.turns.in_a_row = turns.in_a_row;
                level.turns.current =
                    turns.current.and_then(|arrival| found.get(&(*number, arrival)).copied());
            }
        }
        Ok(found)
    }
}

fn expect(fits: bool, problem: impl FnOnce() -> String) -> Result<(), RestoreError> {
    if fits { Ok(()) } else { Err(RestoreError::Inconsistent(problem())) }
}

fn lane_at(engine: &mut Engine, number: u32) -> Result<&mut crate::lane::Lane, RestoreError> {
    let problem = || RestoreError::Inconsistent(format!("lane number {number} is not known"));
    engine.lanes.get_mut(number as usize).ok_or_else(problem)
}

/// Waiting jobs by number, finished ones by the number of their end: the order in which they stood.
fn restore_jobs(
    engine: &mut Engine,
    mut jobs: Vec<JobRecord>,
    tenants: &TenantsByArrival,
) -> Result<(), RestoreError> {
    jobs.sort_unstable_by_key(|job| match job.state.phase {
        PhaseRecord::Finished { number, .. } => number,
        _ => job.state.seq,
    });
    for record in jobs {
        let at = (record.lane, record.tenant);
        let Some(tenant) = tenants.get(&at).copied() else {
            return Err(RestoreError::Inconsistent(format!("the tenant of job {} is not known", record.id)));
        };
        restore_job(engine, record, tenant)?;
    }
    Ok(())
}

fn restore_job(engine: &mut Engine, record: JobRecord, tenant: TenantIx) -> Result<(), RestoreError> {
    let (id, lane) = (record.id, LaneIx(record.lane));
    let chain: Vec<_> = record.chain.iter().map(|upstream| UpstreamIx(*upstream)).collect();
    let known = chain.iter().all(|upstream| (upstream.0 as usize) < engine.upstreams.len());
    expect(known, || format!("an upstream of job {id} is not known"))?;
    let state = lane_at(engine, record.lane)?;
    state.tenants.hold(tenant);
    let chain = state.group(&chain);
    let times = (record.created_at, record.expires_at);
    let payload = record.payload.0;
    let mut job = Job::new(id, lane, tenant, record.level, record.state.seq, times, chain, payload);
    let keys = (record.key, record.cache_key);
    let JobRecordParts { phase, result_bytes } = fill(&mut job, record.state, keys, record.replay_of);
    if !matches!(phase, PhaseRecord::Finished { .. }) && !record.holds.is_empty() {
        job.rare().holds = Some(restore_holds(engine, id, &record.holds)?);
    }
    let index = engine.jobs.restore(job);
    engine.jobs.bytes += result_bytes;
    match phase {
        PhaseRecord::Pending { due } => engine.wait(index, Some(due)),
        PhaseRecord::Queued => engine.wait(index, None),
        PhaseRecord::Coalesced => {
            let waiter = engine.jobs[index].waiter(index);
            engine.lane_mut(lane).enter(&waiter);
            engine.stand_aside(index);
        }
        PhaseRecord::Processing(lease, record) => {
            engine.jobs[index].phase = Phase::Processing { lease };
            engine.begin_processing(index);
            let awaiting = record.used_by == UseRecord::Awaiting;
            let used_by = if awaiting { Use::Awaiting(index) } else { Use::Job(index, lane) };
            restore_lease(engine, lease, &record, used_by)?;
        }
        PhaseRecord::Finished { at, number, status, dropped, served } => {
            engine.jobs[index].phase = Phase::Finished { at, number, status, dropped, served };
            engine.lane_mut(lane).finished.push(at, index);
        }
    }
    Ok(())
}

struct JobRecordParts {
    phase: PhaseRecord,
    result_bytes: u64,
}

fn fill(
    job: &mut Job,
    state: super::record::JobState,
    (key, cache_key): (Option<Arc<str>>, Option<Arc<str>>),
    replay_of: Option<JobId>,
) -> JobRecordParts {
    job.tried = state.tried;
    job.attempts = state.attempts;
    job.lost = state.lost;
    job.upstream = state.upstream.map(UpstreamIx);
    let result_bytes = state.result.as_ref().map_or(0, |result| result.0.len() as u64);
    let timeline: Vec<_> = state
        .timeline
        .into_iter()
        .map(|event| Event { at: event.at, kind: event.kind.map(UpstreamIx) })
        .collect();
    if key.is_some()
        || cache_key.is_some()
        || replay_of.is_some()
        || state.failure.is_some()
        || state.result.is_some()
        || !timeline.is_empty()
    {
        let rare = job.rare();
        rare.key = key;
        rare.cache_key = cache_key;
        rare.replay_of = replay_of;
        rare.failure = state.failure;
        rare.result = state.result.map(|result| result.0);
        rare.timeline = timeline;
    }
    JobRecordParts { phase: state.phase, result_bytes }
}

fn restore_holds(
    engine: &mut Engine,
    job: JobId,
    holds: &[(u32, Arc<str>, crate::Tokens)],
) -> Result<Arc<[JobHold]>, RestoreError> {
    let mut restored = Vec::with_capacity(holds.len());
    for (upstream, key, tokens) in holds {
        let bucket = engine.buckets.find(key);
        let problem = || RestoreError::Inconsistent(format!("bucket {key:?} of job {job} is not known"));
        let bucket = bucket.ok_or_else(problem)?;
        engine.buckets.add_user(bucket);
        restored.push(JobHold { upstream: UpstreamIx(*upstream), bucket, tokens: *tokens });
    }
    Ok(restored.into())
}

fn restore_lease(
    engine: &mut Engine,
    id: LeaseId,
    record: &LeaseRecord,
    used_by: Use,
) -> Result<(), RestoreError> {
    let mut holds = Vec::with_capacity(record.holds.len());
    for (key, tokens) in &record.holds {
        let problem = || RestoreError::Inconsistent(format!("bucket {key:?} of lease {id} is not known"));
        let bucket = engine.buckets.find(key).ok_or_else(problem)?;
        engine.buckets.add_user(bucket);
        holds.push((bucket, *tokens));
    }
    if let Some(lane) = used_by.lane() {
        lane_at(engine, lane.0)?.gates.reenter();
    }
    let upstream = record.upstream.map(UpstreamIx);
    if let Some(upstream) = upstream {
        engine.upstreams[upstream.0 as usize].gates.reenter();
    }
    engine.leases.restore(id, Lease { used_by, upstream, pass: record.pass, holds, expires: record.expires });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_and_unreadable_records_are_refused() {
        let mut restorer = Restorer::default();
        assert!(matches!(
            restorer.apply(&[VERSION + 1]),
            Err(RestoreError::NewerVersion { found: 2, known: 1 })
        ));
        assert!(matches!(restorer.apply(&[VERSION, 0xff, 0xff]), Err(RestoreError::Unreadable(_))));
        assert!(restorer.apply(&[VERSION]).is_ok());
    }

    #[test]
    fn a_job_without_its_tenant_is_refused() {
        let mut chunk = Engine::begin_chunk();
        let upstream = crate::UpstreamSpec::new(Name::new("api").unwrap(), crate::gate::GateSpecs::default());
        let chain = crate::Chain::new(vec![upstream.name.clone()]).unwrap();
        let lane = crate::LaneSpec::new(Name::new("work").unwrap(), chain);
        let spec = Spec::new(vec![lane], vec![upstream]).unwrap();
        let mut engine = Engine::new(&spec);
        let job = crate::NewJob::new(JobId(1), Name::new("work").unwrap(), "acme", *b"x");
        engine.enqueue(vec![job], crate::Time::from_millis(1));
        engine.save_changes(&mut chunk).unwrap();
        let mut restorer = Restorer::default();
        restorer.apply(&chunk).unwrap();
        restorer.tenants.clear();
        assert!(matches!(restorer.finish(&spec), Err(RestoreError::Inconsistent(_))));
    }
}
