//! Buckets never create tokens: each has exactly the balance of an exact integer model, and nothing starts without
//! tokens.

use std::collections::BTreeMap;

use eclusa_core::gate::{GateView, Reason};
use eclusa_core::{LeaseId, Time};

use super::{Checker, Step};
use crate::ledger::{CallEnd, Fact, Start, Verdict, ensure};
use crate::plan::{BucketPlan, RulePlan};
use crate::rules::{SCOPED, lane_name, upstream_name};

/// Micro-tokens of one token.
const TOKEN: i64 = 1_000_000;
const MICRO: i128 = TOKEN as i128;

/// A balance in micro-tokens times the refill period, which makes the gain of a millisecond a whole number.
struct Naive {
    plan: BucketPlan,
    balance: i128,
    at: Time,
    closed_until: Time,
    /// Micro-tokens held by running calls.
    held: i64,
}

impl Naive {
    fn new(plan: BucketPlan) -> Self {
        let balance = i128::from(plan.0) * MICRO * i128::from(plan.2);
        Self { plan, balance, at: Time::default(), closed_until: Time::default(), held: 0 }
    }

    /// The most it may refill to.
    fn ceiling(&self) -> i128 {
        (i128::from(self.plan.0) * MICRO - i128::from(self.held)) * i128::from(self.plan.2)
    }

    fn add(&mut self, micro: i64) {
        self.balance = (self.balance + i128::from(micro) * i128::from(self.plan.2)).min(self.ceiling());
    }

    fn refill(&mut self, now: Time) {
        let gained = i128::from(now.since(self.at).as_millis()) * i128::from(self.plan.1) * MICRO;
        self.balance = (self.balance + gained).min(self.ceiling());
        self.at = now;
    }

    fn micro(&self) -> i128 {
        self.balance.div_euclid(i128::from(self.plan.2))
    }

    fn take(&mut self, micro: i64, now: Time) -> Verdict {
        ensure!(self.closed_until <= now, "a start at a bucket closed until {:?}", self.closed_until);
        ensure!(self.micro() >= i128::from(micro), "took {micro} of {}", self.micro());
        self.add(-micro);
        Ok(())
    }
}

pub(crate) struct NeverMint {
    upstreams: Vec<Option<Naive>>,
    closed_until: [Time; 3],
    lanes: Vec<Option<Naive>>,
    scoped: BTreeMap<String, Naive>,
    /// Limits per tenant of a lane.
    tenant_rates: Vec<Option<BucketPlan>>,
    tenants: BTreeMap<(usize, String), Naive>,
    /// The tenant of each leased call.
    callers: BTreeMap<LeaseId, (usize, String)>,
}

impl NeverMint {
    pub(crate) fn new(plan: &RulePlan) -> Self {
        Self {
            upstreams: plan.upstreams.iter().map(|gates| gates.bucket.map(Naive::new)).collect(),
            closed_until: [Time::default(); 3],
            lanes: plan.lanes.iter().map(|lane| lane.gates.bucket.map(Naive::new)).collect(),
            scoped: SCOPED.into_iter().map(|(key, plan)| (key.to_owned(), Naive::new(plan))).collect(),
            tenant_rates: plan.lanes.iter().map(|lane| lane.gates.tenant_bucket).collect(),
            tenants: BTreeMap::new(),
            callers: BTreeMap::new(),
        }
    }

    fn started(&mut self, start: &Start, now: Time) -> Verdict {
        let closed = self.closed_until[start.upstream];
        ensure!(closed <= now, "{start:?} though the upstream said to stay away until {closed:?}");
        let lane = start.lane.and_then(|lane| self.lanes[lane].as_mut());
        for bucket in self.upstreams[start.upstream].iter_mut().chain(lane) {
            bucket.take(TOKEN, now)?;
        }
        for (key, micro) in &start.held {
            let bucket = self.scoped.get_mut(key).unwrap();
            bucket.take(*micro, now)?;
            bucket.held += micro;
        }
        Ok(())
    }

    /// A call of `tenant` started in a lane.
    fn started_for(&mut self, tenant: &str, start: &Start, now: Time) -> Verdict {
        let Some(lane) = start.lane else { return Ok(()) };
        let Some(plan) = self.tenant_rates[lane] else { return Ok(()) };
        let caller = (lane, tenant.to_owned());
        self.callers.insert(start.lease, caller.clone());
        let bucket = self.tenants.entry(caller).or_insert_with(|| Naive::new(plan));
        bucket.refill(now);
        bucket.take(TOKEN, now)
    }

    fn ended_for(&mut self, end: &CallEnd, now: Time) {
        let caller = if end.lane.is_some() { self.callers.remove(&end.lease) } else { None };
        if let Some(bucket) = caller.filter(|_| end.unsent).and_then(|caller| self.tenants.get_mut(&caller)) {
            bucket.refill(now);
            bucket.add(TOKEN);
        }
    }

    fn ended(&mut self, end: &CallEnd, now: Time) {
        if let (Some(upstream), Some(close)) = (end.upstream, &end.retry_after) {
            let until = now + close.wait;
            // By default, the narrowest bucket of the call.
            let shared = |key: &str| !key.contains('/') || key.ends_with('/');
            let widths = end.held.iter().map(|(key, _)| (shared(key), self.scoped[key].plan.0, key));
            let narrowest = widths.min_by_key(|(shared, capacity, _)| (*shared, *capacity));
            let narrowest = narrowest.map(|(_, _, key)| key.clone());
            let key = close.bucket.as_ref().map(ToString::to_string).or(narrowest);
            match key.and_then(|key| self.scoped.get_mut(&key)) {
                Some(bucket) => bucket.closed_until = bucket.closed_until.max(until),
                None => self.closed_until[upstream] = self.closed_until[upstream].max(until),
            }
        }
        let unsent = end.result.is_unsent();
        if let Some(bucket) = end.upstream.and_then(|upstream| self.upstreams[upstream].as_mut())
            && unsent
        {
            bucket.add(TOKEN);
        }
        if let Some(bucket) = end.lane.and_then(|lane| self.lanes[lane].as_mut())
            && end.unsent
        {
            bucket.add(TOKEN);
        }
        for (key, held) in &end.held {
            let cost = if unsent { 0 } else { end.cost.unwrap_or(*held) };
            let bucket = self.scoped.get_mut(key).unwrap();
            bucket.held -= held;
            bucket.add(held - cost);
        }
    }
}

fn shown(gates: &[GateView]) -> Option<i128> {
    gates.iter().find(|gate| gate.reason == Reason::RateLimit).map(|gate| i128::from(gate.level))
}

impl Checker for NeverMint {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        let gates = self.upstreams.iter_mut().chain(&mut self.lanes).flatten();
        gates.chain(self.scoped.values_mut()).for_each(|bucket| bucket.refill(step.now));
        for fact in step.facts {
            match fact {
                Fact::Started(start) => {
                    self.started(start, step.now)?;
                    if let Some(job) = start.job.and_then(|job| step.ledger.jobs.get(&job)) {
                        self.started_for(&job.tenant, start, step.now)?;
                    }
                }
                Fact::Ended(end) => {
                    self.ended(end, step.now);
                    self.ended_for(end, step.now);
                }
                Fact::Reset(upstream) if *upstream < 3 => self.closed_until[*upstream] = Time::default(),
                _ => {}
            }
        }
        for (number, bucket) in self.upstreams.iter().enumerate() {
            let view = step.engine.upstream_view(&upstream_name(number), step.now).unwrap();
            let naive = bucket.as_ref().map(Naive::micro);
            ensure!(shown(&view.gates) == naive, "{naive:?} at upstream {number}, but shown {view:?}");
        }
        for (number, bucket) in self.lanes.iter().enumerate() {
            let view = step.engine.lane_view(&lane_name(number), step.now).unwrap();
            let naive = bucket.as_ref().map(Naive::micro);
            ensure!(shown(&view.gates) == naive, "{naive:?} in lane {number}, but shown {view:?}");
        }
        for (key, bucket) in &self.scoped {
            let shown = step.engine.bucket(key, step.now).map(|left| i128::from(left.as_micro()));
            let naive = bucket.micro();
            let full = i128::from(bucket.plan.0) * MICRO;
            ensure!(shown.unwrap_or(full) == naive, "{naive} in {key}, but shown {shown:?}");
        }
        Ok(())
    }
}
