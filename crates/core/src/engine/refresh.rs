//! Saving the content of old chunks again, so that the chunks can be deleted.

use std::sync::Arc;

use super::Engine;
use super::restore::RestoreError;
use super::rules::ProcessId;
use crate::alert::AlertKey;
use crate::ids::{JobId, LeaseId, Name};
use crate::layout::read_mentions;
use crate::policy::Correlation;

/// The things that a chunk has records of. Read without the engine, so that reading does not block it.
#[derive(Debug)]
pub struct Mentions(Vec<Mention>);

#[derive(Debug)]
pub(crate) enum Mention {
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
    /// Reads which things `chunk` has records of, except those that the chunk says are gone.
    pub fn read(chunk: &[u8]) -> Result<Self, RestoreError> {
        Ok(Self(read_mentions(chunk)?))
    }
}

impl Engine {
    /// Marks everything that an old chunk mentions and that still exists as changed. Once this is saved, the chunk can
    /// be deleted.
    pub fn refresh(&mut self, mentions: &Mentions) {
        mentions.0.iter().for_each(|mention| self.refresh_one(mention));
    }

    fn refresh_one(&mut self, mention: &Mention) {
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
                if let Some(job) = self.jobs.find(*id) {
                    self.jobs.touch_all(job);
                }
            }
            Mention::JobState(id) => {
                if let Some(job) = self.jobs.find(*id) {
                    self.jobs.touch(job);
                }
            }
            Mention::Lease(id) => self.leases.touch(*id),
            Mention::Bucket(key) => {
                if let Some(bucket) = self.buckets.find(key) {
                    self.buckets.touch(bucket);
                }
            }
            Mention::DeadLetter(lane, number) => self.lanes[*lane as usize].dead.touch(*number),
            Mention::Key(lane, key) => self.lanes[*lane as usize].keys.touch(key),
            Mention::Cache(lane, key) => self.lanes[*lane as usize].cache.touch(key),
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
    }
}
