//! Enqueue: adds new jobs to their lanes and evicts less urgent ones if a lane is full.

use std::sync::Arc;

use super::Engine;
use super::jobs::Job;
use crate::ended::{End, Ended};
use crate::error::SpecError;
use crate::ids::JobId;
use crate::job::{DropReason, Hold, Level, NewJob};
use crate::lane::{JobHold, MAX_KEYS};
use crate::spec::Capacity;
use crate::table::{GroupIx, JobIx, LaneIx};
use crate::time::Time;
use crate::timeline::EventKind;
use crate::verbs::{EnqueueAnswer, Enqueued};

/// Bytes of cached answers that one enqueue returns. Further jobs wait and get their answer just before they would
/// start.
const MAX_CACHED: usize = 4 << 20;

/// Idempotency keys that are examined to make room for a new one. More than one, because jobs that have not ended keep
/// theirs.
const MAX_KEYS_SCANNED: usize = 8;

impl Engine {
    /// Adds new jobs, independently of each other: one that is refused does not affect the others.
    pub fn enqueue(&mut self, jobs: Vec<NewJob>, now: Time) -> EnqueueAnswer {
        self.end_silent(now);
        let mut cached = 0;
        let mut enqueue = |job: NewJob| {
            let answer = self.enqueue_one(job, None, cached < MAX_CACHED, now);
            if let Enqueued::Cached(given) = &answer {
                cached += given.answer.len();
            }
            answer
        };
        let jobs = jobs.into_iter().map(&mut enqueue).collect();
        EnqueueAnswer { jobs, ended: std::mem::take(&mut self.ended) }
    }

    pub(super) fn enqueue_one(
        &mut self,
        job: NewJob,
        replay_of: Option<JobId>,
        may_be_cached: bool,
        now: Time,
    ) -> Enqueued {
        let Some((lane, spec)) = self.configured_lane(&job.lane) else {
            return Enqueued::UnknownLane;
        };
        let (capacity, ttl) = (spec.capacity, job.ttl.or(spec.ttl));
        // A replay was requested explicitly, so it is not refused for being late.
        let in_time = spec.in_time && replay_of.is_none();
        let chain = match self.resolve(lane, &job) {
            Ok(chain) => chain,
            Err(problem) => return Enqueued::Invalid(problem),
        };
        if let Some(known) = self.known(lane, &job) {
            return known;
        }
        if may_be_cached && let Some(cached) = self.answer_at_intake(lane, chain, &job, now) {
            return Enqueued::Cached(cached);
        }
        let expires_at = ttl.map_or(Time::NEVER, |ttl| now + ttl);
        let forecast = in_time.then(|| self.forecast(lane, chain, &job, now)).flatten();
        if let Some(eta) = forecast.filter(|eta| *eta > expires_at) {
            self.refuse(lane, job, DropReason::NotInTime, now);
            return Enqueued::NotInTime { eta, late: eta.since(expires_at) };
        }
        if !self.make_room(lane, &job, capacity, now) {
            self.refuse(lane, job, DropReason::QueueFull, now);
            return Enqueued::QueueFull;
        }
        let index = self.accept(job, lane, chain, replay_of, now, expires_at);
        Enqueued::Accepted(self.place(index, now))
    }

    pub(super) fn refuse(&mut self, lane: LaneIx, job: NewJob, reason: DropReason, now: Time) {
        let end = End::Dropped(reason);
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
            avoided: None,
            forgotten: None,
        });
    }

    /// The answer for a job that already exists.
    fn known(&self, lane: LaneIx, job: &NewJob) -> Option<Enqueued> {
        if self.jobs.find(job.id).is_some() {
            return Some(Enqueued::Existing(job.id));
        }
        let entry = self.lane(lane).keys.get(job.key.as_deref()?)?;
        let same = entry.fingerprint == job.identity();
        Some(if same { Enqueued::Existing(entry.job) } else { Enqueued::Conflict(entry.job) })
    }

    /// Validates a job and returns its chain.
    fn resolve(&mut self, lane: LaneIx, job: &NewJob) -> Result<GroupIx, SpecError> {
        let state = self.lane(lane);
        let default = || state.chain(state.default_chain).iter();
        job.check(
            |name| self.upstream_by_name.contains_key(name),
            |name| default().any(|upstream| self.upstream(*upstream).name == *name),
        )?;
        self.check_callback(job)?;
        let Some(names) = &job.chain else { return Ok(state.default_chain) };
        let chain: Vec<_> =
            names.iter().filter_map(|name| self.upstream_by_name.get(name).copied()).collect();
        Ok(self.lane_mut(lane).group(&chain))
    }

    /// Makes room for a job by evicting less urgent ones if needed. Returns whether it fits. If the lane holds more
    /// than its capacity, because that was lowered or jobs returned, no more is evicted than the job itself needs.
    pub(super) fn make_room(&mut self, lane: LaneIx, job: &NewJob, capacity: Capacity, now: Time) -> bool {
        let state = self.lane(lane);
        let bytes = job.payload.len() as u64;
        let (max, max_bytes) = (capacity.jobs.max(state.waiting), capacity.bytes.max(state.waiting_bytes));
        let surplus = (state.waiting + 1).saturating_sub(max);
        let surplus_bytes = (state.waiting_bytes + bytes).saturating_sub(max_bytes);
        let below: &[Level] = match job.level {
            Level::High => &[Level::Low, Level::Normal],
            Level::Normal => &[Level::Low],
            Level::Low => &[],
        };
        let levels = || below.iter().map(|level| &state.levels[*level as usize]);
        let enough = bytes <= capacity.bytes
            && levels().map(|level| level.evictable).sum::<u64>() >= surplus
            && levels().map(|level| level.evictable_bytes).sum::<u64>() >= surplus_bytes;
        if !enough {
            return false;
        }
        let fits = |engine: &Self| {
            let state = engine.lane(lane);
            state.waiting < max && state.waiting_bytes + bytes <= max_bytes
        };
        while !fits(self) {
            let Some(victim) = below.iter().find_map(|level| self.lane(lane).victim(*level)) else {
                return false;
            };
            self.drop_job(victim, DropReason::Preempted, now);
        }
        true
    }

    pub(super) fn accept(
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
            state.keys.add(key.clone(), new.id, new.identity(), now);
        }
        let mut job = Job::new(new.id, lane, tenant, new.level, seq, (now, expires_at), chain, new.payload);
        job.delayed = !new.delay.is_zero();
        let holds = self.resolve_holds(&new.holds, now);
        let cache_key = new.cache_key.filter(|_| self.lane(lane).cache_spec().is_some());
        let given = [new.key.is_some(), cache_key.is_some(), replay_of.is_some(), holds.is_some()];
        if given.contains(&true) || new.callback.is_some() || new.caller_waits.is_some() {
            let rare = job.rare();
            rare.key = new.key;
            rare.cache_key = cache_key;
            rare.replay_of = replay_of;
            rare.holds = holds;
            rare.correlation = new.correlation;
            rare.callback = new.callback;
            rare.waited_until = new.caller_waits.map(|wait| now + wait);
        }
        let index = self.jobs.insert(job);
        if self.lane(lane).keys.len() > MAX_KEYS {
            self.forget_keys(lane, MAX_KEYS_SCANNED, now);
        }
        let due = self.jobs[index].delayed.then(|| now + new.delay);
        self.wait(index, due);
        self.note_unstored(index, now, EventKind::Accepted);
        index
    }

    fn resolve_holds(&mut self, holds: &[Hold], now: Time) -> Option<Arc<[JobHold]>> {
        if holds.is_empty() {
            return None;
        }
        let resolve = |hold: &Hold| {
            let bucket = self.buckets.find_or_create(hold, now);
            self.buckets.add_user(bucket);
            let upstream = self.upstream_by_name.get(&hold.upstream).copied();
            upstream.map(|upstream| JobHold { upstream, bucket, tokens: hold.tokens })
        };
        Some(holds.iter().filter_map(resolve).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{CallResult, GateSpecs};
    use crate::ids::Name;
    use crate::job::Status;
    use crate::spec::{CacheSpec, Chain, LaneSpec, Spec, UpstreamSpec};
    use crate::time::Span;
    use crate::verbs::{Dispatch, Outcome, Settlement};

    const NOW: Time = Time::from_millis(1_000_000);

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn job(id: u128) -> NewJob {
        NewJob { cache_key: Some("cpf:1".into()), ..NewJob::new(JobId(id), name("a"), "acme", *b"x") }
    }

    fn dispatch(engine: &mut Engine, nonce: u64) -> Vec<crate::ids::LeaseId> {
        let lease = Span::from_secs(10);
        let ask = Dispatch { lane: name("a"), max: 10, lease, nonce, wait: Span::ZERO, denied: None };
        engine.dispatch(&ask, NOW).grants.iter().map(|grant| grant.lease).collect()
    }

    #[test]
    fn a_lane_keeps_a_bounded_number_of_keys_and_those_of_jobs_that_have_not_ended() {
        let lane = LaneSpec::new(name("a"), Chain::new(vec![name("up")]).unwrap());
        let upstream = UpstreamSpec::new(name("up"), GateSpecs::default());
        let mut engine = Engine::new(&Spec::new(vec![lane], vec![upstream]).unwrap());
        let keyed = |id, key: &str| NewJob { key: Some(key.into()), cache_key: None, ..job(id) };
        engine.enqueue(vec![keyed(1, "alive")], NOW);
        let later = |ms| NOW + Span::from_millis(ms);
        let keys = &mut engine.lanes[0].keys;
        for over in 0..MAX_KEYS - 1 {
            keys.add(format!("over-{over}").into(), JobId(1_000 + over as u128), 0, later(1 + over as u64));
        }
        assert_eq!(engine.lanes[0].keys.len(), MAX_KEYS);

        let now = later(MAX_KEYS as u64);
        engine.enqueue((2..5).map(|id| keyed(id, &format!("new-{id}"))).collect(), now);
        let keys = &engine.lanes[0].keys;
        assert_eq!(keys.len(), MAX_KEYS);
        let gone: Vec<usize> = (0..5).filter(|over| keys.get(&format!("over-{over}")).is_none()).collect();
        assert_eq!(gone, [0, 1, 2], "the oldest go");
        for key in ["alive", "new-2", "new-3", "new-4"] {
            assert!(keys.get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn enqueue_returns_a_bounded_size_of_cached_answers_and_dispatch_the_rest() {
        let mut lane = LaneSpec::new(name("a"), Chain::new(vec![name("up")]).unwrap());
        lane.cache = Some(CacheSpec::new(Span::from_secs(60), Span::ZERO).unwrap());
        let upstream = UpstreamSpec::new(name("up"), GateSpecs::default());
        let mut engine = Engine::new(&Spec::new(vec![lane], vec![upstream]).unwrap());
        engine.enqueue(vec![job(1)], NOW);
        let (lease, answer) = (dispatch(&mut engine, 1)[0], Some(vec![b'x'; MAX_CACHED - 1].into()));
        let report = CallResult::Success.into();
        engine.settle(vec![Settlement { lease, report, outcome: Outcome::Done, answer, unsent: None }], NOW);

        let answers = engine.enqueue(vec![job(2), job(3), job(4)], NOW).jobs;
        assert!(matches!(answers[..], [Enqueued::Cached(_), Enqueued::Cached(_), Enqueued::Accepted(_)]));
        assert_eq!(dispatch(&mut engine, 2), [], "it is not sent");
        assert_eq!(engine.job(JobId(4)).unwrap().status, Status::Completed);
    }
}
