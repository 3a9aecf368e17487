//! How jobs are accepted, and which jobs are evicted for them.

use std::collections::BTreeMap;

use eclusa_core::{Ended, Engine, Enqueued, JobId, Level, NewJob, Span, Status, Time};

use super::{Job, Ledger, State, Verdict, ensure, held};
use crate::rules::{self, lane_number, upstream_number};

impl Ledger {
    pub(super) fn enqueued(
        &mut self,
        new: &NewJob,
        answer: &Enqueued,
        ended: &[Ended],
        engine: &Engine,
        now: Time,
    ) -> Verdict {
        let lane = lane_number(&new.lane);
        let intake = self.intake(lane, new, engine, now);
        let known = self.jobs.get(&new.id);
        if !matches!(answer, Enqueued::Existing(_) | Enqueued::Conflict(_)) {
            let reported = if let Enqueued::Cached(cached) = answer { Some(cached) } else { None };
            ensure!(reported == intake.as_ref(), "{new:?} was answered with {reported:?}, not {intake:?}");
        }
        match answer {
            Enqueued::Accepted(_) => {
                let unknown = known.is_none_or(|job| matches!(job.state, State::Ended(_)));
                ensure!(unknown, "{:?} was accepted twice", new.id);
                let room = self.room(lane);
                while !self.fits(lane, room, new.payload.len()) {
                    let Some(dropped) = ended.get(self.reported.len()) else {
                        return Err(format!("{:?} was let into a full lane", new.id));
                    };
                    self.evicted(lane, new.level, dropped)?;
                }
                let plan = &self.plan.lanes[lane];
                let ttl = new.ttl.map(Span::as_millis).or(plan.ttl_ms);
                let caches = plan.cache.is_some();
                let own = new.chain.as_ref().map(|chain| chain.iter().map(upstream_number).collect());
                let job = Job {
                    lane,
                    tenant: new.tenant.to_string(),
                    level: new.level,
                    seq: self.seq(),
                    expires_at: ttl.map_or(Time::NEVER, |ttl| now + Span::from_millis(ttl)),
                    chain: own.unwrap_or_else(|| rules::chain(self.plan.lanes[lane].chain).to_vec()),
                    tried: Vec::new(),
                    holds: new.holds.iter().map(held).collect(),
                    attempts: 0,
                    lost: 0,
                    bytes: new.payload.len() as u64,
                    cache_key: new.cache_key.as_deref().filter(|_| caches).map(str::to_owned),
                    state: State::Pending(now + new.delay),
                };
                self.accepted[lane] += 1;
                // Its id may be that of a removed job.
                self.served_with.remove(&new.id);
                self.jobs.insert(new.id, job);
                self.last_settled.remove(&new.id);
                if new.delay.is_zero() {
                    self.stand(new.id);
                }
            }
            Enqueued::QueueFull => {
                self.reported.push((new.id, "refused"));
                ensure!(!self.could_fit(lane, new), "{:?} was refused though there was room", new.id);
            }
            Enqueued::Cached(cached) => self.at_intake[lane][usize::from(cached.stale.is_some())] += 1,
            Enqueued::Existing(_) | Enqueued::Conflict(_) => {}
            Enqueued::UnknownLane | Enqueued::Invalid(_) | Enqueued::NotInTime { .. } => {
                return Err(format!("a valid job was refused: {answer:?}"));
            }
        }
        Ok(())
    }

    fn waiting_now(&self, lane: usize) -> (u64, u64) {
        let bytes = self.waiting(lane).map(|(_, job)| job.bytes).sum();
        (self.waiting(lane).count() as u64, bytes)
    }

    /// How many jobs and bytes may wait: what the rules allow, or what already waits if that is more.
    fn room(&self, lane: usize) -> (u64, u64) {
        let (plan, (jobs, bytes)) = (&self.plan.lanes[lane], self.waiting_now(lane));
        (plan.capacity.max(jobs), plan.max_bytes.max(bytes))
    }

    fn fits(&self, lane: usize, (max, max_bytes): (u64, u64), bytes: usize) -> bool {
        let (jobs, waiting_bytes) = self.waiting_now(lane);
        jobs < max && waiting_bytes + bytes as u64 <= max_bytes
    }

    pub(super) fn evictable(&self, lane: usize, level: Level) -> Vec<(JobId, &Job)> {
        self.waiting(lane).filter(|(_, job)| job.level == level && job.attempts == 0).collect()
    }

    pub(super) fn could_fit(&self, lane: usize, new: &NewJob) -> bool {
        let (max, max_bytes) = self.room(lane);
        let below = Level::ALL.into_iter().filter(|level| *level > new.level);
        let victims: Vec<_> = below.flat_map(|level| self.evictable(lane, level)).collect();
        let spare_bytes: u64 = victims.iter().map(|(_, job)| job.bytes).sum();
        let (jobs, waiting_bytes) = self.waiting_now(lane);
        let bytes = new.payload.len() as u64;
        jobs + 1 - victims.len() as u64 <= max
            && waiting_bytes + bytes - spare_bytes <= max_bytes
            && bytes <= self.plan.lanes[lane].max_bytes
    }

    /// The newest untried job of the tenant with the longest backlog, from the lowest level that has any.
    pub(super) fn evicted(&mut self, lane: usize, by: Level, dropped: &Ended) -> Verdict {
        let lowest =
            [Level::Low, Level::Normal].into_iter().find(|level| !self.evictable(lane, *level).is_empty());
        ensure!(lowest == Some(dropped.level) && dropped.level > by, "{dropped:?} was evicted by {by:?}");
        let mut backlog: BTreeMap<&str, Vec<(u64, JobId)>> = BTreeMap::new();
        let fair = self.plan.lanes[lane].batch.is_some();
        for (id, job) in self.evictable(lane, dropped.level) {
            backlog.entry(if fair { &job.tenant } else { "" }).or_default().push((job.seq, id));
        }
        let longest = backlog.values().map(Vec::len).max();
        let mut flooding = backlog.values().filter(|jobs| Some(jobs.len()) == longest);
        let newest = |jobs: &Vec<(u64, JobId)>| jobs.iter().max().map(|(_, id)| *id) == Some(dropped.job);
        ensure!(flooding.any(newest), "{dropped:?} is not the newest of the longest backlog");
        self.end(dropped.job, Status::Dropped, "preempted");
        Ok(())
    }

    /// The answer does not include the letter, so it is looked up.
    pub(super) fn replayed(
        &mut self,
        lane: usize,
        letter: JobId,
        id: JobId,
        ended: &[Ended],
        engine: &Engine,
    ) -> Verdict {
        let Some(view) = engine.job(id) else { return Err(format!("{id:?} replays, but is not there")) };
        for dropped in ended {
            self.evicted(lane, view.level, dropped)?;
        }
        let Some(letter) = engine.dead_letter_view(&rules::lane_name(lane), letter) else {
            return Err(format!("the replay of {letter:?} took it away"));
        };
        let chain = letter.letter.chain.iter().map(upstream_number).collect();
        let job = Job {
            lane,
            tenant: view.tenant.to_string(),
            level: view.level,
            seq: self.seq(),
            expires_at: view.expires_at,
            chain,
            tried: Vec::new(),
            holds: letter.letter.holds.iter().map(held).collect(),
            attempts: 0,
            lost: 0,
            bytes: view.payload.len() as u64,
            cache_key: None,
            state: State::Queued,
        };
        self.accepted[lane] += 1;
        self.jobs.insert(id, job);
        self.stand(id);
        Ok(())
    }
}
