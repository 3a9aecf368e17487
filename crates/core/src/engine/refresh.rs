//! Saving the content of old chunks again, so that the chunks can be deleted.

use std::sync::Arc;

use super::record::Record;
use super::restore::RestoreError;
use super::rules::ProcessId;
use super::{Engine, PER_THING};
use crate::alert::AlertKey;
use crate::ids::{JobId, LeaseId, Name};
use crate::layout::read_records;
use crate::policy::Correlation;

/// The things that a chunk has records of, except those that it says are gone.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mentions(Vec<Mention>);

#[derive(Debug, PartialEq, Eq)]
enum Mention {
    Meta,
    Lane(u32),
    Upstream(u32),
    Tenant(u32, Arc<str>),
    Job(JobId),
    JobState(JobId),
    Lease(LeaseId),
    Bucket(Arc<str>),
    DeadLetter(u32, u64),
    Key(u32, Arc<str>),
    Cache(u32, Arc<str>),
    LaneRules(u32),
    UpstreamRules(u32),
    Registration(ProcessId),
    Terms(Arc<str>),
    Debit(Correlation),
    HashKey,
    Schedule(Name),
    Alert(Box<AlertKey>),
    AlertsResolved,
    AlertMeters,
    AlertHistory(u32),
    Bulk(JobId),
    RedriveState(u32, Vec<Name>),
    Code(u32, Arc<str>),
    LaneMinute(Option<u32>, u32),
    UpstreamMinute(u32, u32),
    GateChange(u32, u64),
    RunningMinute,
    LaneHolds(u32),
    UpstreamFailure(u32),
}

impl Mentions {
    /// Reads `chunk`. Needs no engine, so it does not block one.
    pub fn read(chunk: &[u8]) -> Result<Self, RestoreError> {
        let mut mentions = Self::default();
        read_records(chunk, |record| mentions.note(&record))?;
        Ok(mentions)
    }

    /// How much memory they take.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Mention::bytes).sum()
    }

    /// Frees what adding took in advance.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }

    /// Adds those of the records that follow in the same chunk.
    pub fn append(&mut self, mut next: Self) {
        if self.0.is_empty() {
            *self = next;
        } else {
            self.0.append(&mut next.0);
        }
    }

    pub(super) fn note(&mut self, record: &Record) {
        self.0.extend(Mention::of(record));
    }
}

impl Mention {
    /// Names count although the engine may share them: it may forget them earlier.
    fn bytes(&self) -> usize {
        let name = match self {
            Mention::Tenant(_, name)
            | Mention::Bucket(name)
            | Mention::Key(_, name)
            | Mention::Cache(_, name)
            | Mention::Terms(name)
            | Mention::Code(_, name) => name.len(),
            _ => 0,
        };
        size_of::<Self>() + name
    }

    /// What a record is about, unless it says that it is gone.
    fn of(record: &Record) -> Option<Self> {
        Some(match record {
            Record::Meta { .. } => Mention::Meta,
            Record::Lane(lane) => Mention::Lane(lane.number),
            Record::Upstream { number, .. } => Mention::Upstream(*number),
            Record::Tenant(tenant) => Mention::Tenant(tenant.lane, tenant.name.clone()),
            Record::Job(job) => Mention::Job(job.id),
            Record::JobCorrelation { id, .. } | Record::JobCallback { id, .. } => Mention::Job(*id),
            Record::JobState { id, .. } | Record::JobSubmission { id, .. } => Mention::JobState(*id),
            Record::Lease(id, _) | Record::LeaseCorrelation { id, .. } => Mention::Lease(*id),
            Record::Bucket { key, .. } => Mention::Bucket(key.clone()),
            Record::Dead { lane, number, .. } | Record::DeadCorrelation { lane, number, .. } => {
                Mention::DeadLetter(*lane, *number)
            }
            Record::Key { lane, key, .. } => Mention::Key(*lane, key.clone()),
            Record::Cache { lane, key, .. } => Mention::Cache(*lane, key.clone()),
            Record::LaneRules { number, .. } => Mention::LaneRules(*number),
            Record::UpstreamRules { number, .. } => Mention::UpstreamRules(*number),
            Record::Registration { process, .. } => Mention::Registration(ProcessId(*process)),
            Record::Terms { family, .. } => Mention::Terms(family.clone()),
            Record::Debit { correlation, .. } => Mention::Debit(*correlation),
            Record::HashKey(_) => Mention::HashKey,
            Record::Schedule { name, .. } => Mention::Schedule(name.clone()),
            Record::Alert { key, .. } => Mention::Alert(key.clone()),
            Record::AlertsResolved(_) => Mention::AlertsResolved,
            Record::AlertMeters(_) => Mention::AlertMeters,
            Record::AlertHistory { lane, .. } => Mention::AlertHistory(*lane),
            Record::Bulk(bulk) => Mention::Bulk(bulk.id),
            Record::RedriveState { lane, chain, .. } => Mention::RedriveState(*lane, chain.clone()),
            Record::Code { upstream, code, .. } => Mention::Code(*upstream, code.clone()),
            Record::LaneMinute { lane, point } => Mention::LaneMinute(*lane, point.minute),
            Record::UpstreamMinute { upstream, point } => Mention::UpstreamMinute(*upstream, point.minute),
            Record::GateChange { upstream, number, .. } => Mention::GateChange(*upstream, *number),
            Record::RunningMinute(_) => Mention::RunningMinute,
            Record::LaneHolds { lane, .. } => Mention::LaneHolds(*lane),
            Record::UpstreamFailure { upstream, .. } => Mention::UpstreamFailure(*upstream),
            Record::AlertGone(_)
            | Record::TenantGone { .. }
            | Record::JobGone(_)
            | Record::LeaseGone(_)
            | Record::BucketGone(_)
            | Record::DeadGone { .. }
            | Record::KeyGone { .. }
            | Record::CacheGone { .. }
            | Record::DebitGone(_)
            | Record::BulkGone(_)
            | Record::RedriveStateGone { .. }
            | Record::CodeGone { .. }
            | Record::RegistrationGone(_) => return None,
        })
    }
}

impl Engine {
    /// Marks everything that an old chunk mentions and that still exists as changed. Once this is saved, the chunk can
    /// be deleted. Returns about how many bytes saving it takes, rather too many than too few.
    pub fn refresh(&mut self, mentions: &Mentions) -> u64 {
        mentions.0.iter().map(|mention| self.refresh_one(mention)).sum()
    }

    fn refresh_one(&mut self, mention: &Mention) -> u64 {
        match mention {
            Mention::Meta => self.saved_ahead_ms = None,
            Mention::Lane(lane) => self.lanes[*lane as usize].dirty = true,
            Mention::Upstream(upstream) => self.upstreams[*upstream as usize].dirty = true,
            Mention::Tenant(lane, name) => {
                let tenants = &mut self.lanes[*lane as usize].tenants;
                if let Some(tenant) = tenants.find(name) {
                    tenants.touch(tenant);
                }
            }
            Mention::Job(id) => {
                let Some(job) = self.jobs.find(*id) else { return 0 };
                self.jobs.touch_all(job);
                return PER_THING + self.jobs[job].payload.len() as u64;
            }
            Mention::JobState(id) => {
                let Some(job) = self.jobs.find(*id) else { return 0 };
                self.jobs.touch(job);
            }
            Mention::Lease(id) => self.leases.touch(*id),
            Mention::Bucket(key) => {
                if let Some(bucket) = self.buckets.find(key) {
                    self.buckets.touch(bucket);
                }
            }
            Mention::DeadLetter(lane, number) => {
                let Some(letter) = self.lanes[*lane as usize].dead.touch(*number) else { return 0 };
                return PER_THING + letter.payload.len() as u64;
            }
            Mention::Key(lane, key) => self.lanes[*lane as usize].keys.touch(key),
            Mention::Cache(lane, key) => return PER_THING + self.lanes[*lane as usize].cache.touch(key),
            Mention::LaneRules(lane) => {
                self.rules.unsaved_lanes.insert(*lane as usize);
            }
            Mention::UpstreamRules(upstream) => {
                self.rules.unsaved_upstreams.insert(*upstream as usize);
            }
            Mention::Registration(process) => self.rules.touch(*process),
            Mention::Terms(family) => self.buckets.families_mut().touch(family),
            Mention::Debit(correlation) => self.debits.touch(*correlation),
            Mention::HashKey => self.hash_key_unsaved = true,
            Mention::Schedule(name) => self.schedules.touch(name),
            Mention::Alert(key) => self.alerts.touch(key),
            Mention::AlertsResolved => self.alerts.touch_resolved(),
            Mention::AlertMeters => self.alerts.touch_meters(),
            Mention::AlertHistory(lane) => self.alerts.touch_history(*lane),
            Mention::Bulk(id) => self.bulks.touch(*id),
            Mention::RedriveState(lane, chain) => self.lanes[*lane as usize].dead.touch_chain_state(chain),
            Mention::Code(upstream, code) => self.codes.touch(&(*upstream, code.clone())),
            Mention::LaneMinute(lane, minute) => self.history.touch_lane(*lane, *minute),
            Mention::UpstreamMinute(upstream, minute) => self.history.touch_upstream(*upstream, *minute),
            Mention::GateChange(upstream, number) => self.history.touch_transition(*upstream, *number),
            Mention::RunningMinute => self.history.touch_running(),
            Mention::LaneHolds(lane) => self.lanes[*lane as usize].holds_dirty = true,
            Mention::UpstreamFailure(upstream) => self.upstreams[*upstream as usize].calls.touch_failure(),
        }
        PER_THING
    }
}
