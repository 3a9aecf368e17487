//! Nothing starts at an open breaker, and a half-open one has at most `probes` unexpired probes.

use std::collections::BTreeMap;

use eclusa_core::gate::CallResult;
use eclusa_core::{LeaseId, Span, Time};

use super::{Checker, Step};
use crate::ledger::{Fact, Start, Verdict, ensure};
use crate::plan::RulePlan;
use crate::rules::upstream_name;

struct Naive {
    failures_to_open: u32,
    open_for: Span,
    max_probes: u32,
    failures: u32,
    open_until: Option<Time>,
    /// Counts openings and closings: results of calls that began before the last one do not count.
    generation: u32,
    began_in: BTreeMap<LeaseId, u32>,
    probes: BTreeMap<LeaseId, Time>,
}

impl Naive {
    /// Half open for 300 s without a probe counts as closed.
    fn heal(&mut self, now: Time) {
        let probed = self.probes.values().any(|expires| *expires > now);
        if !probed && self.open_until.is_some_and(|until| until + Span::from_secs(300) <= now) {
            self.reset();
        }
    }

    fn started(&mut self, start: &Start, now: Time) -> Verdict {
        self.began_in.insert(start.lease, self.generation);
        let Some(until) = self.open_until else { return Ok(()) };
        ensure!(now >= until, "{start:?} while open until {until:?}");
        self.probes.retain(|_, expires| *expires > now);
        self.probes.insert(start.lease, start.lease_expires);
        let out = self.probes.len();
        ensure!(out <= self.max_probes as usize, "{out} probes of {} are out", self.max_probes);
        Ok(())
    }

    fn ended(&mut self, lease: LeaseId, result: CallResult, now: Time) {
        let probe = self.probes.remove(&lease).is_some();
        if self.began_in.get(&lease) == Some(&self.generation) {
            self.count(probe, result, now);
        }
    }

    /// An awaiting job continues under another lease, in the same generation, and as a probe if it was one. Only an
    /// error counts now: whether the upstream is healthy is known when the job ends.
    fn goes_on(&mut self, lease: LeaseId, (heir, expires): (LeaseId, Time), result: CallResult, now: Time) {
        let began_in = self.began_in[&lease];
        self.began_in.insert(heir, began_in);
        match result {
            CallResult::Throttled | CallResult::Failed | CallResult::TimedOut | CallResult::Unreachable => {
                self.ended(lease, result, now);
            }
            _ if self.probes.remove(&lease).is_some() => drop(self.probes.insert(heir, expires)),
            _ => {}
        }
    }

    fn recorded(&mut self, result: CallResult, now: Time) {
        let open = self.open_until.is_some_and(|until| now < until);
        if !open || result == CallResult::Success {
            self.count(self.open_until.is_some(), result, now);
        }
    }

    fn count(&mut self, probe: bool, result: CallResult, now: Time) {
        let open = match result {
            CallResult::Success | CallResult::Rejected => {
                self.failures = 0;
                if probe {
                    self.turn(None);
                }
                false
            }
            CallResult::Failed | CallResult::TimedOut | CallResult::Unreachable => {
                self.failures += 1;
                probe || self.failures >= self.failures_to_open
            }
            CallResult::Throttled => probe,
            CallResult::NotSent | CallResult::Unknown => false,
        };
        if open {
            self.turn(Some(now + self.open_for));
        }
    }

    fn reset(&mut self) {
        self.failures = 0;
        if self.open_until.is_some() {
            self.turn(None);
        }
    }

    fn recover(&mut self, now: Time) {
        if self.open_until.is_some_and(|until| until <= now) {
            self.reset();
        }
    }

    fn turn(&mut self, open_until: Option<Time>) {
        self.open_until = open_until;
        self.generation += 1;
        self.probes.clear();
    }
}

pub(crate) struct Breakers(Vec<Option<Naive>>);

impl Breakers {
    pub(crate) fn new(plan: &RulePlan) -> Self {
        let naive = |(failures_to_open, open_ms, max_probes)| Naive {
            failures_to_open,
            open_for: Span::from_millis(open_ms),
            max_probes,
            failures: 0,
            open_until: None,
            generation: 0,
            began_in: BTreeMap::new(),
            probes: BTreeMap::new(),
        };
        Self(plan.upstreams.iter().map(|gates| gates.breaker.map(naive)).collect())
    }

    fn at(&mut self, upstream: Option<usize>) -> Option<&mut Naive> {
        self.0.get_mut(upstream?)?.as_mut()
    }
}

impl Checker for Breakers {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        for fact in step.facts {
            self.0.iter_mut().flatten().for_each(|naive| naive.heal(step.now));
            match fact {
                Fact::Started(start) => {
                    self.at(Some(start.upstream)).map_or(Ok(()), |naive| naive.started(start, step.now))?;
                }
                Fact::Ended(end) => {
                    if let Some(naive) = self.at(end.upstream) {
                        match end.heir {
                            Some(heir) => naive.goes_on(end.lease, heir, end.result, step.now),
                            None => naive.ended(end.lease, end.result, step.now),
                        }
                    }
                }
                Fact::Recorded(upstream, result) => {
                    if let Some(naive) = self.at(Some(*upstream)) {
                        naive.recorded(*result, step.now);
                    }
                }
                Fact::Recovered(upstream) => {
                    if let Some(naive) = self.at(Some(*upstream)) {
                        naive.recover(step.now);
                    }
                }
                Fact::Reset(upstream) => {
                    if let Some(naive) = self.at(Some(*upstream)) {
                        naive.reset();
                    }
                }
                Fact::Extended(lease, expires) => {
                    for probe in self.0.iter_mut().flatten().filter_map(|naive| naive.probes.get_mut(lease)) {
                        *probe = *expires;
                    }
                }
                _ => {}
            }
        }
        for (number, naive) in self.0.iter_mut().enumerate() {
            let Some(naive) = naive else { continue };
            naive.heal(step.now);
            let view = step.engine.upstream_view(&upstream_name(number), step.now).unwrap();
            let until = naive.open_until.filter(|until| step.now < *until);
            let right = (view.failures, view.degraded_until) == (naive.failures, until);
            ensure!(right, "{} failures, open until {until:?}, but shown {view:?}", naive.failures);
        }
        Ok(())
    }
}
