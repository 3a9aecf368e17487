//! What is played, as plain data, so that steps can be left out. Numbers stand for things "modulo what exists";
//! [`super::play`] gives them their meaning.

use eclusa_core::gate::CallResult;
use fastrand::Rng;

use super::world::{Kind, LANES, TENANTS, UPSTREAMS};

/// Which bucket, how many half tokens, and whether under another rule than usual.
pub(crate) type HoldPlan = (usize, i64, bool);

#[derive(Debug, Clone)]
pub(crate) struct JobPlan {
    pub(crate) lane: usize,
    pub(crate) tenant: usize,
    pub(crate) level: usize,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) delay_ms: u64,
    pub(crate) key: Option<u8>,
    pub(crate) fingerprint: Option<u64>,
    pub(crate) cache_key: Option<u8>,
    pub(crate) chain: Option<usize>,
    /// Each at this place of the chain.
    pub(crate) holds: Vec<(usize, HoldPlan)>,
    pub(crate) bytes: usize,
    /// Sends the id of an older job again.
    pub(crate) again: Option<usize>,
    /// Names an upstream that nobody knows.
    pub(crate) impossible: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct ReportPlan {
    pub(crate) result: CallResult,
    /// Which bucket cost how many half tokens.
    pub(crate) cost: Option<(usize, i64)>,
    /// For how many milliseconds, and whether only this bucket.
    pub(crate) close: Option<(u64, Option<usize>)>,
}

#[derive(Debug, Clone)]
pub(crate) enum OutcomePlan {
    Done,
    DoneUncached,
    Retry(u64),
    Dead,
    Failed,
    Release,
    Awaiting(u64),
}

#[derive(Debug, Clone)]
pub(crate) struct SettlePlan {
    pub(crate) lease: Pick,
    pub(crate) report: ReportPlan,
    pub(crate) outcome: OutcomePlan,
    /// How large the answer is, if there is one.
    pub(crate) answer: Option<usize>,
}

/// Which lease is meant.
#[derive(Debug, Clone)]
pub(crate) enum Pick {
    /// One of those that nobody has ended yet, as far as is known.
    Held(usize),
    /// One of all that were ever issued.
    Issued(usize),
    /// One of those with another epoch, number or nonce.
    MadeUp(usize, u8),
}

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Wait(u64),
    /// Waits until this many milliseconds before or after the time that the last answer named, then asks this lane.
    Poll {
        lane: usize,
        off: i64,
        nonce: u32,
    },
    Enqueue(Vec<JobPlan>),
    Dispatch {
        lane: usize,
        max: usize,
        lease_ms: u64,
        nonce: u32,
    },
    /// From another upstream than the one it is at, if so.
    Advance {
        lease: Pick,
        report: ReportPlan,
        elsewhere: bool,
    },
    Extend(Vec<Pick>, u64),
    Settle(Vec<SettlePlan>),
    Cancel(usize),
    Admit {
        lane: Option<usize>,
        chain: Vec<usize>,
        holds: Vec<(usize, HoldPlan)>,
        lease_ms: u64,
        nonce: u32,
    },
    Record(usize, CallResult),
    Recover(usize),
    Reset(usize),
    /// Under the id of an older job, if so.
    Replay {
        lane: usize,
        letter: usize,
        taken: bool,
    },
    Discard {
        lane: usize,
        letter: usize,
    },
    Pause(usize, bool),
    Sweep,
}

impl Op {
    /// How many parts it has that mean something without each other.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Op::Enqueue(jobs) => jobs.len(),
            Op::Settle(settlements) => settlements.len(),
            _ => 0,
        }
    }

    pub(crate) fn leave_out(&mut self, part: usize) {
        match self {
            Op::Enqueue(jobs) => drop(jobs.remove(part)),
            Op::Settle(settlements) => drop(settlements.remove(part)),
            _ => {}
        }
    }
}

/// A sequence of `steps` operations.
pub(crate) fn ops(kind: Kind, steps: usize, rng: &mut Rng) -> Vec<Op> {
    let mut plan = Planner { kind, rng };
    (0..steps).map(|_| plan.op()).collect()
}

struct Planner<'a> {
    kind: Kind,
    rng: &'a mut Rng,
}

impl Planner<'_> {
    fn percent(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    fn maybe<T>(&mut self, percent: u32, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.percent(percent).then(|| make(self))
    }

    /// Rarely one that nobody knows.
    fn lane(&mut self) -> usize {
        if self.percent(1) { LANES } else { self.rng.usize(..LANES) }
    }

    fn upstream(&mut self) -> usize {
        if self.percent(4) { UPSTREAMS } else { self.rng.usize(..UPSTREAMS) }
    }

    fn op(&mut self) -> Op {
        let number = self.rng.u32(..100);
        // Where jobs are few they live long.
        if self.kind == Kind::Few && (20..34).contains(&number) {
            return Op::Poll { lane: self.rng.usize(..LANES), off: 0, nonce: 1 };
        }
        match number {
            0..12 => Op::Wait(self.wait()),
            12..18 => Op::Poll {
                lane: self.rng.usize(..LANES),
                off: self.rng.i64(-1..=1),
                nonce: self.rng.u32(1..9),
            },
            18..34 => Op::Enqueue(self.jobs()),
            34..50 => Op::Dispatch {
                lane: self.lane(),
                max: [1, 1, 2, 3, 5, 20, 100, 0][self.rng.usize(..8)],
                lease_ms: self.lease_ms(),
                nonce: self.rng.u32(1..9),
            },
            50..57 => Op::Advance { lease: self.pick(), report: self.report(), elsewhere: self.percent(10) },
            57..60 => {
                let count = self.rng.usize(1..4);
                Op::Extend((0..count).map(|_| self.pick()).collect(), self.lease_ms())
            }
            60..76 => {
                let count = if self.percent(10) { 30 } else { self.rng.usize(1..5) };
                Op::Settle((0..count).map(|_| self.settlement()).collect())
            }
            76..79 => Op::Cancel(self.rng.usize(..)),
            79..84 => self.admit(),
            84..87 => Op::Record(self.upstream(), self.result()),
            87 => Op::Recover(self.upstream()),
            88 => Op::Reset(self.upstream()),
            89..92 => Op::Replay { lane: self.lane(), letter: self.rng.usize(..), taken: self.percent(10) },
            92 => Op::Discard { lane: self.lane(), letter: self.rng.usize(..) },
            93..95 => Op::Pause(self.lane(), self.percent(30)),
            _ => Op::Sweep,
        }
    }

    fn wait(&mut self) -> u64 {
        match self.rng.u32(..100) {
            0..30 => self.rng.u64(..50),
            30..65 => self.rng.u64(..2_000),
            65..90 => self.rng.u64(..70_000),
            90..97 => self.rng.u64(..1_000_000),
            97..99 => self.rng.u64(..7_200_000),
            _ => 86_400_000,
        }
    }

    fn lease_ms(&mut self) -> u64 {
        [self.rng.u64(1..500), 10_000, 60_000, self.rng.u64(1..60_000)][self.rng.usize(..4)]
    }

    fn jobs(&mut self) -> Vec<JobPlan> {
        if self.kind == Kind::Few || self.percent(95) {
            let count = self.rng.usize(1..7);
            return (0..count).map(|_| self.job()).collect();
        }
        // More of a kind than one step handles.
        let (first, count) = (self.job(), self.rng.usize(60..230));
        let alike = self.percent(70);
        let same = |job: JobPlan| JobPlan { tenant: job.tenant, level: job.level, ..first.clone() };
        let jobs = (0..count).map(|_| self.job());
        jobs.map(|job| if alike { JobPlan { again: None, key: None, ..same(job) } } else { job }).collect()
    }

    fn ttl(&mut self) -> u64 {
        if self.percent(1) {
            0
        } else {
            [self.rng.u64(1..2_000), self.rng.u64(1..120_000)][self.rng.usize(..2)]
        }
    }

    fn job(&mut self) -> JobPlan {
        let holds = match self.rng.u32(..10) {
            0..4 if self.kind != Kind::Scoped => 0,
            0 => 0,
            1..8 => 1,
            _ => 2,
        };
        let (answers, wanted) = if self.kind == Kind::Caching { (3, 80) } else { (4, 40) };
        JobPlan {
            lane: self.lane(),
            tenant: self.rng.usize(..TENANTS.len()),
            level: self.rng.usize(..3),
            ttl_ms: self.maybe(25, Self::ttl),
            delay_ms: self.maybe(20, |plan| plan.rng.u64(1..3_000)).unwrap_or_default(),
            key: self.maybe(20, |plan| plan.rng.u8(..5)),
            fingerprint: self.maybe(10, |plan| plan.rng.u64(..2)),
            cache_key: self.maybe(wanted, |plan| plan.rng.u8(..answers)),
            chain: self.maybe(25, |plan| plan.rng.usize(..7)),
            holds: (0..holds).map(|_| (self.rng.usize(..3), self.hold())).collect(),
            bytes: match self.rng.u32(..10) {
                0..5 => self.rng.usize(..40),
                5..9 => self.rng.usize(508..518),
                _ => self.rng.usize(1_000..3_000),
            },
            again: self.maybe(4, |plan| plan.rng.usize(..)),
            impossible: self.percent(1),
        }
    }

    fn hold(&mut self) -> HoldPlan {
        (self.rng.usize(..4), self.rng.i64(1..5), self.percent(2))
    }

    fn admit(&mut self) -> Op {
        let lane = self.maybe(50, Self::lane);
        let count = self.rng.usize(usize::from(lane.is_none())..4);
        let chain = (0..count).map(|_| self.upstream()).collect();
        let holds = self.rng.usize(..3);
        let holds = (0..holds).map(|_| (self.rng.usize(..UPSTREAMS), self.hold())).collect();
        let lease_ms = if self.percent(20) { 0 } else { self.lease_ms() };
        Op::Admit { lane, chain, holds, lease_ms, nonce: self.rng.u32(1..9) }
    }

    fn result(&mut self) -> CallResult {
        let fails = if matches!(self.kind, Kind::Failing | Kind::Caching) { 30 } else { 10 };
        if self.percent(fails) {
            return CallResult::Failed;
        }
        match self.rng.u32(..100) {
            0..55 => CallResult::Success,
            55..62 => CallResult::Rejected,
            62..70 => CallResult::Throttled,
            70..78 => CallResult::Failed,
            78..85 => CallResult::TimedOut,
            85..93 => CallResult::NotSent,
            _ => CallResult::Unknown,
        }
    }

    fn report(&mut self) -> ReportPlan {
        ReportPlan {
            result: self.result(),
            cost: self.maybe(30, |plan| (plan.rng.usize(..4), plan.rng.i64(-1..12))),
            close: self.maybe(6, |plan| (plan.rng.u64(..20_000), plan.maybe(50, |plan| plan.rng.usize(..4)))),
        }
    }

    fn settlement(&mut self) -> SettlePlan {
        let report = self.report();
        let went_well = report.result == CallResult::Success;
        let lives_on = self.kind == Kind::Few && self.percent(80);
        let outcome = match self.rng.u32(..100) {
            _ if lives_on && self.percent(80) => OutcomePlan::Retry(self.rng.u64(..3_000)),
            _ if lives_on => OutcomePlan::Release,
            0..70 if went_well => OutcomePlan::Done,
            0..10 => OutcomePlan::Done,
            10..15 => OutcomePlan::DoneUncached,
            15..45 => OutcomePlan::Retry(self.rng.u64(..30_000)),
            45..62 => OutcomePlan::Dead,
            62..70 => OutcomePlan::Failed,
            70..85 => OutcomePlan::Release,
            _ => OutcomePlan::Awaiting(self.rng.u64(..60_000)),
        };
        let answer = self.maybe(80, |plan| if plan.percent(20) { 600 } else { plan.rng.usize(..30) });
        SettlePlan { lease: self.pick(), report, outcome, answer }
    }

    fn pick(&mut self) -> Pick {
        match self.rng.u32(..20) {
            0 => Pick::Issued(self.rng.usize(..)),
            1 => Pick::MadeUp(self.rng.usize(..), self.rng.u8(..3)),
            _ => Pick::Held(self.rng.usize(..)),
        }
    }
}
