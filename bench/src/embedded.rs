//! The embedded store, used by one sequential client and by several concurrent ones.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use eclusa::SystemClock;
use eclusa::store::{Ack, EmbeddedStore};
use eclusa_core::{LeaseId, Store, StoreError};
use pollster::FutureExt;

use crate::Failed;
use crate::timing::{ROUND, median, now};
use crate::workload::{GROUP, IN_FLIGHT, Load, Workload, done, spec, tenants};

/// A journal groups what several clients ask for at the same time.
pub(crate) const CLIENTS: usize = 16;

/// A client that enqueues, dispatches and settles, and waits for each answer.
struct Client {
    workload: Workload,
    in_flight: VecDeque<LeaseId>,
}

impl Client {
    fn fill(&mut self, store: &impl Store, jobs: usize) -> Result<(), StoreError> {
        for filled in (0..jobs).step_by(GROUP) {
            store.enqueue(self.workload.jobs(GROUP.min(jobs - filled))).block_on()?;
        }
        Ok(())
    }

    /// Starts jobs until the given number runs; as many new ones start waiting.
    fn hold(&mut self, store: &impl Store, leases: usize) -> Result<(), StoreError> {
        while self.in_flight.len() < leases {
            let mut ask = self.workload.ask();
            ask.max = GROUP.min(leases - self.in_flight.len());
            self.fill(store, ask.max)?;
            let grants = store.dispatch(ask).block_on()?.grants;
            self.in_flight.extend(grants.iter().map(|grant| grant.lease));
        }
        Ok(())
    }

    fn turn(&mut self, store: &impl Store) -> Result<(), StoreError> {
        store.enqueue(self.workload.jobs(GROUP)).block_on()?;
        let grants = store.dispatch(self.workload.ask()).block_on()?.grants;
        self.in_flight.extend(grants.iter().map(|grant| grant.lease));
        let settlements = self.in_flight.drain(..GROUP).map(done).collect();
        store.settle(settlements).block_on()?;
        Ok(())
    }

    /// Runs until the round is over; returns the number of life cycles.
    fn round(&mut self, store: &impl Store) -> Result<usize, StoreError> {
        let end = now() + ROUND;
        let mut turns = 0;
        while now() < end {
            self.turn(store)?;
            turns += 1;
        }
        Ok(turns)
    }
}

/// Runs all clients concurrently.
fn at_once<T: Send>(
    clients: &mut [Client],
    work: impl Fn(&mut Client) -> Result<T, StoreError> + Sync,
) -> Result<Vec<T>, StoreError> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(move || work(client))).collect();
        let closed = || StoreError::Stopped { cause: "a client panicked".into() };
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(closed()))).collect()
    })
}

/// Life cycles per second of some clients.
fn rate(store: &EmbeddedStore, clients: &mut [Client]) -> Result<f64, StoreError> {
    median(|| {
        let start = now();
        let turns = at_once(clients, |client| client.round(store))?;
        Ok((turns.iter().sum::<usize>() * GROUP) as f64 / (now() - start).as_secs_f64())
    })
}

/// The throughput of one client and of all clients.
pub(crate) struct Rates {
    pub(crate) load: Load,
    pub(crate) one_client: f64,
    pub(crate) all_clients: f64,
}

/// Life cycles per second for one number of waiting jobs and each of [`IN_FLIGHT`].
pub(crate) fn measure(
    dir: &Path,
    ack: Ack,
    waiting: usize,
    tenant_count: usize,
) -> Result<Vec<Rates>, Failed> {
    let store = EmbeddedStore::open(dir, ack, &spec()?, Arc::new(SystemClock))?;
    let names = tenants(tenant_count);
    let client =
        |number| Ok(Client { workload: Workload::new(names.clone(), number)?, in_flight: VecDeque::new() });
    let mut clients = (0..CLIENTS as u64).map(client).collect::<Result<Vec<_>, Failed>>()?;
    at_once(&mut clients, |client| client.fill(&store, waiting.div_ceil(CLIENTS)))?;
    let mut rates = Vec::new();
    for in_flight in IN_FLIGHT {
        at_once(&mut clients, |client| client.hold(&store, in_flight.div_ceil(CLIENTS)))?;
        let load = Load { waiting, tenants: tenant_count, in_flight };
        let all_clients = rate(&store, &mut clients)?;
        rates.push(Rates { load, one_client: rate(&store, &mut clients[..1])?, all_clients });
    }
    Ok(rates)
}
