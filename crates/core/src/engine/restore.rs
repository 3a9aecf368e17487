//! From records back to the engine's state.
//!
//! Records are applied in the order in which they were written; the newest of a thing wins. Whatever can be derived
//! (lines, orders, counters of what is in flight) is not in the records and is built anew at the end.

mod jobs;

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use thiserror::Error;

use self::jobs::{restore_jobs, restore_lease};
use super::Engine;
use super::debits::Debit;
use super::leases::Use;
use super::record::{JobRecord, LaneRecord, LeaseRecord, Record, TenantRecord, UseRecord};
use super::rules::{ProcessId, Registration};
use crate::charge::Terms;
use crate::dead_letter::DeadLetter;
use crate::gate::{Bucket, BucketSpec, Gates};
use crate::ids::{JobId, LeaseId, Name};
use crate::job::Payload;
use crate::lane::{Entry, KeyEntry, Tenant};
use crate::layout::{LayoutError, decode_gates, decode_lane, decode_spec, read_records};
use crate::policy::{Correlation, HashKey};
use crate::table::{LaneIx, TenantIx};
use crate::time::{SteadyTime, Time};

/// Records that cannot be read.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// Not readable, or written by a newer program.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Readable, but they do not fit together.
    #[error("the records do not fit together: {0}")]
    Inconsistent(String),
}

/// Gathers records and makes an engine of them.
#[derive(Debug, Default)]
pub struct Restorer {
    epoch: u64,
    next_lease: u64,
    time: SteadyTime,
    lanes: BTreeMap<u32, LaneRecord>,
    upstreams: BTreeMap<u32, (Name, Gates)>,
    tenants: BTreeMap<(u32, u64), TenantRecord>,
    /// Boxed, because the table is moved as it grows.
    jobs: HashMap<JobId, Box<JobRecord>, foldhash::fast::FixedState>,
    leases: BTreeMap<LeaseId, LeaseRecord>,
    buckets: BTreeMap<Arc<str>, (BucketSpec, Bucket)>,
    dead: BTreeMap<(u32, u64), (JobId, Box<DeadLetter>)>,
    keys: BTreeMap<(u32, Arc<str>), KeyEntry>,
    cache: BTreeMap<(u32, Arc<str>), Entry>,
    lane_rules: BTreeMap<u32, Payload>,
    upstream_rules: BTreeMap<u32, Payload>,
    registrations: BTreeMap<u64, RegistrationRecord>,
    job_correlations: JobCorrelations,
    lease_correlations: BTreeMap<LeaseId, Correlation>,
    terms: BTreeMap<Arc<str>, Arc<Terms>>,
    debits: BTreeMap<Correlation, Debit>,
    hash_key: Option<HashKey>,
}

#[derive(Debug)]
struct RegistrationRecord {
    stamp: u64,
    about: Arc<str>,
    spec: Payload,
}

type JobCorrelations = HashMap<JobId, Correlation, foldhash::fast::FixedState>;

/// Tenants by number of their lane and arrival.
type TenantsByArrival = HashMap<(u32, u64), TenantIx, foldhash::fast::FixedState>;

impl Restorer {
    /// Applies the records of one chunk. Chunks must come in the order in which they were written.
    pub fn apply(&mut self, chunk: &[u8]) -> Result<(), RestoreError> {
        Ok(read_records(chunk, |record| self.apply_one(record))?)
    }

    fn apply_one(&mut self, record: Record) {
        match record {
            Record::Meta { epoch, next_lease, time } => {
                self.epoch = self.epoch.max(epoch);
                self.next_lease = self.next_lease.max(next_lease);
                if time.last() >= self.time.last() {
                    self.time = time;
                }
            }
            Record::Lane(lane) => drop(self.lanes.insert(lane.number, *lane)),
            Record::Upstream { number, name, gates } => drop(self.upstreams.insert(number, (name, gates))),
            Record::Tenant(tenant) => drop(self.tenants.insert((tenant.lane, tenant.arrival), tenant)),
            Record::TenantGone { lane, arrival } => drop(self.tenants.remove(&(lane, arrival))),
            Record::Job(job) => drop(self.jobs.insert(job.id, job)),
            Record::JobState { id, state } => {
                // A job that is not known was let go of and will be written anew, or is gone, further on.
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.state = *state;
                }
            }
            Record::JobGone(id) => {
                self.job_correlations.remove(&id);
                self.jobs.remove(&id);
            }
            Record::Lease(id, lease) => drop(self.leases.insert(id, lease)),
            Record::LeaseGone(id) => {
                self.lease_correlations.remove(&id);
                self.leases.remove(&id);
            }
            Record::Bucket { key, spec, bucket } => drop(self.buckets.insert(key, (spec, bucket))),
            Record::BucketGone(key) => drop(self.buckets.remove(&key)),
            Record::Dead { lane, number, job, letter } => {
                drop(self.dead.insert((lane, number), (job, letter)));
            }
            Record::DeadGone { lane, number } => drop(self.dead.remove(&(lane, number))),
            Record::Key { lane, key, entry } => drop(self.keys.insert((lane, key), entry)),
            Record::KeyGone { lane, key } => drop(self.keys.remove(&(lane, key))),
            Record::Cache { lane, key, answer, stored_at, number } => {
                drop(self.cache.insert((lane, key), Entry { answer, stored_at, number }));
            }
            Record::CacheGone { lane, key } => drop(self.cache.remove(&(lane, key))),
            Record::LaneRules { number, rules } => drop(self.lane_rules.insert(number, rules)),
            Record::UpstreamRules { number, rules } => drop(self.upstream_rules.insert(number, rules)),
            Record::Registration { process, stamp, about, spec } => {
                let record = RegistrationRecord { stamp, about, spec };
                drop(self.registrations.insert(process, record));
            }
            Record::RegistrationGone(process) => drop(self.registrations.remove(&process)),
            Record::Terms { family, terms } => drop(self.terms.insert(family, terms)),
            Record::JobCorrelation { id, correlation } => {
                self.job_correlations.insert(id, correlation);
            }
            Record::LeaseCorrelation { id, correlation } => {
                self.lease_correlations.insert(id, correlation);
            }
            Record::Debit { correlation, debit } => drop(self.debits.insert(correlation, debit)),
            Record::DebitGone(correlation) => drop(self.debits.remove(&correlation)),
            Record::HashKey(key) => self.hash_key = Some(key),
        }
    }

    /// An epoch in which no lease was issued yet, for a store whose journal has one owner ever.
    pub fn next_epoch(&self) -> u64 {
        self.epoch + 1
    }

    /// The engine that wrote the records, under the rules it had. It issues leases of `epoch`, in which none may have been
    /// issued before.
    pub fn finish(mut self, epoch: u64) -> Result<Engine, RestoreError> {
        let mut engine = Engine::default();
        engine.leases.epoch = epoch;
        engine.leases.next_number = self.next_lease;
        engine.time = self.time;
        engine.saved_ahead_ms = Some(self.time.ahead_ms());
        self.restore_gates(&mut engine)?;
        self.restore_rules(&mut engine)?;
        let tenants = self.restore_tenants(&mut engine)?;
        engine.hash_key = self.hash_key;
        for (family, terms) in self.terms {
            engine.buckets.families_mut().restore(&family, terms);
        }
        for (correlation, debit) in self.debits {
            engine.debits.restore(correlation, debit);
        }
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
        restore_jobs(&mut engine, self.jobs.into_values().collect(), &tenants, &self.job_correlations)?;
        for (id, record) in self.leases {
            let lane = record.lane.map(LaneIx);
            let later = record.used_by == UseRecord::LaterCall;
            let used_by = if later { Use::LaterCall(lane) } else { Use::Call(lane) };
            let correlation = self.lease_correlations.get(&id).copied();
            restore_lease(&mut engine, id, &record, used_by, correlation)?;
        }
        // What came from the records need not go there again.
        engine.jobs.drain_changes(|_| {});
        Ok(engine)
    }

    /// Nothing is made to fit: the records were written under these rules.
    fn restore_rules(&mut self, engine: &mut Engine) -> Result<(), RestoreError> {
        for (number, rules) in std::mem::take(&mut self.upstream_rules) {
            let problem = || RestoreError::Inconsistent(format!("upstream number {number} is not known"));
            let upstream = engine.upstreams.get_mut(number as usize).ok_or_else(problem)?;
            upstream.spec = Some(decode_gates(&rules)?);
        }
        for (number, rules) in std::mem::take(&mut self.lane_rules) {
            let rules = decode_lane(&rules)?;
            lane_at(engine, number)?.spec = Some(rules.clone());
            engine.set_default_chain(LaneIx(number), &rules);
        }
        for (process, record) in std::mem::take(&mut self.registrations) {
            let RegistrationRecord { stamp, about, spec } = record;
            let spec = Arc::new(decode_spec(&spec)?);
            engine.rules.restore(Registration { process: ProcessId(process), stamp, about, spec });
        }
        engine.follow_rules(Time::default());
        Ok(())
    }

    fn restore_gates(&mut self, engine: &mut Engine) -> Result<(), RestoreError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::RECORD_VERSION;

    #[test]
    fn newer_and_unreadable_records_are_refused() {
        let mut restorer = Restorer::default();
        assert!(matches!(
            restorer.apply(&[RECORD_VERSION + 1]),
            Err(RestoreError::Layout(LayoutError::NewerVersion { found: 3, known: 2 }))
        ));
        let unreadable = restorer.apply(&[RECORD_VERSION, 0xff, 0xff]);
        assert!(matches!(unreadable, Err(RestoreError::Layout(LayoutError::Unreadable(_)))));
        assert!(restorer.apply(&[RECORD_VERSION]).is_ok());
    }

    #[test]
    fn a_job_without_its_tenant_is_refused() {
        let mut chunk = Engine::begin_chunk();
        let upstream = crate::UpstreamSpec::new(Name::new("api").unwrap(), crate::gate::GateSpecs::default());
        let chain = crate::Chain::new(vec![upstream.name.clone()]).unwrap();
        let lane = crate::LaneSpec::new(Name::new("work").unwrap(), chain);
        let spec = crate::Spec::new(vec![lane], vec![upstream]).unwrap();
        let mut engine = Engine::new(&spec);
        let job = crate::NewJob::new(JobId(1), Name::new("work").unwrap(), "acme", *b"x");
        engine.enqueue(vec![job], crate::Time::from_millis(1));
        engine.save_changes(&mut chunk).unwrap();
        let mut restorer = Restorer::default();
        restorer.apply(&chunk).unwrap();
        restorer.tenants.clear();
        assert!(matches!(restorer.finish(1), Err(RestoreError::Inconsistent(_))));
    }
}
