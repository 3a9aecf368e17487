//! Plays a plan on two stores under one clock.

use std::fmt::Debug;
use std::sync::Arc;

use eclusa_conformance::ManualClock;
use eclusa_core::{
    Admission, Admit, Advance, Advanced, Clock, Closure, Dispatch, Failure, FailureReason, JobId, LeaseId,
    Level, Name, NewJob, Outcome, Payload, Report, Settled, Settlement, Span, Store, StoreError, Time,
};

use super::calls::{Call, Reply};
use super::plan::{HoldPlan, JobPlan, Op, OutcomePlan, Pick, ReportPlan, SettlePlan};
use super::views::View;
use super::world::{self, LANES, TENANTS, World, lane_name, upstream_name};

/// All that can be seen is compared after so many steps.
const STEPS_BETWEEN_VIEWS: usize = 25;
/// Of those whose state a verb has changed, so many are looked at after each.
const LOOKS: usize = 3;
/// The end of a play asks each lane so often at the most.
const MAX_ROUNDS: usize = 100;

/// What was asked, with two answers that are not the same.
pub(crate) type Verdict<T = ()> = Result<T, String>;

/// A lease that nobody has ended yet, as far as the play knows, and where its call is made.
#[derive(Debug, Clone)]
struct Held {
    lease: LeaseId,
    upstream: Name,
    awaiting: bool,
}

pub(crate) struct Play<'a, A, B> {
    world: &'a World,
    clock: Arc<ManualClock>,
    /// The reference and the one that must answer like it.
    stores: (A, B),
    jobs: Vec<JobId>,
    held: Vec<Held>,
    issued: Vec<LeaseId>,
    /// When the last answer that named a time said that something may change.
    next: Time,
}

impl<'a, A: Store, B: Store> Play<'a, A, B> {
    pub(crate) fn new(world: &'a World, clock: Arc<ManualClock>, stores: (A, B)) -> Self {
        let next = clock.now();
        Self { world, clock, stores, jobs: Vec::new(), held: Vec::new(), issued: Vec::new(), next }
    }

    /// Plays all, then lets willing workers and time end whatever is left. Says whether nothing is.
    pub(crate) async fn all(mut self, ops: &[Op]) -> Verdict<bool> {
        for (number, op) in ops.iter().enumerate() {
            let step = |problem| format!("step {number}, {op:?}\n{problem}");
            self.step(op).await.map_err(step)?;
            if number % STEPS_BETWEEN_VIEWS == 0 {
                self.compare_views().await.map_err(step)?;
            }
        }
        self.compare_views().await?;
        self.drain().await.map_err(|problem| format!("at the end\n{problem}"))
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn later(&self, ms: u64) -> Time {
        self.now() + Span::from_millis(ms)
    }

    async fn call(&mut self, call: Call) -> Verdict<Reply> {
        let (engine, redis) = &self.stores;
        let (left, right) = (told(call.clone().make(engine).await)?, told(call.clone().make(redis).await)?);
        let now = self.now();
        let asked = || format!("at {now:?}, {call:?}");
        same(&left, &right, asked)?;
        self.remember(&left);
        for job in left.jobs().into_iter().take(LOOKS) {
            self.compare_job(job).await.map_err(|problem| format!("after {}\n{problem}", asked()))?;
        }
        Ok(left)
    }

    fn remember(&mut self, reply: &Reply) {
        match reply {
            Reply::Dispatch(given) => {
                self.next = given.next;
                for grant in &given.grants {
                    self.hold(grant.lease, grant.upstream.clone(), false);
                }
            }
            Reply::Admit(answer) => {
                if let Admission::Granted { lease, upstream, .. } = &answer.admission {
                    self.hold(*lease, upstream.clone(), false);
                }
            }
            Reply::Sweep(swept) => self.next = swept.next,
            _ => {}
        }
    }

    fn hold(&mut self, lease: LeaseId, upstream: Name, awaiting: bool) {
        self.held.push(Held { lease, upstream, awaiting });
        self.issued.push(lease);
    }

    async fn step(&mut self, op: &Op) -> Verdict {
        let call = match op {
            Op::Wait(ms) => {
                self.clock.advance(Span::from_millis(*ms));
                return Ok(());
            }
            Op::Poll { lane, off, nonce } => {
                self.wait_for_next(*off);
                let lease = Span::from_secs(10);
                Call::Dispatch(Dispatch { lane: lane_name(*lane), max: 5, lease, nonce: *nonce })
            }
            Op::Enqueue(jobs) => Call::Enqueue(jobs.iter().map(|job| self.job(job)).collect()),
            Op::Dispatch { lane, max, lease_ms, nonce } => {
                let lease = Span::from_millis(*lease_ms);
                Call::Dispatch(Dispatch { lane: lane_name(*lane), max: *max, lease, nonce: *nonce })
            }
            Op::Advance { lease, report, elsewhere } => return self.advance(lease, report, *elsewhere).await,
            Op::Extend(picks, ms) => {
                let leases = picks.iter().map(|pick| self.lease(pick)).collect();
                Call::Extend(leases, Span::from_millis(*ms))
            }
            Op::Settle(plans) => {
                return self.settle(plans.iter().map(|plan| self.settlement(plan)).collect()).await;
            }
            Op::Cancel(job) => {
                let job = pick(&self.jobs, *job).unwrap_or(JobId(0));
                self.call(Call::Cancel(job)).await?;
                return self.compare_job(job).await;
            }
            Op::Admit { lane, chain, holds, lease_ms, nonce } => Call::Admit(Admit {
                lane: lane.map(lane_name),
                chain: chain.iter().map(|upstream| upstream_name(*upstream)).collect(),
                holds: holds.iter().map(|(at, plan)| hold(&upstream_name(*at), plan)).collect(),
                lease: Span::from_millis(*lease_ms),
                nonce: *nonce,
            }),
            Op::Record(upstream, result) => Call::Record(upstream_name(*upstream), *result),
            Op::Recover(upstream) => Call::Recover(upstream_name(*upstream)),
            Op::Reset(upstream) => Call::Reset(upstream_name(*upstream)),
            Op::Replay { lane, letter, taken } => {
                let letter_id = self.letter(*lane, *letter).await?;
                let older = pick(&self.jobs, *letter).filter(|_| *taken);
                let id = older.unwrap_or_else(|| self.new_id());
                Call::Replay(lane_name(*lane), letter_id, id)
            }
            Op::Discard { lane, letter } => {
                Call::Discard(lane_name(*lane), self.letter(*lane, *letter).await?)
            }
            Op::Pause(lane, paused) => Call::Pause(lane_name(*lane), *paused),
            Op::Sweep => Call::Sweep,
        };
        self.call(call).await.map(drop)
    }

    fn wait_for_next(&self, off: i64) {
        let until = self.next.min(self.later(3_600_000));
        let wait = until.since(self.now()).as_millis().saturating_add_signed(off);
        self.clock.advance(Span::from_millis(wait));
    }

    async fn advance(&mut self, lease: &Pick, report: &ReportPlan, elsewhere: bool) -> Verdict {
        let lease = self.lease(lease);
        let at = self.held.iter().position(|held| held.lease == lease);
        let upstream = at.map_or_else(|| upstream_name(0), |at| self.held[at].upstream.clone());
        let upstream = if elsewhere { upstream_name(1) } else { upstream };
        let failure = self.failure(Some(upstream.clone()));
        let ask = Advance { lease, upstream, report: self.report(report), failure };
        match (self.call(Call::Advance(ask)).await?, at) {
            (Reply::Advance(Advanced::To(upstream)), Some(at)) => self.held[at].upstream = upstream,
            (Reply::Advance(Advanced::Waits(_) | Advanced::Stale), Some(at)) if !self.held[at].awaiting => {
                self.held.remove(at);
            }
            _ => {}
        }
        Ok(())
    }

    async fn settle(&mut self, settlements: Vec<Settlement>) -> Verdict {
        let leases: Vec<_> = settlements.iter().map(|settlement| settlement.lease).collect();
        let Reply::Settle(answer) = self.call(Call::Settle(settlements)).await? else { return Ok(()) };
        for (lease, settled) in leases.into_iter().zip(answer.leases) {
            let Some(at) = self.held.iter().position(|held| held.lease == lease) else { continue };
            let Held { upstream, .. } = self.held.remove(at);
            if let Settled::Awaiting(lease) = settled {
                self.hold(lease, upstream, true);
            }
        }
        Ok(())
    }

    fn new_id(&mut self) -> JobId {
        // Spread over all bytes, none of which a store may lose.
        let number = self.jobs.len() as u128 + 1;
        let id = JobId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        self.jobs.push(id);
        id
    }

    fn job(&mut self, plan: &JobPlan) -> NewJob {
        let again = plan.again.and_then(|again| pick(&self.jobs, again));
        let id = again.unwrap_or_else(|| self.new_id());
        let fill = u8::try_from(plan.bytes % 3).unwrap_or_default();
        let payload = vec![fill; plan.bytes];
        let mut job = NewJob::new(id, lane_name(plan.lane), TENANTS[plan.tenant], payload);
        job.level = Level::ALL[plan.level];
        job.ttl = plan.ttl_ms.map(Span::from_millis);
        job.delay = Span::from_millis(plan.delay_ms);
        job.key = plan.key.map(|key| Arc::from(format!("key-{key}")));
        job.fingerprint = plan.fingerprint;
        job.cache_key = plan.cache_key.map(|key| Arc::from(format!("cpf:{key}\n")));
        job.chain = plan.chain.map(world::chain);
        if plan.impossible {
            job.chain = Some(vec![upstream_name(world::UPSTREAMS)]);
        }
        if self.world.scoped() {
            let lane = self.world.spec.lane(&job.lane).map(|lane| lane.chain.names().to_vec());
            let chain = job.chain.clone().or(lane).unwrap_or_default();
            let holds = plan.holds.iter().filter(|_| !chain.is_empty());
            job.holds = holds.map(|(at, plan)| hold(&chain[at % chain.len()], plan)).collect();
        }
        job
    }

    fn lease(&self, plan: &Pick) -> LeaseId {
        let nobody = LeaseId { epoch: 0, number: 0, nonce: 0 };
        let held = |number| pick(&self.held, number).map_or(nobody, |held: Held| held.lease);
        match plan {
            Pick::Held(number) => held(*number),
            Pick::Issued(number) => pick(&self.issued, *number).unwrap_or(nobody),
            Pick::MadeUp(number, what) => {
                let mut lease = held(*number);
                match what {
                    0 => lease.epoch += 7,
                    1 => lease.number += 1_000_000,
                    _ => lease.nonce += 1_000_000,
                }
                lease
            }
        }
    }

    fn report(&self, plan: &ReportPlan) -> Report {
        let key = |bucket| Arc::<str>::from(world::bucket_key(bucket));
        let cost = plan.cost.map(|(bucket, halves)| (key(bucket), world::half_tokens(halves)));
        let close = plan.close.filter(|_| self.world.kind != world::Kind::Open);
        Report {
            result: plan.result,
            costs: cost.into_iter().collect(),
            close: close.map(|(ms, bucket)| Closure { until: self.later(ms), bucket: bucket.map(key) }),
        }
    }

    fn failure(&self, upstream: Option<Name>) -> Failure {
        let reason = FailureReason::new("refused: não há vaga").unwrap();
        let code = upstream.is_some().then(|| "503".into());
        Failure { reason, code, at: self.now(), upstream }
    }

    fn settlement(&self, plan: &SettlePlan) -> Settlement {
        let lease = self.lease(&plan.lease);
        let upstream = self.held.iter().find(|held| held.lease == lease).map(|held| held.upstream.clone());
        let outcome = match plan.outcome {
            OutcomePlan::Done => Outcome::Done,
            OutcomePlan::DoneUncached => Outcome::DoneUncached,
            OutcomePlan::Retry(ms) => Outcome::Retry { at: self.later(ms), failure: self.failure(upstream) },
            OutcomePlan::Dead => Outcome::Dead(self.failure(upstream)),
            OutcomePlan::Failed => Outcome::Failed(self.failure(upstream)),
            OutcomePlan::Release => Outcome::Release,
            OutcomePlan::Awaiting(ms) => Outcome::Awaiting(self.later(ms)),
        };
        let answer = plan.answer.map(|bytes| Payload::from(vec![1; bytes]));
        Settlement { lease, report: self.report(&plan.report), outcome, answer }
    }

    async fn letter(&self, lane: usize, letter: usize) -> Verdict<JobId> {
        let letters = told(self.stores.0.dead_letters(lane_name(lane), 0, 100).await)?;
        let letters: Vec<_> = letters.into_iter().map(|(_, view)| view.job).collect();
        Ok(pick(&letters, letter).unwrap_or(JobId(0)))
    }

    async fn compare_job(&self, job: JobId) -> Verdict {
        let (engine, redis) = &self.stores;
        let views = (told(engine.job(job).await)?, told(redis.job(job).await)?);
        same(&views.0, &views.1, || format!("job {job}"))?;
        let whys = (told(engine.why(job).await)?, told(redis.why(job).await)?);
        same(&whys.0, &whys.1, || format!("why {job} waits"))
    }

    async fn compare_views(&self) -> Verdict {
        let (engine, redis) = &self.stores;
        let views = (told(View::of(engine).await)?, told(View::of(redis).await)?);
        same(&views.0, &views.1, || "what can be seen".into())
    }

    /// Asks and sweeps at the times that were named, with workers that succeed at once, until nothing waits; then lets so
    /// much time pass that all is forgotten. Says whether it is: a job may want more of a bucket than there will ever be.
    async fn drain(&mut self) -> Verdict<bool> {
        for lane in 0..LANES {
            self.call(Call::Pause(lane_name(lane), false)).await?;
        }
        for _ in 0..MAX_ROUNDS {
            let mut next = Time::NEVER;
            for lane in 0..LANES {
                let ask = Dispatch { lane: lane_name(lane), max: 100, lease: Span::from_secs(10), nonce: 1 };
                self.call(Call::Dispatch(ask)).await?;
                next = next.min(self.next);
            }
            let done = |held: &Held| Settlement {
                lease: held.lease,
                report: eclusa_core::gate::CallResult::Success.into(),
                outcome: Outcome::Done,
                answer: Some(held.lease.number.to_be_bytes()[..].into()),
            };
            let settlements: Vec<_> = self.held.iter().take(100).map(done).collect();
            if settlements.is_empty() && next == Time::NEVER {
                break;
            }
            let waits = settlements.is_empty();
            self.settle(settlements).await?;
            if waits {
                self.next = next;
                self.wait_for_next(0);
            }
        }
        self.compare_views().await?;
        self.clock.advance(Span::from_secs(30 * 86_400));
        for _ in 0..MAX_ROUNDS {
            self.call(Call::Sweep).await?;
            if self.next == Time::NEVER {
                break;
            }
            self.wait_for_next(0);
        }
        self.compare_views().await?;
        Ok(self.next == Time::NEVER && told(View::of(&self.stores.0).await)?.is_empty())
    }
}

fn hold(upstream: &Name, plan: &HoldPlan) -> eclusa_core::Hold {
    let (bucket, halves, other) = *plan;
    world::hold(upstream, bucket, halves, other)
}

fn pick<T: Clone>(among: &[T], number: usize) -> Option<T> {
    among.get(number % among.len().max(1)).cloned()
}

fn told<T>(answer: Result<T, StoreError>) -> Verdict<T> {
    answer.map_err(|error| format!("no answer: {error}"))
}

fn same<T: PartialEq + Debug>(engine: &T, redis: &T, what: impl FnOnce() -> String) -> Verdict {
    if engine == redis {
        return Ok(());
    }
    Err(format!("{}\n{}", what(), difference(&format!("{engine:#?}"), &format!("{redis:#?}"))))
}

/// Where two texts differ, with the lines before.
fn difference(engine: &str, redis: &str) -> String {
    const LINES_BEFORE: usize = 40;
    const LINES_SHOWN: usize = 15;
    let (left, right): (Vec<_>, Vec<_>) = (engine.lines().collect(), redis.lines().collect());
    let first = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
    let ends = left[first..].iter().rev().zip(right[first..].iter().rev());
    let last = ends.take_while(|(left, right)| left == right).count();
    let marked = |mark: &str, lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| format!("{mark}{line}\n")).collect();
        lines.concat()
    };
    // The bytes of payloads say little.
    let says = |line: &&str| line.trim().trim_end_matches(',').parse::<u8>().is_err();
    let before = left[first.saturating_sub(LINES_BEFORE)..first].iter().copied().filter(says);
    let changed = |lines: &[&str], mark| {
        let changed = &lines[first..lines.len() - last];
        marked(mark, &changed[..changed.len().min(LINES_SHOWN)])
    };
    let before = marked("        ", &before.collect::<Vec<_>>());
    format!("{before}{}{}", changed(&left, "engine: "), changed(&right, "redis:  "))
}
