//! Enqueue: new jobs into their lanes, evicting less urgent ones where a lane is full.

use std::sync::Arc;

use super::Engine;
use super::jobs::Job;
use crate::ended::{End, Ended};
use crate::error::SpecError;
use crate::ids::{JobId, Name, fingerprint};
use crate::job::{DropReason, Hold, Level, NewJob};
use crate::lane::JobHold;
use crate::spec::{Capacity, Chain};
use crate::table::{GroupIx, JobIx, LaneIx, UpstreamIx};
use crate::time::Time;
use crate::verbs::{EnqueueAnswer, Enqueued};

/// No job carries more, so that a batch of them fits a chunk of the journal.
const MAX_PAYLOAD: usize = 8 << 20;

/// What tells this request from another one under the same key.
fn fingerprint_of(job: &NewJob) -> u64 {
    job.fingerprint.unwrap_or_else(|| fingerprint(&job.payload))
}

impl Engine {
    /// Takes in new jobs. Each stands for itself: one that is refused does not hinder the others.
    pub fn enqueue(&mut self, jobs: Vec<NewJob>, now: Time) -> EnqueueAnswer {
        let jobs = jobs.into_iter().map(|job| self.enqueue_one(job, None, now)).collect();
        EnqueueAnswer { jobs, ended: std::mem::take(&mut self.ended) }
    }

    pub(super) fn enqueue_one(&mut self, job: NewJob, replay_of: Option<JobId>, now: Time) -> Enqueued {
        let Some((lane, spec)) = self.configured_lane(&job.lane) else {
            return Enqueued::UnknownLane;
        };
        let (capacity, ttl) = (spec.capacity, job.ttl.or(spec.ttl));
        if let Some(known) = self.known(lane, &job) {
            return known;
        }
        let chain = match self.resolve(lane, &job) {
            Ok(chain) => chain,
            Err(problem) => return Enqueued::Invalid(problem),
        };
        if let Some(cached) = self.answer_at_intake(lane, chain, &job, now) {
            return Enqueued::Cached(cached);
        }
        if !self.make_room(lane, &job, capacity, now) {
            self.refuse(lane, job, now);
            return Enqueued::QueueFull;
        }
        let expires_at = ttl.map_or(Time::NEVER, |ttl| now + ttl);
        let index = self.accept(job, lane, chain, replay_of, now, expires_at);
        Enqueued::Accepted(self.place(index, now))
    }

    fn refuse(&mut self, lane: LaneIx, job: NewJob, now: Time) {
        let end = End::Dropped(DropReason::QueueFull);
        let state = self.lane_mut(lane);
        state.totals.count_end(&end);
        state.dirty = true;
        self.ended.push(Ended {
            job: job.id,
            lane: job.lane,
            tenant: job.tenant,
            level: job.level,
            attempts: 0,
            created_at: now,
            end,
            forgotten: None,
        });
    }

    /// The answer for a job that is here already.
    fn known(&self, lane: LaneIx, job: &NewJob) -> Option<Enqueued> {
        if self.jobs.find(job.id).is_some() {
            return Some(Enqueued::Existing(job.id));
        }
        let entry = self.lane(lane).keys.get(job.key.as_deref()?)?;
        let same = entry.fingerprint == fingerprint_of(job);
        Some(if same { Enqueued::Existing(entry.job) } else { Enqueued::Conflict(entry.job) })
    }

    /// The job's chain, once everything about the job is found to be possible.
    fn resolve(&mut self, lane: LaneIx, job: &NewJob) -> Result<GroupIx, SpecError> {
        if job.payload.len() > MAX_PAYLOAD {
            return Err(SpecError::new("payload", format!("has more than {MAX_PAYLOAD} bytes")));
        }
        if job.ttl.is_some_and(crate::Span::is_zero) {
            return Err(SpecError::new("ttl", "must be greater than zero"));
        }
        let chain = match &job.chain {
            Some(names) => {
                let own = Chain::new(names.clone())?;
                let upstreams = own.names().iter().map(|name| self.find_upstream("chain", name));
                let upstreams = upstreams.collect::<Result<Vec<_>, _>>()?;
                self.lane_mut(lane).group(&upstreams)
            }
            None => self.lane(lane).default_chain,
        };
        for (at, hold) in job.holds.iter().enumerate() {
            let same = |other: &Hold| other.upstream == hold.upstream && other.bucket == hold.bucket;
            if job.holds[..at].iter().any(same) {
                return Err(SpecError::new("holds", format!("bucket {:?} is named twice", hold.bucket)));
            }
            let mut upstreams = self.lane(lane).chain(chain).iter();
            if !upstreams.any(|upstream| self.upstream(*upstream).name == hold.upstream) {
                return Err(SpecError::new("holds", format!("{} is not in the job's chain", hold.upstream)));
            }
        }
        Ok(chain)
    }

    fn find_upstream(&self, field: &str, name: &Name) -> Result<UpstreamIx, SpecError> {
        let found = self.upstream_by_name.get(name).copied();
        found.ok_or_else(|| SpecError::new(field, format!("names the unknown upstream {:?}", name.as_str())))
    }

    /// Whether the job fits, after evicting less urgent ones if need be.
    fn make_room(&mut self, lane: LaneIx, job: &NewJob, capacity: Capacity, now: Time) -> bool {
        let state = self.lane(lane);
        let bytes = job.payload.len() as u64;
        let surplus = (state.waiting + 1).saturating_sub(capacity.jobs);
        let surplus_bytes = (state.waiting_bytes + bytes).saturating_sub(capacity.bytes);
        let below: &[Level] = match job.level {
            Level::High => &[Level::Low, Level::Normal],
            Level::Normal => &[Level::Low],
            Level::Low => &[],
        };
        let levels = || below.iter().map(|level| &state.levels[*level as usize]);
        let enough = levels().map(|level| level.evictable).sum::<u64>() >= surplus
            && levels().map(|level| level.evictable_bytes).sum::<u64>() >= surplus_bytes;
        if !enough {
            return false;
        }
        let fits = |engine: &Self| {
            let state = engine.lane(lane);
            state.waiting < capacity.jobs && state.waiting_bytes + bytes <= capacity.bytes
        };
        while !fits(self) {
            let Some(victim) = below.iter().find_map(|level| self.lane(lane).victim(*level)) else {
                return false;
            };
            self.drop_job(victim, DropReason::Preempted, now);
        }
        true
    }

    fn accept(
        &mut self,
        new: NewJob,
        lane: LaneIx,
        chain: GroupIx,
        replay_of: Option<JobId>,
        now: Time,
        expires_at: Time,
    ) -> JobIx {
        let state = &mut self.lanes[lane.0 as usize];
        let tenant = state.tenants.find_or_create(&new.tenant);
        state.tenants.hold(tenant);
        state.totals.accepted += 1;
        let seq = state.take_seq();
        if let Some(key) = &new.key {
            state.keys.add(key.clone(), new.id, fingerprint_of(&new), now);
        }
        let mut job = Job::new(new.id, lane, tenant, new.level, seq, (now, expires_at), chain, new.payload);
        let holds = self.resolve_holds(&new.holds, now);
        let cache_key = new.cache_key.filter(|_| self.lane(lane).cache_spec().is_some());
        if new.key.is_some() || cache_key.is_some() || replay_of.is_some() || holds.is_some() {
            let rare = job.rare();
            rare.key = new.key;
            rare.cache_key = cache_key;
            rare.replay_of = replay_of;
            rare.holds = holds;
        }
        let index = self.jobs.insert(job);
        let due = (!new.delay.is_zero()).then(|| now + new.delay);
        self.wait(index, due);
        index
    }

    fn resolve_holds(&mut self, holds: &[Hold], now: Time) -> Option<Arc<[JobHold]>> {
        if holds.is_empty() {
            return None;
        }
        let resolve = |hold: &Hold| {
            let bucket = self.buckets.find_or_create(&hold.bucket, hold.spec, now);
            self.buckets.add_user(bucket);
            let upstream = self.upstream_by_name.get(&hold.upstream).copied();
            upstream.map(|upstream| JobHold { upstream, bucket, tokens: hold.tokens })
        };
        Some(holds.iter().filter_map(resolve).collect())
    }
}
