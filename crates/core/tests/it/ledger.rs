//! What must have happened, worked out from the answers alone: which job is where, which leases are out. A plain
//! model without indexes. It refuses answers that contradict it, and tells the checkers each fact in order.

use std::collections::BTreeMap;

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admission, Admit, Advanced, Cancelled, Closure, DropReason, End, Ended, Engine, Enqueued, Grant, Hold,
    JobId, LeaseId, Level, NewJob, Outcome, Payload, Replayed, Report, ServedBy, Settled, Settlement, Span,
    Status, Time,
};

use crate::cached::Kept;
use crate::calls::{Call, Reply};
use crate::plan::RulePlan;
use crate::rules::{self, lane_number, upstream_number};

/// A job that takes so many workers down is given up.
const MAX_LOST: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Pending(Time),
    Queued,
    Processing(LeaseId),
    Ended(Status),
}

/// Key of a scoped bucket and micro-tokens.
pub(crate) type Held = Vec<(String, i64)>;

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) lane: usize,
    pub(crate) tenant: String,
    pub(crate) level: Level,
    /// Its place in the order of arrival.
    pub(crate) seq: u64,
    pub(crate) expires_at: Time,
    pub(crate) chain: Vec<usize>,
    pub(crate) tried: Vec<usize>,
    /// By upstream.
    pub(crate) holds: Vec<(usize, String, i64)>,
    pub(crate) attempts: u32,
    pub(crate) lost: u32,
    pub(crate) bytes: u64,
    /// Nothing in a lane without a cache.
    pub(crate) cache_key: Option<String>,
    pub(crate) state: State,
}

impl Job {
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, State::Pending(_) | State::Queued)
    }

    pub(crate) fn untried(&self) -> Vec<usize> {
        self.chain.iter().copied().filter(|upstream| !self.tried.contains(upstream)).collect()
    }

    fn held_at(&self, upstream: usize) -> Held {
        let own = self.holds.iter().filter(|(at, ..)| *at == upstream);
        own.map(|(_, key, tokens)| (key.clone(), *tokens)).collect()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) job: Option<JobId>,
    /// The lane whose slot it holds.
    pub(crate) lane: Option<usize>,
    pub(crate) upstream: Option<usize>,
    pub(crate) awaiting: bool,
    /// The call of a cancelled job that had been elsewhere before.
    pub(crate) later: bool,
    pub(crate) expires: Time,
    pub(crate) held: Held,
}

/// A call that began at an upstream.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) lease: LeaseId,
    pub(crate) upstream: usize,
    /// The lane that handed it out, if one did just now.
    pub(crate) lane: Option<usize>,
    pub(crate) job: Option<JobId>,
    pub(crate) held: Held,
    pub(crate) lease_expires: Time,
}

/// A call that was reported on.
#[derive(Debug, Clone)]
pub(crate) struct CallEnd {
    pub(crate) lease: LeaseId,
    pub(crate) upstream: Option<usize>,
    /// The lane whose slot went back.
    pub(crate) lane: Option<usize>,
    pub(crate) result: CallResult,
    pub(crate) costs: Held,
    pub(crate) close: Option<Closure>,
    pub(crate) held: Held,
    /// Nothing went out under this lease, so the lane's token comes back too.
    pub(crate) unsent: bool,
    /// The lease under which the upstream's work is awaited.
    pub(crate) heir: Option<LeaseId>,
}

#[derive(Debug, Clone)]
pub(crate) enum Fact {
    Started(Start),
    Ended(CallEnd),
    Recorded(usize, CallResult),
    Reset(usize),
    Extended(LeaseId, Time),
    /// A job stands in its line. Jobs are told as they were then: an id may be another job's by the end of a call.
    Stood(JobId, Job),
    /// A job left its line without being served.
    Left(JobId, Job),
    /// A job left its line to be run.
    Served(JobId, Job),
    /// A job runs no longer.
    Stopped(JobId, Job),
    /// The jobs of a lane under a key got no answer: if nobody else of them runs or stands in line, but for the one with
    /// this number, the next that was set aside goes.
    GaveWay(usize, String, Option<u64>),
}

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) plan: RulePlan,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
    pub(crate) issued: Vec<LeaseId>,
    pub(crate) paused: [bool; 2],
    /// Jobs accepted and ended so far, by lane.
    pub(crate) accepted: [u64; 2],
    pub(crate) ended: [BTreeMap<&'static str, u64>; 2],
    /// Answers by lane, the oldest first.
    pub(crate) kept: [Vec<Kept>; 2],
    /// Requests answered without a job: with a fresh answer, with an old one.
    pub(crate) at_intake: [[u64; 2]; 2],
    /// Jobs end because an equal one was answered.
    pub(crate) serving: bool,
    next_seq: u64,
    facts: Vec<Fact>,
    /// Jobs that ended by the call, and how.
    pub(crate) told: Vec<(JobId, &'static str)>,
}

/// What the answers contradict.
pub(crate) type Verdict<T = ()> = Result<T, String>;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

impl Ledger {
    pub(crate) fn new(plan: RulePlan) -> Self {
        Self {
            plan,
            jobs: BTreeMap::new(),
            leases: BTreeMap::new(),
            issued: Vec::new(),
            paused: [false; 2],
            accepted: [0; 2],
            ended: Default::default(),
            kept: Default::default(),
            at_intake: [[0; 2]; 2],
            serving: false,
            next_seq: 0,
            facts: Vec::new(),
            told: Vec::new(),
        }
    }

    pub(crate) fn waiting(&self, lane: usize) -> impl Iterator<Item = (JobId, &Job)> {
        let jobs = self.jobs.iter().map(|(id, job)| (*id, job));
        jobs.filter(move |(_, job)| job.lane == lane && job.waits())
    }

    pub(crate) fn has_expired_leases(&self, now: Time) -> bool {
        self.leases.values().any(|lease| lease.expires <= now)
    }

    /// Writes an answer down. `engine` is asked only where an answer leaves something out.
    pub(crate) fn observe(
        &mut self,
        call: &Call,
        reply: &Reply,
        engine: &Engine,
        now: Time,
    ) -> Verdict<Vec<Fact>> {
        match (call, reply) {
            (Call::Enqueue(jobs), Reply::Enqueue(answer)) => {
                for (job, enqueued) in jobs.iter().zip(&answer.jobs) {
                    self.enqueued(job, enqueued, &answer.ended, engine, now)?;
                }
            }
            (Call::Dispatch(ask), Reply::Dispatch(given)) => {
                self.take_up(now);
                let lane = lane_number(&ask.lane);
                self.release_due(lane, now);
                self.expire(lane, now);
                self.served(lane, &given.ended, engine, now)?;
                ensure!(given.grants.len() <= ask.max, "more grants than asked for");
                ensure!(given.grants.is_empty() || !self.paused[lane], "grants of a paused lane");
                for grant in &given.grants {
                    self.granted(lane, grant, now + ask.lease)?;
                }
            }
            (Call::Advance(ask), Reply::Advance(advanced)) => {
                self.advanced(ask.lease, &ask.report, advanced, now)?;
            }
            (Call::Extend(leases, span), Reply::Extend(answers)) => {
                for (id, lives) in leases.iter().zip(answers) {
                    ensure!(self.leases.contains_key(id) == *lives, "extend of {id:?} said {lives}");
                    if let Some(lease) = self.leases.get_mut(id) {
                        lease.expires = now + *span;
                        self.facts.push(Fact::Extended(*id, now + *span));
                    }
                }
            }
            (Call::Settle(settlements), Reply::Settle(answer)) => {
                for (settlement, settled) in settlements.iter().zip(&answer.leases) {
                    self.settled(settlement, *settled, now)?;
                }
            }
            (Call::Cancel(id), Reply::Cancel(answer)) => self.cancelled(*id, answer)?,
            (Call::Admit(ask), Reply::Admit(answer)) => {
                self.take_up(now);
                self.admitted(ask, &answer.admission, now)?;
            }
            (Call::Record(upstream, result), Reply::Record(view)) => {
                let upstream = upstream_number(upstream);
                ensure!(view.is_some() == (upstream < 3), "record knows {upstream}: {view:?}");
                self.facts.push(Fact::Recorded(upstream, *result));
            }
            (Call::Reset(upstream), Reply::Reset(view)) => {
                let upstream = upstream_number(upstream);
                ensure!(view.is_some() == (upstream < 3), "reset knows {upstream}: {view:?}");
                self.facts.push(Fact::Reset(upstream));
            }
            (Call::Replay(lane, letter, id), Reply::Replay(Replayed::As(job, ended))) if id == job => {
                self.replayed(lane_number(lane), *letter, *id, ended, engine)?;
            }
            (Call::Pause(lane, paused), Reply::Pause(true)) => self.paused[lane_number(lane)] = *paused,
            (Call::Sweep, Reply::Sweep(swept)) => {
                let taken_up = self.take_up(now);
                ensure!(taken_up == swept.taken_up, "took up {:?}, not {taken_up:?}", swept.taken_up);
                for lane in 0..2 {
                    self.release_due(lane, now);
                    self.expire(lane, now);
                    self.served(lane, &swept.ended, engine, now)?;
                }
                self.forget_answers(now);
            }
            (Call::Replay(..), Reply::Replay(_)) | (Call::Discard(..), Reply::Discard(_)) => {}
            _ => return Err(format!("{reply:?} is no answer to {call:?}")),
        }
        let told: Vec<_> = reply.ended().iter().map(|ended| (ended.job, word(&ended.end))).collect();
        let expected = std::mem::take(&mut self.told);
        ensure!(told == expected, "told of {told:?}, but {expected:?} ended");
        self.answers_are_right(reply.ended(), engine)?;
        Ok(std::mem::take(&mut self.facts))
    }

    fn seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    fn stand(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.untried().is_empty() {
            // All were tried and nobody said what comes of it: it begins again.
            job.tried.clear();
        }
        job.state = State::Queued;
        self.facts.push(Fact::Stood(id, job.clone()));
    }

    pub(crate) fn end(&mut self, id: JobId, status: Status, word: &'static str) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.state == State::Queued {
            self.facts.push(Fact::Left(id, job.clone()));
        }
        job.state = State::Ended(status);
        self.told.push((id, word));
        *self.ended[job.lane].entry(word).or_default() += 1;
        if !self.serving {
            self.give_way(id, None);
        }
    }

    fn give_way(&mut self, id: JobId, failed: Option<u64>) {
        let job = &self.jobs[&id];
        if let Some(key) = &job.cache_key {
            self.facts.push(Fact::GaveWay(job.lane, key.clone(), failed));
        }
    }

    /// A job that ran waits again and was not answered.
    fn stand_again(&mut self, id: JobId) {
        self.stand(id);
        self.give_way(id, Some(self.jobs[&id].seq));
    }

    fn stopped(&mut self, id: JobId) {
        self.facts.push(Fact::Stopped(id, self.jobs[&id].clone()));
    }

    fn enqueued(
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
            let told = if let Enqueued::Cached(cached) = answer { Some(cached) } else { None };
            ensure!(told == intake.as_ref(), "{new:?} was answered with {told:?}, not {intake:?}");
        }
        match answer {
            Enqueued::Accepted => {
                let unknown = known.is_none_or(|job| matches!(job.state, State::Ended(_)));
                ensure!(unknown, "{:?} was accepted twice", new.id);
                while !self.fits(lane, new.payload.len()) {
                    let Some(dropped) = ended.get(self.told.len()) else {
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
                self.jobs.insert(new.id, job);
                if new.delay.is_zero() {
                    self.stand(new.id);
                }
            }
            Enqueued::QueueFull => {
                self.told.push((new.id, "refused"));
                ensure!(!self.could_fit(lane, new), "{:?} was refused though there was room", new.id);
            }
            Enqueued::Cached(cached) => self.at_intake[lane][usize::from(cached.stale.is_some())] += 1,
            Enqueued::Existing(_) | Enqueued::Conflict(_) => {}
            Enqueued::UnknownLane | Enqueued::Invalid(_) => {
                return Err(format!("a valid job was refused: {answer:?}"));
            }
        }
        Ok(())
    }

    fn fits(&self, lane: usize, bytes: usize) -> bool {
        let plan = &self.plan.lanes[lane];
        let waiting_bytes: u64 = self.waiting(lane).map(|(_, job)| job.bytes).sum();
        (self.waiting(lane).count() as u64) < plan.capacity && waiting_bytes + bytes as u64 <= plan.max_bytes
    }

    fn evictable(&self, lane: usize, level: Level) -> Vec<(JobId, &Job)> {
        self.waiting(lane).filter(|(_, job)| job.level == level && job.attempts == 0).collect()
    }

    fn could_fit(&self, lane: usize, new: &NewJob) -> bool {
        let plan = &self.plan.lanes[lane];
        let below = Level::ALL.into_iter().filter(|level| *level > new.level);
        let victims: Vec<_> = below.flat_map(|level| self.evictable(lane, level)).collect();
        let waiting_bytes: u64 = self.waiting(lane).map(|(_, job)| job.bytes).sum();
        let spare_bytes: u64 = victims.iter().map(|(_, job)| job.bytes).sum();
        let jobs = self.waiting(lane).count() + 1 - victims.len();
        jobs as u64 <= plan.capacity
            && waiting_bytes + new.payload.len() as u64 - spare_bytes <= plan.max_bytes
    }

    /// The newest untried job of the tenant with the longest backlog, from the lowest level that has any.
    fn evicted(&mut self, lane: usize, by: Level, dropped: &Ended) -> Verdict {
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

    /// Leases that ran out, in the order in which they did.
    fn take_up(&mut self, now: Time) -> Vec<JobId> {
        let mut lost: Vec<_> = self.leases.iter().map(|(id, lease)| (lease.expires, *id)).collect();
        lost.retain(|(expires, _)| *expires <= now);
        lost.sort_unstable();
        let mut taken_up = Vec::new();
        for (_, id) in lost {
            let Some(lease) = self.leases.remove(&id) else { continue };
            let result = if lease.awaiting { CallResult::TimedOut } else { CallResult::Unknown };
            self.finish_call(id, &lease, &Report::from(result), None);
            let Some(job) = lease.job else { continue };
            taken_up.push(job);
            self.stopped(job);
            let state = self.jobs.get_mut(&job).unwrap();
            state.lost += 1;
            if lease.awaiting || self.plan.lanes[state.lane].stops_when_ambiguous || state.lost >= MAX_LOST {
                self.end(job, Status::Failed, "failed");
            } else {
                self.stand_again(job);
            }
        }
        taken_up
    }

    fn finish_call(&mut self, id: LeaseId, lease: &Lease, report: &Report, heir: Option<LeaseId>) {
        let job = lease.job.and_then(|job| self.jobs.get(&job));
        // What the upstream works on was sent, whatever the report says.
        let contradiction = heir.is_some() && report.result == CallResult::NotSent;
        let result = if contradiction { CallResult::Unknown } else { report.result };
        self.facts.push(Fact::Ended(CallEnd {
            lease: id,
            upstream: lease.upstream,
            lane: lease.lane,
            result,
            costs: report.costs.iter().map(|(key, cost)| (key.to_string(), cost.as_micro())).collect(),
            close: report.close.clone(),
            held: lease.held.clone(),
            unsent: heir.is_none()
                && report.result == CallResult::NotSent
                && !lease.later
                && job.is_none_or(|job| job.tried.is_empty()),
            heir,
        }));
    }

    fn release_due(&mut self, lane: usize, now: Time) {
        let due = |(id, job): (JobId, &Job)| match job.state {
            State::Pending(due) if due <= now => Some((due, job.seq, id)),
            _ => None,
        };
        let mut due: Vec<_> = self.waiting(lane).filter_map(due).collect();
        due.sort_unstable();
        for (_, _, id) in due {
            let seq = self.seq();
            let job = self.jobs.get_mut(&id).unwrap();
            if job.attempts == 0 {
                job.seq = seq;
            }
            self.stand(id);
        }
    }

    fn expire(&mut self, lane: usize, now: Time) {
        let late = self.waiting(lane).filter(|(_, job)| now > job.expires_at);
        let mut expired: Vec<_> = late.map(|(id, job)| (job.expires_at, job.seq, id)).collect();
        expired.sort_unstable();
        for (_, _, id) in expired {
            self.end(id, Status::Dropped, "expired");
        }
    }

    fn admitted(&mut self, ask: &Admit, admission: &Admission, now: Time) -> Verdict {
        let lane = ask.lane.as_ref().map(lane_number);
        let mut chain: Vec<_> = ask.chain.iter().map(upstream_number).collect();
        if let (Some(lane), true) = (lane, chain.is_empty()) {
            chain = rules::chain(self.plan.lanes[lane].chain).to_vec();
        }
        match admission {
            Admission::Granted { lease, upstream, lease_expires } => {
                let upstream = upstream_number(upstream);
                ensure!(chain.contains(&upstream), "{admission:?} is not of {chain:?}");
                ensure!(lane.is_none_or(|lane| !self.paused[lane]), "{admission:?} in a paused lane");
                ensure!(*lease_expires == now + ask.lease, "{admission:?} at {now:?}");
                let held = ask.holds.iter().map(held).map(|(_, key, tokens)| (key, tokens)).collect();
                self.start(*lease, None, lane, lane, upstream, held, now + ask.lease)
            }
            Admission::Denied { upstream, .. } => {
                let known =
                    upstream.as_ref().is_none_or(|upstream| chain.contains(&upstream_number(upstream)));
                ensure!(known && !chain.contains(&3), "{admission:?} by one that is not of {chain:?}");
                Ok(())
            }
            Admission::UnknownUpstream(name) => {
                ensure!(chain == [3] && upstream_number(name) == 3, "{chain:?} is known, but {admission:?}");
                Ok(())
            }
            Admission::UnknownLane => Err("the lane is known".into()),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each is a different thing")]
    fn start(
        &mut self,
        id: LeaseId,
        job: Option<JobId>,
        slot: Option<usize>,
        handed_out_by: Option<usize>,
        upstream: usize,
        held: Held,
        expires: Time,
    ) -> Verdict {
        let lease =
            Lease { job, lane: slot, upstream: Some(upstream), awaiting: false, later: false, expires, held };
        let start = Start {
            lease: id,
            upstream,
            lane: handed_out_by,
            job,
            held: lease.held.clone(),
            lease_expires: expires,
        };
        ensure!(self.leases.insert(id, lease).is_none(), "{id:?} was issued while it was out");
        self.issue(id)?;
        self.facts.push(Fact::Started(start));
        Ok(())
    }

    fn issue(&mut self, id: LeaseId) -> Verdict {
        ensure!(!self.issued.contains(&id), "{id:?} was issued twice");
        self.issued.push(id);
        Ok(())
    }

    fn granted(&mut self, lane: usize, grant: &Grant, expires: Time) -> Verdict {
        let upstream = upstream_number(&grant.upstream);
        ensure!(self.jobs.contains_key(&grant.job), "{grant:?} is of no job");
        let equal = self.processing_equal(grant.job);
        ensure!(equal.is_none(), "{grant:?} is sent while its equal {equal:?} is under way");
        let job = self.jobs.get_mut(&grant.job).unwrap();
        ensure!(job.state == State::Queued && job.lane == lane, "{grant:?}, but it is {job:?}");
        ensure!(job.untried().contains(&upstream), "{grant:?} is not of its chain: {job:?}");
        if job.tried.is_empty() {
            job.attempts += 1;
        }
        ensure!(grant.attempt == job.attempts, "{grant:?} is attempt {}", job.attempts);
        ensure!(
            grant.lease_expires == expires && grant.expires_at == job.expires_at && grant.level == job.level,
            "{grant:?} of {job:?}"
        );
        job.state = State::Processing(grant.lease);
        let held = job.held_at(upstream);
        self.facts.push(Fact::Served(grant.job, self.jobs[&grant.job].clone()));
        self.start(grant.lease, Some(grant.job), Some(lane), Some(lane), upstream, held, expires)
    }

    fn advanced(&mut self, id: LeaseId, report: &Report, advanced: &Advanced, now: Time) -> Verdict {
        let lease = self.leases.get(&id).filter(|lease| lease.job.is_some() && !lease.awaiting).cloned();
        let Some(mut lease) = lease else {
            ensure!(*advanced == Advanced::Stale, "a stale advance said {advanced:?}");
            return Ok(());
        };
        let job_id = lease.job.unwrap();
        let Some(failed) = lease.upstream else {
            ensure!(*advanced == Advanced::Exhausted, "an advance after the last said {advanced:?}");
            return Ok(());
        };
        // The lane's slot stays with the lease.
        self.finish_call(id, &Lease { lane: None, ..lease.clone() }, report, None);
        self.jobs.get_mut(&job_id).unwrap().tried.push(failed);
        (lease.upstream, lease.held) = (None, Vec::new());
        self.leases.insert(id, lease.clone());
        let job = self.jobs.get_mut(&job_id).unwrap();
        let over = job.untried().is_empty() || now > job.expires_at;
        ensure!(over == (*advanced == Advanced::Exhausted), "{advanced:?} of {job:?} at {now:?}");
        match advanced {
            Advanced::Exhausted => {}
            Advanced::Stale => return Err(format!("{id:?} is out, but was called stale")),
            Advanced::To(next) => {
                let next = upstream_number(next);
                ensure!(job.untried().contains(&next), "advanced to {next} with {job:?}");
                let held = job.held_at(next);
                self.leases.remove(&id);
                self.issued.retain(|known| *known != id);
                self.start(id, Some(job_id), lease.lane, None, next, held, lease.expires)?;
            }
            Advanced::Waits(_) => {
                self.leases.remove(&id);
                self.finish_call(id, &lease, &Report::from(CallResult::Success), None);
                self.stopped(job_id);
                self.stand_again(job_id);
            }
        }
        Ok(())
    }

    fn settled(&mut self, settlement: &Settlement, settled: Settled, now: Time) -> Verdict {
        let Settlement { lease: id, report, outcome, answer } = settlement;
        let id = *id;
        let Some(lease) = self.leases.remove(&id) else {
            ensure!(settled == Settled::Stale, "a stale settle said {settled:?}");
            return Ok(());
        };
        let heir = if let Settled::Awaiting(heir) = settled { Some(heir) } else { None };
        self.finish_call(id, &lease, report, heir);
        let Some(job_id) = lease.job else {
            ensure!(settled == Settled::Released, "a call without a job is {settled:?}");
            return Ok(());
        };
        let fallback = self.falls_back(job_id, report.result, outcome, now);
        let job = self.jobs.get_mut(&job_id).unwrap();
        let expected = match outcome {
            Outcome::Awaiting(until) => {
                let Settled::Awaiting(new) = settled else {
                    return Err(format!("an awaiting job is {settled:?}"));
                };
                job.state = State::Processing(new);
                let lease = Lease { lane: None, awaiting: true, expires: *until, held: Vec::new(), ..lease };
                self.leases.insert(new, lease);
                return self.issue(new);
            }
            _ if fallback.is_some() => Settled::Ended(Status::Completed),
            Outcome::Done => Settled::Ended(Status::Completed),
            Outcome::Retry { at, .. } if *at <= job.expires_at => Settled::RetryAt(*at),
            Outcome::Retry { .. } | Outcome::Dead(_) | Outcome::Failed(_) => Settled::Ended(Status::Failed),
            Outcome::Release => Settled::Requeued,
        };
        ensure!(settled == expected, "{outcome:?} of {job:?} was {settled:?}");
        self.facts.push(Fact::Stopped(job_id, job.clone()));
        match settled {
            Settled::Ended(Status::Completed) => self.completed(job_id, fallback, answer.as_ref(), now),
            Settled::RetryAt(at) => {
                job.tried.clear();
                job.state = State::Pending(at);
                let seq = job.seq;
                self.give_way(job_id, Some(seq));
            }
            Settled::Requeued => {
                if job.tried.is_empty() {
                    job.attempts -= 1;
                }
                self.stand_again(job_id);
            }
            _ => self.end(job_id, Status::Failed, "failed"),
        }
        Ok(())
    }

    fn completed(&mut self, id: JobId, fallback: Option<&'static str>, answer: Option<&Payload>, now: Time) {
        let kept = fallback.is_none() && self.keep(id, answer, now);
        self.serving = kept;
        self.end(id, Status::Completed, fallback.unwrap_or("completed"));
        self.serving = false;
        if kept {
            self.answer_equals(id, now);
        }
    }

    /// Answers of no more use are gone; a sweep has seen to that.
    fn forget_answers(&mut self, now: Time) {
        for lane in 0..2 {
            let Some((ttl, stale, _)) = self.plan.lanes[lane].cache else { continue };
            self.kept[lane].retain(|kept| now < kept.usable_until(ttl, stale));
        }
    }

    fn cancelled(&mut self, id: JobId, answer: &Cancelled) -> Verdict {
        let state = self.jobs.get(&id).map(|job| job.state);
        match (answer, state) {
            (Cancelled::Yes(_), Some(State::Pending(_) | State::Queued)) => {}
            (Cancelled::Yes(_), Some(State::Processing(lease))) => {
                let later = !self.jobs[&id].tried.is_empty();
                let lease = self.leases.get_mut(&lease).unwrap();
                (lease.job, lease.awaiting, lease.later) = (None, false, later);
                self.stopped(id);
            }
            (Cancelled::AlreadyEnded(told), Some(State::Ended(status))) if *told == status => return Ok(()),
            (Cancelled::Unknown, None | Some(State::Ended(_))) => return Ok(()),
            _ => return Err(format!("cancel of a job that is {state:?}: {answer:?}")),
        }
        self.end(id, Status::Cancelled, "cancelled");
        Ok(())
    }

    /// The answer does not say what the letter held: that is looked up.
    fn replayed(
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

/// The word under which an end is counted.
pub(crate) fn word(end: &End) -> &'static str {
    match end {
        End::Completed => "completed",
        End::Served(ServedBy::Cache) => "cache",
        End::Served(ServedBy::Coalesced) => "coalesced",
        End::Served(ServedBy::Stale(fallback)) => fallback.as_str(),
        End::Failed { .. } => "failed",
        End::Dropped(DropReason::TtlExpired) => "expired",
        End::Dropped(DropReason::Preempted) => "preempted",
        End::Dropped(DropReason::QueueFull) => "refused",
        End::Cancelled => "cancelled",
    }
}

/// Upstream, bucket and tokens of a hold, which does not show them: the one of all holds of these tests that equals it.
fn held(hold: &Hold) -> (usize, String, i64) {
    let all =
        (0..3).flat_map(|at| (0..3).flat_map(move |bucket| (1..3).map(move |halves| (at, bucket, halves))));
    let (at, bucket, halves) =
        all.into_iter().find(|(at, bucket, halves)| rules::hold(*at, *bucket, *halves) == *hold).unwrap();
    let (key, _) = rules::SCOPED[usize::from(bucket)];
    (at, key.to_owned(), i64::from(halves) * rules::HALF_TOKEN)
}
