//! A model of what must have happened, derived only from the answers: the state of each job, the open leases. It is
//! simple and has no indexes. It rejects answers that contradict it, and reports each fact to the checkers in order.

mod answers;
mod intake;
mod leases;

use std::collections::BTreeMap;

use eclusa_core::gate::CallResult;
use eclusa_core::{
    DropReason, End, Engine, Hold, JobId, LeaseId, Level, Payload, Replayed, RetryAfter, ServedBy, Settled,
    Status, Time,
};

use self::answers::Kept;
use crate::calls::{Call, Reply};
use crate::plan::RulePlan;
use crate::rules::{lane_number, upstream_number};

/// A job fails after it lost this many workers.
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
    /// Its position in the order of arrival.
    pub(crate) seq: u64,
    pub(crate) expires_at: Time,
    pub(crate) chain: Vec<usize>,
    pub(crate) tried: Vec<usize>,
    /// By upstream.
    pub(crate) holds: Vec<(usize, String, i64)>,
    pub(crate) attempts: u32,
    pub(crate) lost: u32,
    pub(crate) bytes: u64,
    /// `None` in a lane without a cache.
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
    /// The call of a cancelled job that had been at another upstream before.
    pub(crate) later: bool,
    pub(crate) expires: Time,
    pub(crate) held: Held,
}

/// A call that began at an upstream.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) lease: LeaseId,
    pub(crate) upstream: usize,
    /// The lane that dispatched it, if one did just now.
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
    /// The lane whose slot was released.
    pub(crate) lane: Option<usize>,
    pub(crate) result: CallResult,
    /// Micro-tokens that it cost of each bucket it held from, if reported.
    pub(crate) cost: Option<i64>,
    pub(crate) retry_after: Option<RetryAfter>,
    pub(crate) held: Held,
    /// Nothing was sent under this lease, so the lane's token is returned too.
    pub(crate) unsent: bool,
    /// The lease under which the upstream's work is awaited, and when it ends.
    pub(crate) heir: Option<Heir>,
}

pub(crate) type Heir = (LeaseId, Time);

#[derive(Debug, Clone)]
pub(crate) enum Fact {
    Started(Start),
    Ended(CallEnd),
    Recorded(usize, CallResult),
    Recovered(usize),
    Reset(usize),
    Extended(LeaseId, Time),
    /// A job is in its line. Jobs are passed as they were at that time: by the end of a call the id may belong to
    /// another job.
    Stood(JobId, Job),
    /// A job left its line without being served.
    Left(JobId, Job),
    /// A job left its line to be run.
    Served(JobId, Job),
    /// A job runs no longer.
    Stopped(JobId, Job),
    /// The jobs of a lane with a key got no answer: if none of them runs or is in line, except the one with this
    /// number, the next job that was set aside starts.
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
    /// Requests answered without a job: with a fresh answer, with a stale one.
    pub(crate) at_intake: [[u64; 2]; 2],
    /// Jobs that end because an equal one was answered.
    pub(crate) serving: bool,
    next_seq: u64,
    facts: Vec<Fact>,
    /// What the last settlement of each job did, its lease, and the name of the end.
    last_settled: BTreeMap<JobId, (LeaseId, Settled, Option<&'static str>)>,
    /// What jobs were served with, when first reported.
    served_with: BTreeMap<JobId, Option<Payload>>,
    /// Jobs that the call ended, and how.
    pub(crate) reported: Vec<(JobId, &'static str)>,
}

/// A contradiction in the answers.
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
            last_settled: BTreeMap::new(),
            served_with: BTreeMap::new(),
            reported: Vec::new(),
        }
    }

    /// What a settlement under `lease` did, if it is the last of its job.
    pub(crate) fn settled_before(&self, lease: LeaseId) -> Option<Settled> {
        self.last_settled.values().find(|(last, ..)| *last == lease).map(|(_, how, _)| *how)
    }

    pub(crate) fn waiting(&self, lane: usize) -> impl Iterator<Item = (JobId, &Job)> {
        let jobs = self.jobs.iter().map(|(id, job)| (*id, job));
        jobs.filter(move |(_, job)| job.lane == lane && job.waits())
    }

    pub(crate) fn has_expired_leases(&self, now: Time) -> bool {
        self.leases.values().any(|lease| lease.expires <= now)
    }

    /// Records an answer. `engine` is only asked for what an answer leaves out.
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
                self.recover_lost(now);
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
                    self.settled(settlement, *settled, engine, now)?;
                }
            }
            (Call::Cancel(id), Reply::Cancel(answer)) => self.cancelled(*id, answer)?,
            (Call::Admit(ask), Reply::Admit(answer)) => {
                self.recover_lost(now);
                self.admitted(ask, &answer.admission, now)?;
            }
            (Call::Record(upstream, result), Reply::Record(view)) => {
                let upstream = upstream_number(upstream);
                ensure!(view.is_some() == (upstream < 3), "record knows {upstream}: {view:?}");
                self.facts.push(Fact::Recorded(upstream, *result));
            }
            (Call::Recover(upstream), Reply::Recover(view)) => {
                let upstream = upstream_number(upstream);
                ensure!(view.is_some() == (upstream < 3), "recover knows {upstream}: {view:?}");
                self.facts.push(Fact::Recovered(upstream));
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
                let recovered = self.recover_lost(now);
                ensure!(recovered == swept.recovered, "recovered {:?}, not {recovered:?}", swept.recovered);
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
        let reported: Vec<_> = reply.ended().iter().map(|ended| (ended.job, word(&ended.end))).collect();
        let expected = std::mem::take(&mut self.reported);
        ensure!(reported == expected, "reported {reported:?}, but {expected:?} ended");
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
            // All upstreams were tried and the attempt was not settled: it starts again.
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
        self.reported.push((id, word));
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
}

/// The name under which an end is counted.
pub(crate) fn word(end: &End) -> &'static str {
    match end {
        End::Completed => "completed",
        End::Served(ServedBy::Cache) => "cache",
        End::Served(ServedBy::Coalesced) => "coalesced",
        End::Served(ServedBy::Stale(fallback)) => fallback.as_str(),
        End::Failed { .. } => "failed",
        End::Dropped(DropReason::TtlExpired) => "expired",
        End::Dropped(DropReason::Preempted) => "preempted",
        End::Dropped(DropReason::QueueFull | DropReason::NotInTime) => "refused",
        End::Cancelled => "cancelled",
    }
}

/// Upstream, bucket and tokens of a hold.
fn held(hold: &Hold) -> (usize, String, i64) {
    (upstream_number(hold.upstream()), hold.bucket().to_owned(), hold.tokens().as_micro())
}
