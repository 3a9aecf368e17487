//! Saving: from the engine's state to records.

mod policies;

use std::sync::Arc;

use thiserror::Error;

use self::policies::{job_correlation, lease_correlation};
use super::jobs::{Job, JobChange, Phase};
use super::leases::{Lease, Use};
use super::record::{
    JobRecord, JobState, LaneRecord, LeaseRecord, PhaseRecord, Record, SettledRecord, TenantRecord,
    TurnsRecord, UseRecord,
};
use super::rules::Registration;
use super::{Engine, Mentions, Upstream};
use crate::dead_letter::{ChainState, Kept};
use crate::ids::{JobId, Name};
use crate::job::Level;
use crate::lane::{Entry, Lane, Tenant};
use crate::layout::{RECORD_VERSION, append_record, encode_gates, encode_lane, encode_spec};
use crate::policy::Correlation;
use crate::table::UpstreamIx;
use crate::timeline::Event;
use crate::verbs::Settled;

/// A record could not be encoded.
#[derive(Debug, Error)]
#[error("a change could not be encoded: {0}")]
pub struct SaveError(#[from] postcard::Error);

/// Writes records one after the other.
struct Writer<'a> {
    chunk: &'a mut Vec<u8>,
    mentions: Mentions,
    result: Result<(), SaveError>,
}

impl Writer<'_> {
    fn write(&mut self, record: &Record) {
        self.mentions.note(record);
        if let Err(error) = append_record(record, self.chunk) {
            self.result = Err(error.into());
        }
    }
}

impl Engine {
    /// Starts a chunk of records.
    pub fn begin_chunk() -> Vec<u8> {
        vec![RECORD_VERSION]
    }

    /// Whether there are unsaved changes.
    pub fn has_changes(&self) -> bool {
        self.saved_ahead_ms != Some(self.time.ahead_ms())
            || self.rules.has_changes()
            || self.jobs.has_changes()
            || self.leases.has_changes()
            || self.buckets.has_changes()
            || self.debits.has_changes()
            || self.hash_key_unsaved
            || self.schedules.has_changes()
            || self.alerts.has_changes()
            || self.bulks.has_changes()
            || self.codes.has_changes()
            || self.history.has_changes()
            || self.upstreams.iter().any(|upstream| upstream.dirty || upstream.calls.has_changes())
            || self.lanes.iter().any(Lane::has_changes)
    }

    /// Appends everything that changed since the last call to `chunk`, and returns what these records mention. Unless
    /// nothing changed, the time comes first, so that it never goes back when the records are read. Can be called after
    /// every verb or after many.
    pub fn save_changes(&mut self, chunk: &mut Vec<u8>) -> Result<Mentions, SaveError> {
        if !self.has_changes() {
            return Ok(Mentions::default());
        }
        let mut writer = Writer { chunk, mentions: Mentions::default(), result: Ok(()) };
        self.saved_ahead_ms = Some(self.time.ahead_ms());
        writer.write(&self.meta_record());
        self.save_rules(&mut writer);
        for number in 0..self.upstreams.len() {
            if std::mem::take(&mut self.upstreams[number].dirty) {
                writer.write(&self.upstream_record(number));
            }
        }
        for (number, upstream) in (0..).zip(&mut self.upstreams) {
            upstream.calls.drain_failure(number).iter().for_each(|record| writer.write(record));
        }
        self.save_policies(&mut writer);
        self.schedules.drain_changes().iter().for_each(|record| writer.write(record));
        self.alerts.drain_changes().iter().for_each(|record| writer.write(record));
        self.bulks.drain_changes().iter().for_each(|record| writer.write(record));
        self.codes.drain_changes().iter().for_each(|record| writer.write(record));
        self.history.drain_changes().iter().for_each(|record| writer.write(record));
        for (number, lane) in (0..).zip(&mut self.lanes) {
            save_lane(number, lane, &mut writer);
        }
        self.save_jobs(&mut writer);
        self.save_leases(&mut writer);
        writer.result.map(|()| writer.mentions)
    }

    /// Discards the changes since the last call, for stores without a journal.
    pub fn forget_changes(&mut self) {
        self.rules.drain_changes(|_, _| {});
        self.rules.unsaved_upstreams.clear();
        self.rules.unsaved_lanes.clear();
        self.forget_policy_changes();
        self.schedules.drain_changes();
        self.alerts.drain_changes();
        self.bulks.drain_changes();
        self.codes.drain_changes();
        self.history.drain_changes();
        self.jobs.drain_changes(|_| {});
        self.leases.drain_changes(|_, _| {});
        for upstream in &mut self.upstreams {
            upstream.calls.drain_failure(0);
        }
        for lane in &mut self.lanes {
            lane.holds_dirty = false;
            lane.tenants.drain_changes(|_, _| {});
            lane.dead.drain_changes(|_, _| {});
            lane.dead.drain_chain_states(|_, _| {});
            lane.keys.drain_changes(|_, _| {});
            lane.cache.drain_changes(|_, _| {});
        }
    }

    fn save_rules(&mut self, writer: &mut Writer<'_>) {
        self.rules.drain_changes(|process, registration| {
            writer.write(&registration.map_or(Record::RegistrationGone(process.0), registration_record));
        });
        for number in std::mem::take(&mut self.rules.unsaved_upstreams) {
            upstream_rules(number, &self.upstreams[number]).iter().for_each(|record| writer.write(record));
        }
        for number in std::mem::take(&mut self.rules.unsaved_lanes) {
            lane_rules(number, &self.lanes[number]).iter().for_each(|record| writer.write(record));
        }
    }

    fn save_jobs(&mut self, writer: &mut Writer<'_>) {
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.drain_changes(|change| match change {
            JobChange::All(job) => {
                writer.write(&Record::Job(Box::new(self.job_record(job))));
                job_correlation(job).iter().for_each(|record| writer.write(record));
                self.submission_record(job).iter().for_each(|record| writer.write(record));
                job_callback(job).iter().for_each(|record| writer.write(record));
            }
            JobChange::State(job) => {
                let state = || Record::JobState { id: job.id, state: Box::new(self.job_state(job)) };
                writer.write(&self.submission_record(job).unwrap_or_else(state));
            }
            JobChange::Gone(id) => writer.write(&Record::JobGone(id)),
        });
        self.jobs = jobs;
    }

    fn save_leases(&mut self, writer: &mut Writer<'_>) {
        let mut leases = std::mem::take(&mut self.leases);
        leases.drain_changes(|id, lease| match lease.filter(|lease| lease.used_by.job().is_none()) {
            Some(lease) => {
                writer.write(&Record::Lease(id, self.lease_record(lease)));
                lease_correlation(id, lease).iter().for_each(|record| writer.write(record));
            }
            None => writer.write(&Record::LeaseGone(id)),
        });
        self.leases = leases;
    }

    /// The complete state, one record per thing, sorted: engines are equal if their snapshots are.
    pub fn snapshot(&self) -> Result<Vec<Vec<u8>>, SaveError> {
        let mut records = vec![self.meta_record()];
        records.extend(self.rules.iter().map(registration_record));
        records.extend((0..self.upstreams.len()).map(|number| self.upstream_record(number)));
        records.extend(
            (0..).zip(&self.upstreams).filter_map(|(number, upstream)| upstream_rules(number, upstream)),
        );
        records.extend((0..).zip(&self.lanes).filter_map(|(number, lane)| lane_rules(number, lane)));
        records.extend(
            (0..).zip(&self.upstreams).filter_map(|(number, upstream)| upstream.calls.failure_record(number)),
        );
        records.extend(self.policy_records());
        records.extend(self.schedules.records());
        records.extend(self.alerts.records());
        records.extend(self.bulks.records());
        records.extend(self.codes.records());
        records.extend(self.history.records());
        for (number, lane) in (0..).zip(&self.lanes) {
            records.push(Record::Lane(Box::new(lane_record(number, lane))));
            records.push(holds_record(number, lane));
            let tenants = lane.tenants.iter_from(crate::table::TenantIx(0));
            records.extend(tenants.map(|(_, tenant)| Record::Tenant(tenant_record(number, tenant))));
            records.extend(lane.dead.kept_after(0).flat_map(|(at, kept)| dead_records(number, at, kept)));
            let chain_states = lane.dead.chain_states();
            records.extend(
                chain_states.map(|(chain, state)| chain_state_record(number, chain.clone(), Some(*state))),
            );
            records.extend(lane.keys.iter().map(|(key, entry)| Record::Key {
                lane: number,
                key: key.clone(),
                entry: *entry,
            }));
            records.extend(lane.cache.iter().map(|(key, entry)| cache_record(number, key, entry)));
        }
        records.extend(self.jobs.iter().map(|(_, job)| Record::Job(Box::new(self.job_record(job)))));
        records.extend(self.jobs.iter().filter_map(|(_, job)| job_correlation(job)));
        records.extend(self.jobs.iter().filter_map(|(_, job)| self.submission_record(job)));
        records.extend(self.jobs.iter().filter_map(|(_, job)| job_callback(job)));
        let calls = || self.leases.iter().filter(|(_, lease)| lease.used_by.job().is_none());
        records.extend(calls().filter_map(|(id, lease)| lease_correlation(id, lease)));
        records.extend(calls().map(|(id, lease)| Record::Lease(id, self.lease_record(lease))));
        let encode = |record: &Record| {
            let mut bytes = Vec::new();
            append_record(record, &mut bytes).map(|()| bytes)
        };
        let mut encoded = records.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        encoded.sort_unstable();
        Ok(encoded)
    }

    fn meta_record(&self) -> Record {
        Record::Meta { epoch: self.leases.epoch, next_lease: self.leases.next_number, time: self.time }
    }

    fn upstream_record(&self, number: usize) -> Record {
        let upstream = &self.upstreams[number];
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Record::Upstream { number, name: upstream.name.clone(), gates: upstream.gates.clone() }
    }

    /// The record of a job.
    pub(super) fn record_of(&self, id: JobId) -> Option<(JobRecord, Option<Correlation>)> {
        let job = &self.jobs[self.jobs.find(id)?];
        Some((self.job_record(job), job.correlation()))
    }

    fn job_record(&self, job: &Job) -> JobRecord {
        let lane = self.lane(job.lane);
        let rare = job.rare.as_deref();
        let holds = job.holds().into_iter().flat_map(|holds| holds.iter());
        JobRecord {
            id: job.id,
            lane: job.lane.0,
            tenant: lane.tenants[job.tenant].arrival,
            level: job.level,
            created_at: job.created_at,
            expires_at: job.expires_at,
            chain: lane.chain(job.chain).iter().map(|upstream| upstream.0).collect(),
            holds: holds
                .map(|hold| (hold.upstream.0, self.buckets[hold.bucket].key.clone(), hold.tokens))
                .collect(),
            key: rare.and_then(|rare| rare.key.clone()),
            cache_key: job.cache_key().cloned(),
            replay_of: rare.and_then(|rare| rare.replay_of),
            payload: job.payload.clone(),
            state: self.job_state(job),
            submission: job.submission().cloned().map(Box::new),
            callback: job.callback().cloned(),
            waited_until: rare.and_then(|rare| rare.waited_until),
        }
    }

    fn submission_record(&self, job: &Job) -> Option<Record> {
        let submission = Box::new(job.submission()?.clone());
        Some(Record::JobSubmission { id: job.id, state: Box::new(self.job_state(job)), submission })
    }

    fn job_state(&self, job: &Job) -> JobState {
        let rare = job.rare.as_deref();
        let phase = match job.phase {
            Phase::Pending { due } | Phase::HeldBack { since: due, .. } => PhaseRecord::Pending { due },
            Phase::Queued { .. } => PhaseRecord::Queued,
            Phase::Coalesced => PhaseRecord::Coalesced,
            Phase::Processing { lease } => match self.leases.get(lease) {
                Some(held) => PhaseRecord::Processing(lease, self.lease_record(held)),
                None => PhaseRecord::Queued,
            },
            Phase::Finished { at, number, status, dropped, served } => {
                PhaseRecord::Finished { at, number, status, dropped, served }
            }
        };
        JobState {
            seq: job.seq,
            phase,
            tried: job.tried,
            attempts: job.attempts,
            lost: job.lost,
            upstream: job.upstream.map(|upstream| upstream.0),
            failure: rare.and_then(|rare| rare.failure.clone()),
            result: rare.and_then(|rare| rare.result.clone()),
            timeline: job.timeline().iter().map(numbered).collect(),
            settled: job.settled().and_then(|last| Some((last.lease, settled_record(last.how)?))),
        }
    }

    fn lease_record(&self, lease: &Lease) -> LeaseRecord {
        LeaseRecord {
            used_by: match lease.used_by {
                Use::Job(..) => UseRecord::Job,
                Use::Awaiting(_) => UseRecord::Awaiting,
                Use::Call(_) => UseRecord::Call,
                Use::LaterCall(_) => UseRecord::LaterCall,
            },
            lane: lease.used_by.lane().map(|lane| lane.0),
            upstream: lease.upstream.map(|upstream| upstream.0),
            pass: lease.pass,
            holds: lease
                .holds
                .iter()
                .map(|(bucket, hold)| (self.buckets[*bucket].key.clone(), *hold))
                .collect(),
            expires: lease.expires,
            tenant_rate: lease.tenant.rate.map(|bucket| self.buckets[bucket].key.clone()),
            tenant_slot: lease.tenant.slot.map(|bucket| self.buckets[bucket].key.clone()),
        }
    }
}

fn save_lane(number: u32, lane: &mut Lane, writer: &mut Writer<'_>) {
    lane.tenants.drain_changes(|arrival, tenant| {
        let gone = || Record::TenantGone { lane: number, arrival };
        writer.write(&tenant.map_or_else(gone, |tenant| Record::Tenant(tenant_record(number, tenant))));
    });
    lane.dead.drain_changes(|at, kept| match kept {
        Some(kept) => dead_records(number, at, kept).for_each(|record| writer.write(&record)),
        None => writer.write(&Record::DeadGone { lane: number, number: at }),
    });
    lane.dead.drain_chain_states(|chain, state| writer.write(&chain_state_record(number, chain, state)));
    lane.keys.drain_changes(|key, entry| {
        let key = key.clone();
        writer.write(&match entry {
            Some(entry) => Record::Key { lane: number, key, entry: *entry },
            None => Record::KeyGone { lane: number, key },
        });
    });
    lane.cache.drain_changes(|key, entry| {
        let gone = || Record::CacheGone { lane: number, key: key.clone() };
        writer.write(&entry.map_or_else(gone, |entry| cache_record(number, key, entry)));
    });
    if std::mem::take(&mut lane.holds_dirty) {
        writer.write(&holds_record(number, lane));
    }
    if std::mem::take(&mut lane.dirty) {
        writer.write(&Record::Lane(Box::new(lane_record(number, lane))));
    }
}

fn holds_record(number: u32, lane: &Lane) -> Record {
    Record::LaneHolds { lane: number, holds: lane.holds }
}

fn dead_records(lane: u32, number: u64, kept: &Kept) -> impl Iterator<Item = Record> + use<> {
    let letter = Record::Dead { lane, number, job: kept.job, letter: Box::new(kept.letter.clone()) };
    let correlated = |correlation| Record::DeadCorrelation { lane, number, correlation };
    std::iter::once(letter).chain(kept.correlation.map(correlated))
}

fn chain_state_record(lane: u32, chain: Vec<Name>, state: Option<ChainState>) -> Record {
    match state {
        Some(state) => Record::RedriveState { lane, chain, state },
        None => Record::RedriveStateGone { lane, chain },
    }
}

fn lane_record(number: u32, lane: &Lane) -> LaneRecord {
    LaneRecord {
        number,
        name: lane.name.clone(),
        paused: lane.paused,
        next_seq: lane.next_seq,
        turns: [0, 1, 2].map(|level: usize| {
            let turns = &lane.levels[level].turns;
            let current = turns.current.map(|tenant| lane.tenants[tenant].arrival);
            TurnsRecord { turn: turns.turn, current, in_a_row: turns.in_a_row }
        }),
        gates: lane.gates.clone(),
        totals: lane.totals,
        tempo: lane.tempo,
        budget: lane.budget.clone(),
        letter_ages: lane.dead.ages,
    }
}

fn tenant_record(lane: u32, tenant: &Tenant) -> TenantRecord {
    TenantRecord {
        lane,
        arrival: tenant.arrival,
        name: tenant.name.clone(),
        levels: Level::ALL
            .map(|level| tenant.level(level).map_or((None, None), |level| (level.last_turn, level.place))),
        processed: tenant.processed,
        last_processed: tenant.last_processed,
    }
}

fn cache_record(lane: u32, key: &Arc<str>, entry: &Entry) -> Record {
    let Entry { answer, stored_at, number } = entry;
    Record::Cache { lane, key: key.clone(), answer: answer.clone(), stored_at: *stored_at, number: *number }
}

fn registration_record(registration: &Registration) -> Record {
    let Registration { process, stamp, about, spec } = registration;
    let spec = encode_spec(spec).into();
    Record::Registration { process: process.0, stamp: *stamp, about: about.clone(), spec }
}

fn lane_rules(number: usize, lane: &Lane) -> Option<Record> {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let rules = encode_lane(lane.spec.as_ref()?).into();
    Some(Record::LaneRules { number, rules })
}

fn upstream_rules(number: usize, upstream: &Upstream) -> Option<Record> {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let rules = encode_gates(upstream.spec.as_ref()?).into();
    Some(Record::UpstreamRules { number, rules })
}

/// `None` for results that are not remembered.
fn settled_record(how: Settled) -> Option<SettledRecord> {
    match how {
        Settled::Ended(status) => Some(SettledRecord::Ended(status)),
        Settled::RetryAt(at) => Some(SettledRecord::RetryAt(at)),
        Settled::Requeued => Some(SettledRecord::Requeued),
        Settled::Awaiting(lease) => Some(SettledRecord::Awaiting(lease)),
        Settled::Released | Settled::Stale => None,
    }
}

fn job_callback(job: &Job) -> Option<Record> {
    job.callback().map(|url| Record::JobCallback { id: job.id, url: url.clone() })
}

fn numbered(event: &Event<UpstreamIx>) -> Event<u32> {
    Event { at: event.at, kind: event.kind.map(|upstream| upstream.0) }
}
