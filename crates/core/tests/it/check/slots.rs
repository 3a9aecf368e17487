//! The slots in use equal the open leases, and never exceed the limit.

use std::collections::BTreeMap;

use eclusa_core::gate::{GateView, Reason};

use super::{Checker, Step};
use crate::ledger::{Verdict, ensure};
use crate::rules::{lane_name, upstream_name};

pub(crate) struct Slots;

fn shown(gates: &[GateView]) -> Option<(i64, Option<i64>)> {
    gates.iter().find(|gate| gate.reason == Reason::Concurrency).map(|gate| (gate.level, gate.limit))
}

impl Checker for Slots {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        let plan = &step.ledger.plan;
        for (number, gates) in plan.upstreams.iter().enumerate() {
            let out = step.ledger.leases.values().filter(|lease| lease.upstream == Some(number)).count();
            let view = step.engine.upstream_view(&upstream_name(number), step.now).unwrap();
            ensure!(view.in_flight as usize == out, "{out} leases are out, but shown {view:?}");
            let limit = gates.slots.unwrap_or(u32::MAX);
            ensure!(out <= limit as usize, "{out} at a time with a limit of {limit}");
        }
        for (number, lane) in plan.lanes.iter().enumerate() {
            if let Some(limit) = lane.gates.tenant_slots {
                let jobs = step.ledger.leases.values().filter(|lease| lease.lane == Some(number));
                let mut out: BTreeMap<&str, u32> = BTreeMap::new();
                for job in jobs.filter_map(|lease| step.ledger.jobs.get(&lease.job?)) {
                    *out.entry(&job.tenant).or_default() += 1;
                }
                ensure!(out.values().all(|out| *out <= limit), "{out:?} with {limit} a tenant");
            }
            let Some(limit) = lane.gates.slots else { continue };
            let out = step.ledger.leases.values().filter(|lease| lease.lane == Some(number)).count();
            ensure!(out <= limit as usize, "{out} at a time in a lane with a limit of {limit}");
            let view = step.engine.lane_view(&lane_name(number), step.now).unwrap();
            let right = shown(&view.gates) == Some((i64::try_from(out).unwrap(), Some(i64::from(limit))));
            ensure!(right, "{out} leases of the lane are out, but shown {view:?}");
        }
        Ok(())
    }
}
