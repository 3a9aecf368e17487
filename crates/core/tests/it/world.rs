//! Runs a plan on an engine in virtual time and checks every step.

use std::sync::Arc;

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admit, Advance, CallFailure, Dispatch, Engine, FailureReason, JobId, LeaseId, Level, NewJob, Outcome,
    Payload, Polling, Report, RetryAfter, Settlement, Span, Spec, Time, Tokens, Usage,
};

use crate::calls::{Call, Reply};
use crate::check::{self, Checker, Step};
use crate::ledger::{Ledger, State, Verdict, ensure};
use crate::plan::{JobPlan, LeasePick, Op, OutcomePlan, ReportPlan, RulePlan};
use crate::rules::{self, HALF_TOKEN, TENANTS, lane_name, upstream_name};

const START: Time = Time::from_millis(1_700_000_000_000);

/// How many times the drain may ask before it counts as stuck.
const MAX_ROUNDS: usize = 3_000;

const CACHE_RECORD: u8 = 16;

pub(crate) struct World {
    now: Time,
    engine: Engine,
    ledger: Ledger,
    checkers: Vec<Box<dyn Checker>>,
    jobs: Vec<JobId>,
    next: [Time; 2],
    nonce: u64,
    /// No gate ever says no.
    open: bool,
}

/// Runs `ops`, then lets time and successful workers end all remaining jobs.
pub(crate) fn play(plan: &RulePlan, ops: &[Op], open: bool) -> Verdict {
    let spec = rules::spec(plan);
    let mut world = World::new(plan, &spec, open);
    for (number, op) in ops.iter().enumerate() {
        world.step(op).map_err(|problem| format!("step {number}, {op:?}: {problem}"))?;
    }
    world.drain().map_err(|problem| format!("draining: {problem}"))
}

impl World {
    fn new(plan: &RulePlan, spec: &Spec, open: bool) -> Self {
        Self {
            now: START,
            engine: Engine::new(spec),
            ledger: Ledger::new(plan.clone()),
            checkers: check::all(plan, open),
            jobs: Vec::new(),
            next: [START; 2],
            nonce: 0,
            open,
        }
    }

    fn call(&mut self, call: &Call) -> Verdict<Reply> {
        self.engine.now(self.now);
        for checker in &mut self.checkers {
            checker.before(call, &self.ledger, &self.engine, self.now);
        }
        let reply = call.clone().make(&mut self.engine, self.now);
        let facts = self.ledger.observe(call, &reply, &self.engine, self.now)?;
        let Self { engine, ledger, now, .. } = self;
        let step = Step { call, reply: &reply, facts: &facts, ledger, engine, now: *now };
        for checker in &mut self.checkers {
            checker.after(&step)?;
        }
        Ok(reply)
    }

    fn step(&mut self, op: &Op) -> Verdict {
        match op {
            Op::Wait(ms) => self.now = self.now + Span::from_millis(*ms),
            Op::Enqueue(jobs) => {
                let jobs = jobs.iter().map(|job| self.job(job)).collect();
                self.call(&Call::Enqueue(jobs))?;
            }
            Op::Dispatch { lane, max, lease_ms } => self.dispatch(*lane, *max, *lease_ms)?,
            Op::Poll { lane, part } => {
                let until = self.next[usize::from(*lane)].min(self.now + Span::from_secs(3_600));
                let wait = until.since(self.now).as_millis() * u64::from(*part) / 256;
                self.now = self.now + Span::from_millis(wait);
                self.dispatch(*lane, 5, 10_000)?;
            }
            Op::Advance(pick, report) => {
                let lease = self.lease(pick);
                let report = self.report(lease, report);
                let upstream =
                    self.ledger.leases.get(&lease).and_then(|lease| lease.upstream).unwrap_or_default();
                let upstream = rules::upstream_name(upstream);
                let ask = Advance { lease, upstream, report, failure: failure(), unsent: None };
                self.call(&Call::Advance(ask))?;
            }
            Op::Extend(picks, ms) => {
                let leases = picks.iter().map(|pick| self.lease(pick)).collect();
                self.call(&Call::Extend(leases, Span::from_millis(*ms)))?;
            }
            Op::Settle(plans) => {
                let settle = |(pick, report, outcome): &(LeasePick, ReportPlan, OutcomePlan)| {
                    let lease = self.lease(pick);
                    let report = self.report(lease, report);
                    let answer = self.answer(outcome);
                    Settlement { lease, report, outcome: to_outcome(outcome), answer, unsent: None }
                };
                let settlements = plans.iter().map(settle).collect();
                self.call(&Call::Settle(settlements))?;
            }
            Op::Cancel(job) => {
                let job = pick(&self.jobs, *job).unwrap_or(JobId(0));
                self.call(&Call::Cancel(job))?;
            }
            Op::Admit { lane, upstream, hold, lease_ms } => {
                // Lost jobs are recovered first, to separate that from what the admission itself does.
                self.call(&Call::Sweep)?;
                let at = upstream.map(usize::from);
                let hold = hold.filter(|_| self.ledger.plan.scoped);
                let hold = hold.zip(at.filter(|at| *at < 3));
                self.nonce += 1;
                let ask = Admit {
                    lane: lane.map(|lane| lane_name(usize::from(lane))),
                    tenant: None,
                    chain: at.map(upstream_name).into_iter().collect(),
                    holds: hold
                        .map(|((bucket, halves), at)| rules::hold(at, bucket, halves))
                        .into_iter()
                        .collect(),
                    correlation: None,
                    lease: Span::from_millis(*lease_ms),
                    nonce: self.nonce,
                    after: None,
                    probe: true,
                };
                self.call(&Call::Admit(ask))?;
            }
            Op::Record(upstream, result) => {
                self.call(&Call::Record(upstream_name(usize::from(*upstream)), *result))?;
            }
            Op::Recover(upstream) => {
                self.call(&Call::Recover(upstream_name(usize::from(*upstream))))?;
            }
            Op::Reset(upstream) => {
                self.call(&Call::Reset(upstream_name(usize::from(*upstream))))?;
            }
            Op::Replay(lane, letter) => {
                let (lane, letter) = self.letter(*lane, *letter);
                let id = self.new_id();
                self.call(&Call::Replay(lane, letter, id))?;
            }
            Op::Discard(lane, letter) => {
                let (lane, letter) = self.letter(*lane, *letter);
                self.call(&Call::Discard(lane, letter))?;
            }
            Op::Pause(lane, paused) => {
                self.call(&Call::Pause(lane_name(usize::from(*lane)), *paused))?;
            }
            Op::Sweep => {
                self.call(&Call::Sweep)?;
            }
            Op::Restart | Op::Reopen | Op::Clean(_) => {}
        }
        for checker in &mut self.checkers {
            checker.op(op, &mut self.engine, self.now)?;
        }
        Ok(())
    }

    fn dispatch(&mut self, lane: u8, max: u8, lease_ms: u64) -> Verdict {
        self.nonce += 1;
        let ask = Dispatch {
            lane: lane_name(usize::from(lane)),
            max: usize::from(max),
            lease: Span::from_millis(lease_ms),
            nonce: self.nonce,
            wait: Span::ZERO,
            denied: None,
        };
        if let Reply::Dispatch(given) = self.call(&Call::Dispatch(ask))? {
            self.next[usize::from(lane)] = given.next;
        }
        Ok(())
    }

    fn new_id(&mut self) -> JobId {
        let id = JobId(self.jobs.len() as u128 + 1);
        self.jobs.push(id);
        id
    }

    fn job(&mut self, plan: &JobPlan) -> NewJob {
        let again = plan.again.and_then(|again| pick(&self.jobs, again));
        let id = again.unwrap_or_else(|| self.new_id());
        let lane = usize::from(plan.lane);
        let mut job =
            NewJob::new(id, lane_name(lane), TENANTS[usize::from(plan.tenant)], vec![7; plan.bytes.into()]);
        job.level = Level::ALL[usize::from(plan.level)];
        job.ttl = plan.ttl_ms.map(Span::from_millis);
        job.delay = Span::from_millis(plan.delay_ms);
        job.key = plan.key.map(|key| Arc::from(format!("key-{key}")));
        job.cache_key = plan.cache_key.map(|key| Arc::from(format!("cpf-{key}")));
        let chain = rules::chain(plan.chain.unwrap_or(self.ledger.plan.lanes[lane].chain));
        job.chain = plan.chain.map(|_| chain.iter().map(|upstream| upstream_name(*upstream)).collect());
        if let Some((at, bucket, halves)) = plan.hold.filter(|_| self.ledger.plan.scoped) {
            job.holds.push(rules::hold(chain[usize::from(at) % chain.len()], bucket, halves));
        }
        job
    }

    fn lease(&self, plan: &LeasePick) -> LeaseId {
        let live: Vec<_> = self.ledger.leases.keys().copied().collect();
        let nobody = LeaseId { epoch: 0, number: 0, nonce: 0 };
        match plan {
            LeasePick::Live(lease) => pick(&live, *lease).unwrap_or(nobody),
            LeasePick::Issued(lease) => pick(&self.ledger.issued, *lease).unwrap_or(nobody),
            LeasePick::MadeUp(lease, what) => {
                let mut lease = pick(&live, *lease).unwrap_or(nobody);
                match what {
                    0 => lease.epoch += 7,
                    1 => lease.number += 1_000_000,
                    _ => lease.nonce += 1_000_000,
                }
                lease
            }
        }
    }

    fn report(&self, lease: LeaseId, plan: &ReportPlan) -> Report {
        let held = self.ledger.leases.get(&lease).and_then(|lease| lease.held.first());
        let key = held.map(|(key, _)| Arc::<str>::from(key.as_str()));
        // All policies charge the usage that the answer reports.
        let usage = |halves| Usage::Amount(Tokens::from_micro(i64::from(halves) * HALF_TOKEN));
        Report {
            result: plan.result,
            status: plan.cost.map(|_| 200),
            usage: plan.cost.map_or(Usage::Unknown, usage),
            retry_after: plan.close.filter(|_| !self.open).map(|(ms, narrow)| RetryAfter {
                wait: Span::from_millis(ms),
                bucket: key.filter(|_| narrow),
            }),
            took: plan.cost.map(|cost| Span::from_millis(u64::from(cost) * 100)),
            answered_ago: None,
        }
    }

    fn answer(&self, plan: &OutcomePlan) -> Option<Payload> {
        match plan {
            OutcomePlan::Done(bytes) => bytes.map(|bytes| vec![1; bytes.into()].into()),
            _ => Some(self.now.as_millis().to_be_bytes()[..].into()),
        }
    }

    fn letter(&self, lane: u8, letter: u16) -> (eclusa_core::Name, JobId) {
        let lane = lane_name(usize::from(lane));
        let letters = crate::rules::letters(&self.engine, &lane);
        let letters: Vec<_> = letters.into_iter().map(|view| view.job).collect();
        (lane, pick(&letters, letter).unwrap_or(JobId(0)))
    }

    /// Follows only wake-up times, with workers that succeed at once, until nothing waits; then nothing must be left.
    fn drain(&mut self) -> Verdict {
        for lane in 0..2 {
            self.step(&Op::Pause(lane, false))?;
        }
        for _ in 0..MAX_ROUNDS {
            let mut given = false;
            for lane in 0..2 {
                self.step(&Op::Dispatch { lane, max: 50, lease_ms: 10_000 })?;
                given |= self.succeed()?;
            }
            let left = self.ledger.jobs.values().any(|job| !matches!(job.state, State::Ended(_)));
            if !left && self.ledger.leases.is_empty() {
                return self.is_empty();
            }
            let next = self.next[0].min(self.next[1]);
            ensure!(given || next < Time::NEVER, "jobs wait for ever: {:?}", self.ledger.jobs);
            self.now = self.now.max(if given { self.now } else { next });
        }
        Err(format!("still jobs after {MAX_ROUNDS} rounds: {:?}", self.ledger.jobs))
    }

    /// Settles all leases of jobs as done; returns whether there were any.
    fn succeed(&mut self) -> Verdict<bool> {
        let of_jobs = self.ledger.leases.iter().filter(|(_, lease)| lease.job.is_some() && !lease.awaiting);
        let settle = |lease: LeaseId| Settlement {
            lease,
            report: Report::from(CallResult::Success),
            outcome: Outcome::Done,
            answer: lease.number.is_multiple_of(2).then(|| lease.number.to_be_bytes()[..].into()),
            unsent: None,
        };
        let settlements: Vec<_> = of_jobs.map(|(id, _)| settle(*id)).collect();
        let some = !settlements.is_empty();
        if some {
            self.call(&Call::Settle(settlements))?;
        }
        Ok(some)
    }

    fn is_empty(&mut self) -> Verdict {
        for view in self.engine.upstreams(self.now) {
            ensure!(view.in_flight == 0, "a slot leaked: {view:?}");
        }
        for view in self.engine.lanes(self.now) {
            let left = view.queued.iter().sum::<u64>() + view.pending + view.processing + view.waiting_bytes;
            ensure!(left == 0, "something is left: {view:?}");
        }
        self.now = self.now + Span::from_secs(30 * 86_400);
        for _ in 0..100 {
            let Reply::Sweep(swept) = self.call(&Call::Sweep)? else { break };
            if swept.next == Time::NEVER {
                return self.is_forgotten();
            }
            self.now = self.now.max(swept.next);
        }
        Err(format!("sweeps without end at {:?}", self.now))
    }

    /// After enough time, only lanes, upstreams and tenants remain.
    fn is_forgotten(&self) -> Verdict {
        for view in self.engine.lanes(self.now) {
            ensure!(view.finished == 0 && view.dead_letters == 0, "not forgotten: {view:?}");
        }
        let records = self.engine.snapshot().unwrap();
        ensure!(records.iter().all(|record| record[0] != CACHE_RECORD), "old answers are still there");
        let buckets = rules::SCOPED.iter().filter(|(key, _)| self.engine.bucket(key, self.now).is_some());
        ensure!(buckets.count() == 0, "full and idle buckets are still there");
        Ok(())
    }
}

fn failure() -> CallFailure {
    let reason = FailureReason::new("refused").unwrap();
    CallFailure { reason, code: Some("503".into()), upstream: None }
}

fn to_outcome(plan: &OutcomePlan) -> Outcome {
    match plan {
        // The largest answers are not cached.
        OutcomePlan::Done(Some(8)) => Outcome::DoneUncached,
        OutcomePlan::Done(_) => Outcome::Done,
        OutcomePlan::Retry(ms) => Outcome::Retry { after: Span::from_millis(*ms), failure: failure() },
        OutcomePlan::Dead => Outcome::Dead(failure()),
        OutcomePlan::Failed => Outcome::Failed(failure()),
        OutcomePlan::Release => Outcome::Release,
        OutcomePlan::Awaiting(ms) => awaiting(*ms),
    }
}

/// Varies what is known about an awaiting job.
pub(crate) fn awaiting(ms: u64) -> Outcome {
    let poll = (!ms.is_multiple_of(3))
        .then(|| Polling { after: Span::from_millis(ms / 4), every: Span::from_millis(ms / 8) });
    let external = ms.is_multiple_of(2).then(|| format!("ext-{}", ms % 5).into());
    Outcome::Awaiting { timeout: Span::from_millis(ms), external, next: false, poll }
}

fn pick<T: Copy>(among: &[T], number: u16) -> Option<T> {
    among.get(usize::from(number) % among.len().max(1)).copied()
}
