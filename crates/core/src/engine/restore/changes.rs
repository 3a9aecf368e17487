//! The newest record of each thing.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use super::super::Engine;
use super::super::alerts::history::History;
use super::super::alerts::{AlertMeters, AlertState};
use super::super::bulk::Bulk;
use super::super::codes::CodeCount;
use super::super::debits::Debit;
use super::super::history::{KeptGateChange, LaneMinute, MAX_TRANSITIONS, RunningMinute, UpstreamMinute};
use super::super::record::{JobRecord, LaneRecord, LeaseRecord, Record, TenantRecord};
use crate::alert::{Alert, AlertKey};
use crate::charge::Terms;
use crate::dead_letter::{ChainState, DeadLetter};
use crate::gate::{Bucket, BucketSpec, Gates};
use crate::ids::{JobId, LeaseId, Name};
use crate::job::Payload;
use crate::lane::{Entry, Holds, KeyEntry};
use crate::policy::Correlation;
use crate::spec::LaneSpec;
use crate::table::{JobIx, LaneIx};
use crate::time::Time;
use crate::verbs::MAX_MINUTES;
use crate::views::LastFailure;

/// Things by identity; `None` if a thing is gone.
type Things<K, V> = BTreeMap<K, Option<V>>;

/// Boxed, because the table is moved as it grows.
type JobRecords = HashMap<JobId, Option<Box<JobRecord>>, foldhash::fast::FixedState>;

pub(super) type JobCorrelations = HashMap<JobId, Correlation, foldhash::fast::FixedState>;

/// Stamp, description of the process, and rules.
type RegistrationRecord = (u64, Arc<str>, Payload);

#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Whether these change an existing engine: what is gone must then be removed from it.
    of_an_engine: bool,
    pub(super) lanes: BTreeMap<u32, LaneRecord>,
    pub(super) upstreams: BTreeMap<u32, (Name, Gates)>,
    pub(super) tenants: Things<(u32, u64), TenantRecord>,
    pub(super) jobs: JobRecords,
    pub(super) leases: Things<LeaseId, LeaseRecord>,
    pub(super) buckets: Things<Arc<str>, (BucketSpec, Bucket)>,
    pub(super) dead: Things<(u32, u64), (JobId, Box<DeadLetter>)>,
    pub(super) keys: Things<(u32, Arc<str>), KeyEntry>,
    pub(super) cache: Things<(u32, Arc<str>), Entry>,
    pub(super) lane_rules: BTreeMap<u32, Payload>,
    pub(super) upstream_rules: BTreeMap<u32, Payload>,
    pub(super) registrations: Things<u64, RegistrationRecord>,
    pub(super) job_correlations: JobCorrelations,
    pub(super) lease_correlations: BTreeMap<LeaseId, Correlation>,
    pub(super) dead_correlations: BTreeMap<(u32, u64), Correlation>,
    pub(super) terms: BTreeMap<Arc<str>, Arc<Terms>>,
    pub(super) debits: Things<Correlation, Debit>,
    pub(super) schedules: BTreeMap<Name, Time>,
    pub(super) bulks: Things<JobId, Bulk>,
    pub(super) chain_states: Things<(u32, Vec<Name>), ChainState>,
    pub(super) codes: Things<(u32, Arc<str>), CodeCount>,
    pub(super) holds: BTreeMap<u32, Holds>,
    pub(super) failures: BTreeMap<u32, LastFailure>,
    pub(super) alerts: AlertChangesRead,
    pub(super) history: HistoryRead,
}

#[derive(Debug, Default)]
pub(super) struct AlertChangesRead {
    pub(super) watched: Things<AlertKey, AlertState>,
    pub(super) histories: BTreeMap<u32, History>,
    pub(super) resolved: Option<Vec<Alert>>,
    pub(super) meters: Option<AlertMeters>,
}

/// The history. A point has the place of the one a day before, a transition that of the one it replaces.
#[derive(Debug, Default)]
pub(super) struct HistoryRead {
    pub(super) lanes: BTreeMap<(Option<u32>, u32), LaneMinute>,
    pub(super) upstreams: BTreeMap<(u32, u32), UpstreamMinute>,
    pub(super) transitions: BTreeMap<(u32, u64), (u64, KeptGateChange)>,
    pub(super) running: Option<RunningMinute>,
}

impl Changes {
    pub(super) fn of_an_engine() -> Self {
        Self { of_an_engine: true, ..Self::default() }
    }

    /// Adds a record that is newer than all before it and than `engine`.
    pub(super) fn gather(&mut self, record: Record, engine: &Engine) {
        let kept = self.of_an_engine;
        match record {
            Record::Lane(lane) => drop(self.lanes.insert(lane.number, *lane)),
            Record::Upstream { number, name, gates } => drop(self.upstreams.insert(number, (name, gates))),
            Record::Tenant(tenant) => {
                drop(self.tenants.insert((tenant.lane, tenant.arrival), Some(tenant)));
            }
            Record::TenantGone { lane, arrival } => remove(&mut self.tenants, (lane, arrival), kept),
            Record::Lease(id, lease) => drop(self.leases.insert(id, Some(lease))),
            Record::LeaseGone(id) => {
                self.lease_correlations.remove(&id);
                remove(&mut self.leases, id, kept);
            }
            Record::Bucket { key, spec, bucket } => drop(self.buckets.insert(key, Some((spec, bucket)))),
            Record::BucketGone(key) => remove(&mut self.buckets, key, kept),
            Record::Dead { lane, number, job, letter } => {
                // If it still has a correlation, that record follows.
                self.dead_correlations.remove(&(lane, number));
                drop(self.dead.insert((lane, number), Some((job, letter))));
            }
            Record::DeadGone { lane, number } => {
                self.dead_correlations.remove(&(lane, number));
                remove(&mut self.dead, (lane, number), kept);
            }
            Record::DeadCorrelation { lane, number, correlation } => {
                self.dead_correlations.insert((lane, number), correlation);
            }
            Record::Key { lane, key, entry } => drop(self.keys.insert((lane, key), Some(entry))),
            Record::KeyGone { lane, key } => remove(&mut self.keys, (lane, key), kept),
            Record::Cache { lane, key, answer, stored_at, number } => {
                drop(self.cache.insert((lane, key), Some(Entry { answer, stored_at, number })));
            }
            Record::CacheGone { lane, key } => remove(&mut self.cache, (lane, key), kept),
            Record::LaneRules { number, rules } => drop(self.lane_rules.insert(number, rules)),
            Record::UpstreamRules { number, rules } => drop(self.upstream_rules.insert(number, rules)),
            Record::Registration { process, stamp, about, spec } => {
                drop(self.registrations.insert(process, Some((stamp, about, spec))));
            }
            Record::RegistrationGone(process) => remove(&mut self.registrations, process, kept),
            Record::Terms { family, terms } => drop(self.terms.insert(family, terms)),
            Record::LeaseCorrelation { id, correlation } => {
                self.lease_correlations.insert(id, correlation);
            }
            Record::Debit { correlation, debit } => drop(self.debits.insert(correlation, Some(debit))),
            Record::DebitGone(correlation) => remove(&mut self.debits, correlation, kept),
            Record::Schedule { name, last } => drop(self.schedules.insert(name, last)),
            Record::Alert { key, state } => drop(self.alerts.watched.insert(*key, Some(state))),
            Record::AlertGone(key) => remove(&mut self.alerts.watched, *key, kept),
            Record::AlertHistory { lane, history } => drop(self.alerts.histories.insert(lane, history)),
            Record::AlertsResolved(resolved) => self.alerts.resolved = Some(resolved),
            Record::AlertMeters(meters) => self.alerts.meters = Some(meters),
            Record::Bulk(bulk) => drop(self.bulks.insert(bulk.id, Some(*bulk))),
            Record::BulkGone(id) => remove(&mut self.bulks, id, kept),
            Record::RedriveState { lane, chain, state } => {
                self.chain_states.insert((lane, chain), Some(state));
            }
            Record::RedriveStateGone { lane, chain } => remove(&mut self.chain_states, (lane, chain), kept),
            Record::Code { upstream, code, count } => drop(self.codes.insert((upstream, code), Some(count))),
            Record::CodeGone { upstream, code } => remove(&mut self.codes, (upstream, code), kept),
            Record::LaneMinute { lane, point } => {
                self.history.lanes.insert((lane, point.minute % MAX_MINUTES), point);
            }
            Record::UpstreamMinute { upstream, point } => {
                self.history.upstreams.insert((upstream, point.minute % MAX_MINUTES), point);
            }
            Record::GateChange { upstream, number, change } => {
                self.history.transitions.insert((upstream, number % MAX_TRANSITIONS), (number, change));
            }
            Record::RunningMinute(running) => self.history.running = Some(running),
            Record::LaneHolds { lane, holds } => drop(self.holds.insert(lane, holds)),
            Record::UpstreamFailure { upstream, failure } => drop(self.failures.insert(upstream, failure)),
            record => self.gather_job(record, engine),
        }
    }

    fn gather_job(&mut self, record: Record, engine: &Engine) {
        match record {
            Record::Job(job) => {
                // A record that was only saved again, so that old chunks can be deleted, changes nothing.
                let new = || engine.record_of(job.id).is_none_or(|(known, _)| known != *job);
                if !self.of_an_engine || self.jobs.contains_key(&job.id) || new() {
                    self.jobs.insert(job.id, Some(job));
                }
            }
            Record::JobState { id, state } => match self.jobs.get_mut(&id) {
                Some(Some(job)) => job.state = *state,
                // A later record has all of it, or says that it is gone.
                Some(None) => {}
                None => {
                    let Some((known, correlation)) = engine.record_of(id) else { return };
                    if known.state != *state {
                        self.jobs.insert(id, Some(Box::new(JobRecord { state: *state, ..known })));
                        self.job_correlations.extend(correlation.map(|correlation| (id, correlation)));
                    }
                }
            },
            Record::JobSubmission { id, state, submission } => match self.jobs.get_mut(&id) {
                Some(Some(job)) => (job.state, job.submission) = (*state, Some(submission)),
                Some(None) => {}
                None => {
                    let Some((known, correlation)) = engine.record_of(id) else { return };
                    if known.state != *state || known.submission.as_ref() != Some(&submission) {
                        let job = JobRecord { state: *state, submission: Some(submission), ..known };
                        self.jobs.insert(id, Some(Box::new(job)));
                        self.job_correlations.extend(correlation.map(|correlation| (id, correlation)));
                    }
                }
            },
            Record::JobGone(id) => {
                self.job_correlations.remove(&id);
                if self.of_an_engine {
                    self.jobs.insert(id, None);
                } else {
                    self.jobs.remove(&id);
                }
            }
            Record::JobCallback { id, url } => {
                if let Some(Some(job)) = self.jobs.get_mut(&id) {
                    job.callback = Some(url);
                }
            }
            Record::JobCorrelation { id, correlation } => {
                self.job_correlations.insert(id, correlation);
            }
            _ => {}
        }
    }

    /// Adds waiting jobs of `engine` that must move although no record mentions them: the answer that they may get has
    /// changed, or the rules of their lane that determine their lines.
    pub(super) fn add_dependents(&mut self, engine: &Engine, rules: &[(u32, LaneSpec)]) {
        for (lane, key) in self.cache.keys().cloned().collect::<Vec<_>>() {
            let Some(state) = engine.lanes.get(lane as usize) else { continue };
            state.equals.waiting_for(&key).for_each(|job| self.add_job(engine, job));
        }
        for (number, rules) in rules {
            let old = engine.lanes.get(*number as usize).and_then(|lane| lane.spec.as_ref());
            let same = |old: &LaneSpec| {
                old.fairness.is_some() == rules.fairness.is_some()
                    && old.tenant_limits.is_empty() == rules.tenant_limits.is_empty()
                    && old.cache == rules.cache
            };
            if old.is_some_and(same) {
                continue;
            }
            let lane = LaneIx(*number);
            let waiting = engine.jobs.iter().filter(|(_, job)| job.lane == lane && job.is_waiting());
            waiting.for_each(|(job, _)| self.add_job(engine, job));
        }
    }

    fn add_job(&mut self, engine: &Engine, job: JobIx) {
        let id = engine.jobs[job].id;
        if !self.jobs.contains_key(&id)
            && let Some((record, correlation)) = engine.record_of(id)
        {
            self.jobs.insert(id, Some(Box::new(record)));
            self.job_correlations.extend(correlation.map(|correlation| (id, correlation)));
        }
    }
}

/// `kept`: remember that it is gone.
fn remove<K: Ord, V>(things: &mut Things<K, V>, key: K, kept: bool) {
    if kept {
        things.insert(key, None);
    } else {
        things.remove(&key);
    }
}
