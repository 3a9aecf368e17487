//! A naive queue for comparison: no priorities, fairness, gates, expiry or journal.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use eclusa_core::{JobId, NewJob, Payload, SpecError};
use hashbrown::HashMap;

use crate::timing::{now, per_second};
use crate::workload::{GROUP, Load, Workload, tenants};

#[derive(Default)]
struct Queue {
    jobs: HashMap<JobId, NewJob, foldhash::fast::FixedState>,
    waiting: VecDeque<JobId>,
    leases: HashMap<u64, JobId, foldhash::fast::FixedState>,
    next_lease: u64,
}

impl Queue {
    fn enqueue(&mut self, jobs: Vec<NewJob>) {
        for job in jobs {
            let id = job.id;
            if self.jobs.insert(id, job).is_none() {
                self.waiting.push_back(id);
            }
        }
    }

    fn pop(&mut self, max: usize) -> Vec<(u64, JobId, Payload)> {
        let mut popped = Vec::new();
        while popped.len() < max
            && let Some(id) = self.waiting.pop_front()
        {
            let Some(job) = self.jobs.get(&id) else { continue };
            self.next_lease += 1;
            self.leases.insert(self.next_lease, id);
            popped.push((self.next_lease, id, job.payload.clone()));
        }
        popped
    }

    fn ack(&mut self, leases: impl Iterator<Item = u64>) -> usize {
        let ended = leases.filter_map(|lease| self.leases.remove(&lease));
        ended.filter_map(|id| self.jobs.remove(&id)).count()
    }
}

/// Life cycles per second.
pub(crate) fn measure(load: Load) -> Result<f64, SpecError> {
    let mut queue = Queue::default();
    let mut workload = Workload::new(tenants(load.tenants), 0)?;
    queue.enqueue(workload.jobs(load.waiting + load.in_flight));
    let popped = queue.pop(load.in_flight);
    let mut in_flight: VecDeque<u64> = popped.iter().map(|(lease, ..)| *lease).collect();
    let rate = per_second(|| {
        let jobs = workload.jobs(GROUP);
        let start = now();
        queue.enqueue(jobs);
        in_flight.extend(queue.pop(GROUP).iter().map(|(lease, ..)| *lease));
        queue.ack(in_flight.drain(..GROUP));
        Ok::<Duration, Infallible>(now() - start)
    });
    Ok(rate.unwrap_or_else(|never| match never {}) * GROUP as f64)
}
