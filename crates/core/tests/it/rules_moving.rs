//! Rules that change while everything else continues: several processes register, reload, stop and become silent.
//!
//! At every change, an engine that was restored from the records or followed them gets the same change. Both must then
//! have the same state and give the same answers. At the end, under rules without limits, no job is left.

use std::sync::Arc;

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admission, Admit, Advance, CallFailure, Dispatch, Engine, FailureReason, JobId, LeaseId, Level, NewJob,
    Outcome, ProcessId, Registration, Report, Settled, Settlement, Span, Spec, Status, Time,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::calls::{Call, Reply};
use crate::check::restart::{follow, same, shown};
use crate::ledger::{Verdict, ensure};
use crate::plan::{self, JobPlan, LeasePick, Op, OutcomePlan, ReportPlan, RulePlan};
use crate::rules::{self, TENANTS, lane_name, upstream_name};

const START: Time = Time::from_millis(1_700_000_000_000);
const MAX_ROUNDS: usize = 2_000;

#[derive(Debug, Clone)]
pub(crate) enum Move {
    Play(Op),
    /// A process is started or reloaded with these rules, without one of the lanes or all of them.
    Register {
        process: u8,
        rules: u8,
        without: u8,
    },
    /// A program that uses the library is started, or names other gates.
    RegisterGates {
        process: u8,
        rules: u8,
    },
    Stop(u8),
    Heard(u8),
}

pub(crate) fn moves() -> impl Strategy<Value = Vec<Move>> {
    let register = (1..4u8, 0..3u8, 0..5u8).prop_map(|(process, rules, without)| Move::Register {
        process,
        rules,
        without,
    });
    let one = prop_oneof![
        12 => plan::op().prop_map(Move::Play),
        3 => register,
        1 => (1..4u8, 0..3u8).prop_map(|(process, rules)| Move::RegisterGates { process, rules }),
        1 => (1..4u8).prop_map(Move::Stop),
        2 => (1..4u8).prop_map(Move::Heard),
    ];
    vec(one, 1..80)
}

/// Runs `moves` with the three sets of rules.
pub(crate) fn play(plans: &[RulePlan], moves: &[Move]) -> Verdict {
    let mut world = Moving::new(plans);
    for (number, step) in moves.iter().enumerate() {
        world.step(step).map_err(|problem| format!("step {number}, {step:?}: {problem}"))?;
    }
    world.drain().map_err(|problem| format!("draining: {problem}"))
}

struct Moving {
    plans: Vec<RulePlan>,
    engine: Engine,
    /// An engine restored at the last change of rules, with the same calls since.
    twin: Option<Engine>,
    chunks: Vec<Vec<u8>>,
    now: Time,
    stamp: u64,
    nonce: u64,
    jobs: Vec<JobId>,
    leases: Vec<LeaseId>,
    scoped: bool,
    parks: bool,
}

impl Moving {
    fn new(plans: &[RulePlan]) -> Self {
        Self {
            plans: plans.to_vec(),
            engine: Engine::default(),
            twin: None,
            chunks: Vec::new(),
            now: START,
            stamp: 0,
            nonce: 0,
            jobs: Vec::new(),
            leases: Vec::new(),
            scoped: plans[0].scoped,
            parks: plans.iter().any(RulePlan::parks),
        }
    }

    fn step(&mut self, step: &Move) -> Verdict {
        match step {
            Move::Play(op) => self.play(op),
            Move::Register { process, rules, without } => {
                let spec = self.spec(*rules, *without);
                self.stamp += 1;
                self.register(*process, spec)
            }
            Move::RegisterGates { process, rules } => {
                let spec = rules::spec(&self.plans[usize::from(*rules)]);
                self.stamp += 1;
                self.register(*process, Spec::partial(spec.upstreams().to_vec()).unwrap())
            }
            Move::Stop(process) => {
                self.change(|engine, now| engine.unregister(ProcessId(u64::from(*process)), now))
            }
            Move::Heard(process) => {
                self.hear(ProcessId(u64::from(*process)));
                Ok(())
            }
        }
    }

    /// The rules, without lane 0, 1 or both and the upstreams that only those use.
    fn spec(&self, rules: u8, without: u8) -> Spec {
        let whole = rules::spec(&self.plans[usize::from(rules)]);
        let gone = |lane: usize| usize::from(without) == lane || without == 2;
        let lanes: Vec<_> =
            (0..).zip(whole.lanes()).filter(|(n, _)| !gone(*n)).map(|(_, l)| l.clone()).collect();
        let used = |name| without > 2 || lanes.iter().any(|lane| lane.chain.names().contains(name));
        let upstreams = whole.upstreams().iter().filter(|upstream| used(&upstream.name)).cloned().collect();
        Spec::new(lanes, upstreams).unwrap()
    }

    fn register(&mut self, process: u8, spec: Spec) -> Verdict {
        let process = ProcessId(u64::from(process));
        let registration =
            Registration { process, stamp: self.stamp, about: "test".into(), spec: Arc::new(spec) };
        self.change(|engine, now| engine.register(registration.clone(), now))
    }

    fn hear(&mut self, process: ProcessId) {
        self.engine.heard_from(process, self.now);
        if let Some(twin) = &mut self.twin {
            twin.heard_from(process, self.now);
        }
    }

    fn save(&mut self) {
        let mut chunk = Engine::begin_chunk();
        self.engine.save_changes(&mut chunk).unwrap();
        self.chunks.push(chunk);
    }

    /// An engine restored from the records, which must equal the one that wrote them.
    fn restored(&mut self) -> Verdict<Engine> {
        self.save();
        ensure!(!self.engine.has_changes(), "there is something to save right after it was saved");
        let mut restored = follow(&self.chunks, 0, |_| false);
        ensure!(!restored.has_changes(), "an engine that was just restored has something to save");
        let every = 1 + self.chunks.len() % 3;
        let mut followed = follow(&self.chunks, 0, |number| number.is_multiple_of(every));
        ensure!(!followed.has_changes(), "an engine that followed has something to save");
        // In a restored engine all processes count as live; that is not compared here.
        for view in self.engine.registrations().collect::<Vec<_>>() {
            self.hear(view.process);
            restored.heard_from(view.process, self.now);
            followed.heard_from(view.process, self.now);
        }
        self.same(&restored)?;
        self.same(&followed).map_err(|problem| format!("followed: {problem}"))?;
        // Both continue in the same way.
        Ok(if self.chunks.len().is_multiple_of(2) { restored } else { followed })
    }

    fn same(&self, other: &Engine) -> Verdict {
        let (was, is) = (self.engine.snapshot().unwrap(), other.snapshot().unwrap());
        let lost: Vec<_> = was.iter().filter(|record| !is.contains(record)).collect();
        let new: Vec<_> = is.iter().filter(|record| !was.contains(record)).collect();
        ensure!(lost.is_empty() && new.is_empty(), "lost {lost:?}, brought {new:?}");
        if self.parks {
            return Ok(());
        }
        let all = || self.jobs.iter().copied();
        let (was, is) = (shown(&self.engine, &mut all(), self.now), shown(other, &mut all(), self.now));
        same(&was, &is, "a restart")
    }

    /// Changes the rules of the engine in place, and of one that was restored just before.
    fn change(&mut self, change: impl Fn(&mut Engine, Time)) -> Verdict {
        let mut restored = self.restored()?;
        change(&mut self.engine, self.now);
        change(&mut restored, self.now);
        self.same(&restored).map_err(|problem| format!("changed in place: {problem}"))?;
        self.restored().map_err(|problem| format!("restored after the change: {problem}"))?;
        // Parked lines are checked once more after a restart, so their order differs for a while.
        self.twin = Some(restored).filter(|_| !self.parks);
        Ok(())
    }

    fn call(&mut self, call: &Call) -> Verdict<Reply> {
        let reply = call.clone().make(&mut self.engine, self.now);
        if let Some(twin) = &mut self.twin {
            let other = call.clone().make(twin, self.now);
            ensure!(
                reply == other,
                "{call:?} was answered {reply:?} in place, but {other:?} after a restart"
            );
        }
        self.leases.extend(match &reply {
            Reply::Dispatch(given) => given.grants.iter().map(|grant| grant.lease).collect(),
            Reply::Settle(answer) => answer.leases.iter().filter_map(|settled| awaiting(*settled)).collect(),
            Reply::Admit(answer) => match answer.admission {
                Admission::Granted { lease, .. } => vec![lease],
                _ => Vec::new(),
            },
            _ => Vec::new(),
        });
        Ok(reply)
    }

    fn play(&mut self, op: &Op) -> Verdict {
        let call = match op {
            Op::Wait(ms) => {
                self.now = self.now + Span::from_millis(*ms);
                return Ok(());
            }
            Op::Restart => return self.restored().map(drop),
            Op::Reopen => {
                self.engine = self.restored()?;
                self.twin = None;
                return Ok(());
            }
            Op::Clean(_) => return Ok(()),
            Op::Enqueue(jobs) => Call::Enqueue(jobs.iter().map(|job| self.job(job)).collect()),
            Op::Dispatch { lane, max, lease_ms } => self.dispatch(*lane, *max, *lease_ms),
            Op::Poll { lane, .. } => self.dispatch(*lane, 5, 10_000),
            Op::Advance(pick, report) => self.advance(pick, report),
            Op::Extend(picks, ms) => {
                let leases = picks.iter().map(|pick| self.lease(pick)).collect();
                Call::Extend(leases, Span::from_millis(*ms))
            }
            Op::Settle(plans) => {
                let settle = |(pick, report, outcome): &(LeasePick, ReportPlan, OutcomePlan)| Settlement {
                    lease: self.lease(pick),
                    report: Report::from(report.result),
                    outcome: outcome_of(outcome),
                    answer: Some(b"700"[..].into()),
                    unsent: None,
                };
                Call::Settle(plans.iter().map(settle).collect())
            }
            Op::Cancel(job) => Call::Cancel(pick(&self.jobs, *job).unwrap_or(JobId(0))),
            Op::Admit { lane, upstream, lease_ms, .. } => self.admit(*lane, *upstream, *lease_ms),
            Op::Record(upstream, result) => Call::Record(upstream_name(usize::from(*upstream)), *result),
            Op::Recover(upstream) => Call::Recover(upstream_name(usize::from(*upstream))),
            Op::Reset(upstream) => Call::Reset(upstream_name(usize::from(*upstream))),
            Op::Replay(lane, letter) => {
                let lane = lane_name(usize::from(*lane));
                let letters = crate::rules::letters(&self.engine, &lane);
                let letters: Vec<_> = letters.into_iter().map(|view| view.job).collect();
                let id = self.new_id();
                Call::Replay(lane, pick(&letters, *letter).unwrap_or(JobId(0)), id)
            }
            Op::Discard(lane, letter) => {
                Call::Discard(lane_name(usize::from(*lane)), JobId(u128::from(*letter)))
            }
            Op::Pause(lane, paused) => Call::Pause(lane_name(usize::from(*lane)), *paused),
            Op::Sweep => Call::Sweep,
        };
        self.call(&call).map(drop)
    }

    fn dispatch(&mut self, lane: u8, max: u8, lease_ms: u64) -> Call {
        self.nonce += 1;
        Call::Dispatch(Dispatch {
            lane: lane_name(usize::from(lane)),
            max: usize::from(max),
            lease: Span::from_millis(lease_ms),
            nonce: self.nonce,
            wait: Span::ZERO,
            denied: None,
        })
    }

    fn admit(&mut self, lane: Option<u8>, upstream: Option<u8>, lease_ms: u64) -> Call {
        self.nonce += 1;
        Call::Admit(Admit {
            lane: lane.map(|lane| lane_name(usize::from(lane))),
            tenant: None,
            chain: upstream.map(|upstream| upstream_name(usize::from(upstream))).into_iter().collect(),
            holds: Vec::new(),
            correlation: None,
            lease: Span::from_millis(lease_ms),
            nonce: self.nonce,
            after: None,
            probe: true,
        })
    }

    fn advance(&self, pick: &LeasePick, report: &ReportPlan) -> Call {
        let lease = self.lease(pick);
        let at =
            self.jobs.iter().filter_map(|job| self.engine.job(*job)).find(|job| job.lease == Some(lease));
        let upstream = at.and_then(|job| job.upstream).unwrap_or_else(|| upstream_name(0));
        Call::Advance(Advance {
            lease,
            upstream,
            report: report.result.into(),
            failure: failure(),
            unsent: None,
        })
    }

    fn lease(&self, plan: &LeasePick) -> LeaseId {
        let (LeasePick::Live(lease) | LeasePick::Issued(lease) | LeasePick::MadeUp(lease, _)) = plan;
        // Most of the last issued leases are still open.
        let last = &self.leases[self.leases.len().saturating_sub(8)..];
        pick(last, *lease).unwrap_or(LeaseId { epoch: 9, number: 9, nonce: 9 })
    }

    fn new_id(&mut self) -> JobId {
        let id = JobId(self.jobs.len() as u128 + 1);
        self.jobs.push(id);
        id
    }

    fn job(&mut self, plan: &JobPlan) -> NewJob {
        let again = plan.again.and_then(|again| pick(&self.jobs, again));
        let id = again.unwrap_or_else(|| self.new_id());
        let (lane, tenant) = (lane_name(usize::from(plan.lane)), TENANTS[usize::from(plan.tenant)]);
        let mut job = NewJob::new(id, lane, tenant, vec![7; plan.bytes.into()]);
        job.level = Level::ALL[usize::from(plan.level)];
        job.ttl = plan.ttl_ms.map(Span::from_millis);
        job.delay = Span::from_millis(plan.delay_ms);
        job.key = plan.key.map(|key| Arc::from(format!("key-{key}")));
        job.cache_key = plan.cache_key.map(|key| Arc::from(format!("cpf-{key}")));
        let chain = plan.chain.map(rules::chain);
        job.chain = chain.map(|chain| chain.iter().map(|upstream| upstream_name(*upstream)).collect());
        if let (Some(chain), Some((at, bucket, halves)), true) = (chain, plan.hold, self.scoped) {
            job.holds.push(rules::hold(chain[usize::from(at) % chain.len()], bucket, halves));
        }
        job
    }

    /// Under rules without limits, workers that succeed at once leave no job.
    fn drain(&mut self) -> Verdict {
        let mut open = self.plans[0].clone();
        open.upstreams.iter_mut().for_each(|gates| *gates = plan::GatePlan::default());
        open.lanes.iter_mut().for_each(|lane| lane.gates = plan::GatePlan::default());
        self.stamp += 1;
        self.register(1, rules::spec(&open))?;
        for lane in 0..2 {
            self.call(&Call::Pause(lane_name(lane), false))?;
        }
        for _ in 0..MAX_ROUNDS {
            let mut next = Time::NEVER;
            self.leases.clear();
            for lane in 0..2 {
                let ask = self.dispatch(lane, 50, 10_000);
                if let Reply::Dispatch(given) = self.call(&ask)? {
                    next = next.min(given.next);
                }
            }
            let done = |lease: &LeaseId| Settlement {
                lease: *lease,
                report: Report::from(CallResult::Success),
                outcome: Outcome::Done,
                answer: None,
                unsent: None,
            };
            let settlements: Vec<_> = self.leases.iter().map(done).collect();
            let idle = settlements.is_empty();
            self.call(&Call::Settle(settlements))?;
            let views = || self.jobs.iter().filter_map(|job| self.engine.job(*job));
            let left: Vec<_> = views().filter(|job| !job.status.is_final()).collect();
            if left.iter().all(|job| job.status == Status::Processing) {
                return Ok(());
            }
            ensure!(!idle || next < Time::NEVER, "jobs wait for ever: {left:?}");
            if idle {
                self.now = self.now.max(next);
                self.hear(ProcessId(1));
            }
        }
        Err("jobs are left after many rounds".to_owned())
    }
}

fn outcome_of(plan: &OutcomePlan) -> Outcome {
    match plan {
        OutcomePlan::Done(_) => Outcome::Done,
        OutcomePlan::Retry(ms) => Outcome::Retry { after: Span::from_millis(*ms), failure: failure() },
        OutcomePlan::Dead => Outcome::Dead(failure()),
        OutcomePlan::Failed => Outcome::Failed(failure()),
        OutcomePlan::Release => Outcome::Release,
        OutcomePlan::Awaiting(ms) => crate::world::awaiting(*ms),
    }
}

fn awaiting(settled: Settled) -> Option<LeaseId> {
    if let Settled::Awaiting(lease) = settled { Some(lease) } else { None }
}

fn failure() -> CallFailure {
    CallFailure { reason: FailureReason::new("refused").unwrap(), code: None, upstream: None }
}

fn pick<T: Copy>(among: &[T], number: u16) -> Option<T> {
    among.get(usize::from(number) % among.len().max(1)).copied()
}
