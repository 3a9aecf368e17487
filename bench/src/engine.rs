//! The engine in memory, without and with serializing the records of its changes.

use std::collections::VecDeque;
use std::time::Duration;

use eclusa_core::{Engine, LeaseId, SaveError, Span, Time};

use crate::Failed;
use crate::timing::{now, per_second};
use crate::workload::{GROUP, Load, Workload, done, spec, tenants};

/// An engine under a constant load.
pub(crate) struct Cycle {
    engine: Engine,
    workload: Workload,
    in_flight: VecDeque<LeaseId>,
    time: Time,
    chunk: Vec<u8>,
}

impl Cycle {
    /// An engine in which `load.waiting` jobs wait and `load.in_flight` run.
    pub(crate) fn new(load: Load) -> Result<Self, Failed> {
        let mut cycle = Self {
            engine: Engine::new(&spec()?),
            workload: Workload::new(tenants(load.tenants), 0)?,
            in_flight: VecDeque::new(),
            time: Time::from_millis(1_700_000_000_000),
            chunk: Vec::new(),
        };
        cycle.fill(load.waiting)?;
        cycle.hold(load.in_flight)?;
        Ok(cycle)
    }

    fn fill(&mut self, jobs: usize) -> Result<(), Failed> {
        for filled in (0..jobs).step_by(GROUP) {
            let group = self.workload.jobs(GROUP.min(jobs - filled));
            self.engine.enqueue(group, self.time);
            self.save()?;
        }
        Ok(())
    }

    /// Starts jobs until the given number runs; as many new ones start waiting.
    fn hold(&mut self, leases: usize) -> Result<(), Failed> {
        while self.in_flight.len() < leases {
            let mut ask = self.workload.ask();
            ask.max = GROUP.min(leases - self.in_flight.len());
            self.fill(ask.max)?;
            self.in_flight
                .extend(self.engine.dispatch(&ask, self.time).grants.iter().map(|grant| grant.lease));
        }
        self.save()?;
        Ok(())
    }

    /// Adds a group of jobs, starts one and ends one; returns how long that took, not counting the creation of the jobs.
    pub(crate) fn turn(&mut self) -> Duration {
        let (jobs, ask) = (self.workload.jobs(GROUP), self.workload.ask());
        self.time = self.time + Span::from_millis(1);
        let start = now();
        self.engine.enqueue(jobs, self.time);
        let grants = self.engine.dispatch(&ask, self.time).grants;
        self.in_flight.extend(grants.iter().map(|grant| grant.lease));
        let settlements = self.in_flight.drain(..GROUP).map(done).collect();
        self.engine.settle(settlements, self.time);
        now() - start
    }

    /// Serializes the changes as the embedded store does; returns the number of bytes.
    pub(crate) fn save(&mut self) -> Result<usize, SaveError> {
        self.chunk.clear();
        self.engine.save_changes(&mut self.chunk)?;
        Ok(self.chunk.len())
    }

    fn timed_save(&mut self) -> Result<Duration, SaveError> {
        let start = now();
        self.save()?;
        Ok(now() - start)
    }
}

/// Life cycles per second of the bare engine, and with records.
pub(crate) fn measure(load: Load) -> Result<[f64; 2], Failed> {
    let mut cycle = Cycle::new(load)?;
    let group = GROUP as f64;
    let bare = per_second(|| {
        let spent = cycle.turn();
        cycle.save().map(|_| spent)
    })?;
    let with_records = per_second(|| Ok::<_, SaveError>(cycle.turn() + cycle.timed_save()?))?;
    Ok([bare * group, with_records * group])
}

/// Bytes per verb of a grouped life cycle for the journal, on average.
pub(crate) fn record_bytes() -> Result<usize, Failed> {
    let mut cycle = Cycle::new(Load { waiting: 1_000, tenants: 1, in_flight: 10 })?;
    cycle.turn();
    Ok(cycle.save()? / 3)
}
