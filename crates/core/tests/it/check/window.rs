//! No stretch of 60 seconds has more starts than allowed.

use eclusa_core::Span;

use super::{Checker, Step};
use crate::ledger::{Fact, Verdict, ensure};
use crate::plan::RulePlan;

struct Starts {
    limit: Option<u32>,
    at: Vec<eclusa_core::Time>,
}

pub(crate) struct AnyWindow {
    upstreams: Vec<Starts>,
    lanes: Vec<Starts>,
}

impl AnyWindow {
    pub(crate) fn new(plan: &RulePlan) -> Self {
        let starts = |limit| Starts { limit, at: Vec::new() };
        Self {
            upstreams: plan.upstreams.iter().map(|gates| starts(gates.window)).collect(),
            lanes: plan.lanes.iter().map(|lane| starts(lane.gates.window)).collect(),
        }
    }
}

impl Checker for AnyWindow {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        for fact in step.facts {
            let Fact::Started(start) = fact else { continue };
            self.upstreams[start.upstream].at.push(step.now);
            if let Some(lane) = start.lane {
                self.lanes[lane].at.push(step.now);
            }
        }
        for starts in self.upstreams.iter().chain(&self.lanes) {
            // The stretch that ends now is the only one that this step can have filled.
            let recent =
                starts.at.iter().rev().take_while(|at| **at + Span::from_secs(60) > step.now).count();
            let limit = starts.limit.unwrap_or(u32::MAX);
            ensure!(recent <= limit as usize, "{recent} starts in a minute with a limit of {limit}");
        }
        Ok(())
    }
}
