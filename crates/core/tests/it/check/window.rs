//! Whenever a request arrives between its start and its answer, no 60 seconds have more arrivals than allowed: calls in
//! flight plus calls that ended less than 60 s ago never exceed the limit, and that is the number shown.

use std::collections::BTreeMap;

use eclusa_core::gate::{CallResult, GateView, Reason};
use eclusa_core::{LeaseId, Span, Time};

use super::{Checker, Step};
use crate::ledger::{CallEnd, Fact, Verdict, ensure};
use crate::plan::RulePlan;
use crate::rules::{lane_name, upstream_name};

#[derive(Default)]
struct Calls {
    limit: Option<u32>,
    /// By lease, with its expiry.
    in_flight: BTreeMap<LeaseId, Time>,
    ended: Vec<Time>,
}

impl Calls {
    fn new(limit: Option<u32>) -> Self {
        Self { limit, ..Self::default() }
    }

    fn end(&mut self, end: &CallEnd, unsent: bool, now: Time) {
        let Some(expires) = self.in_flight.remove(&end.lease) else { return };
        if !unsent {
            self.ended.push(if end.result == CallResult::Unknown { expires.min(now) } else { now });
        }
    }

    fn check(&self, shown: &[GateView], now: Time) -> Verdict {
        let Some(limit) = self.limit else { return Ok(()) };
        let ended = self.ended.iter().filter(|at| **at + Span::from_secs(60) > now).count();
        let taken = self.in_flight.len() + ended;
        ensure!(taken <= limit as usize, "{taken} places are taken with a limit of {limit}");
        let gate = shown.iter().find(|gate| gate.reason == Reason::Window);
        let level = gate.map(|gate| gate.level);
        ensure!(level == i64::try_from(taken).ok(), "{taken} places are taken, but shown {gate:?}");
        Ok(())
    }
}

pub(crate) struct AnyWindow {
    upstreams: Vec<Calls>,
    lanes: Vec<Calls>,
}

impl AnyWindow {
    pub(crate) fn new(plan: &RulePlan) -> Self {
        Self {
            upstreams: plan.upstreams.iter().map(|gates| Calls::new(gates.window)).collect(),
            lanes: plan.lanes.iter().map(|lane| Calls::new(lane.gates.window)).collect(),
        }
    }

    fn hear(&mut self, fact: &Fact, now: Time) {
        match fact {
            Fact::Started(start) => {
                self.upstreams[start.upstream].in_flight.insert(start.lease, start.lease_expires);
                if let Some(lane) = start.lane {
                    self.lanes[lane].in_flight.insert(start.lease, start.lease_expires);
                }
            }
            Fact::Ended(end) => {
                if let Some(upstream) = end.upstream {
                    self.upstreams[upstream].end(end, end.result.is_unsent(), now);
                }
                if let Some(lane) = end.lane {
                    self.lanes[lane].end(end, end.unsent, now);
                }
            }
            Fact::Extended(lease, until) => {
                for calls in self.upstreams.iter_mut().chain(&mut self.lanes) {
                    if let Some(expires) = calls.in_flight.get_mut(lease) {
                        *expires = *until;
                    }
                }
            }
            _ => {}
        }
    }
}

impl Checker for AnyWindow {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        step.facts.iter().for_each(|fact| self.hear(fact, step.now));
        for (number, calls) in self.upstreams.iter().enumerate() {
            let view = step.engine.upstream_view(&upstream_name(number), step.now).unwrap();
            calls.check(&view.gates, step.now)?;
        }
        for (number, calls) in self.lanes.iter().enumerate() {
            let view = step.engine.lane_view(&lane_name(number), step.now).unwrap();
            calls.check(&view.gates, step.now)?;
        }
        Ok(())
    }
}
