//! Life cycles in the Redis store, driven as the gateway does: producers wait for the answer, one loop asks for as many jobs
//! as there are free slots, and each job is settled separately when it ends.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eclusa::store::{RedisSettings, RedisStore};
use eclusa_core::{Dispatch, Enqueued, LeaseId, NewJob, Settled, Span, Spec, Status, Store};
use futures_util::poll;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};

use super::{Adds, By, CONCURRENCY, Queue};
use crate::Failed;
use crate::timing::now;
use crate::workload::{GROUP, Workload, dead, done, spec, tenants};

/// How long a question may be held when nothing can start.
const HELD: Span = Span::from_secs(1);

/// The members of a fleet and what they do.
pub(crate) struct Lives {
    runtime: Runtime,
    /// The members that add and process jobs.
    stores: Vec<Arc<RedisStore>>,
    workload: Workload,
    /// The owner, if it is none of the others. Dropped last, so that no takeover happens.
    _owner: Option<RedisStore>,
}

impl Lives {
    pub(crate) fn new(url: &str, tenant_count: usize, by: By, payload: usize) -> Result<Self, Failed> {
        let workload = Workload::new(tenants(tenant_count), 0)?.with_payload(payload);
        Self::of(url, &spec()?, by, workload)
    }

    /// Starts with these rules and this workload.
    pub(crate) fn of(url: &str, spec: &Spec, by: By, workload: Workload) -> Result<Self, Failed> {
        let open = || RedisStore::open(url, &RedisSettings::default(), spec).map_err(Failed::from);
        let runtime = Runtime::new()?;
        let owner = open()?;
        runtime.block_on(owner.lanes())?;
        let (stores, owner) = match by.others() {
            0 => (vec![Arc::new(owner)], None),
            others => {
                let others = (0..others).map(|_| open().map(Arc::new));
                (others.collect::<Result<_, _>>()?, Some(owner))
            }
        };
        Ok(Self { runtime, stores, workload, _owner: owner })
    }

    /// One more member of a fleet that has an owner.
    pub(crate) fn joining(url: &str, tenant_count: usize, payload: usize) -> Result<Self, Failed> {
        let store = RedisStore::open(url, &RedisSettings::default(), &spec()?)?;
        let workload = Workload::new(tenants(tenant_count), 0)?.with_payload(payload);
        Ok(Self { runtime: Runtime::new()?, stores: vec![Arc::new(store)], workload, _owner: None })
    }

    /// Makes jobs fail permanently and leave dead letters.
    pub(crate) fn bury(&mut self, jobs: usize) -> Result<(), Failed> {
        let mut left = jobs;
        while left > 0 {
            self.fill(GROUP.min(left))?;
            let ask = Dispatch { max: GROUP.min(left), ..self.workload.ask() };
            let store = &self.stores[0];
            let grants = self.runtime.block_on(store.dispatch(ask))?.grants;
            let settlements: Vec<_> = grants.iter().map(|grant| dead(grant.lease)).collect();
            let settled = self.runtime.block_on(store.settle(settlements))?.leases;
            if settled.iter().any(|settled| *settled != Settled::Ended(Status::Failed)) {
                return Err(format!("not settled: {settled:?}").into());
            }
            left -= settled.len();
        }
        Ok(())
    }
}

impl Queue for Lives {
    /// Adds jobs that wait.
    fn fill(&mut self, jobs: usize) -> Result<(), Failed> {
        for filled in (0..jobs).step_by(GROUP) {
            let jobs = self.workload.jobs(GROUP.min(jobs - filled));
            self.runtime.block_on(add(&self.stores[0], jobs))?;
        }
        Ok(())
    }

    /// Starts waiting jobs that stay in flight.
    fn hold(&mut self, jobs: usize) -> Result<(), Failed> {
        let mut held = 0;
        while held < jobs {
            let mut ask = self.workload.ask();
            ask.max = GROUP.min(jobs - held);
            held += self.runtime.block_on(self.stores[0].dispatch(ask))?.grants.len();
        }
        Ok(())
    }

    /// Adds jobs and processes as many at the same time; returns how long it took.
    fn run(&mut self, jobs: usize, adds: Adds) -> Result<Duration, Failed> {
        let (members, producers) = (self.stores.len(), adds.producers());
        let each = jobs / members / producers / adds.group();
        let mut work = Vec::new();
        for store in &self.stores {
            for _ in 0..producers {
                let groups: Vec<_> = (0..each).map(|_| self.workload.jobs(adds.group())).collect();
                work.push((store.clone(), groups));
            }
        }
        let (processed, ask) = (each * producers * adds.group(), self.workload.ask());
        let started = now();
        self.runtime.block_on(async {
            let mut all = JoinSet::new();
            for (store, groups) in work {
                all.spawn(async move {
                    for jobs in groups {
                        add(&store, jobs).await?;
                    }
                    Ok::<_, Failed>(())
                });
            }
            for store in &self.stores {
                all.spawn(process(store.clone(), ask.clone(), processed));
            }
            while let Some(ended) = all.join_next().await {
                ended??;
            }
            Ok::<_, Failed>(())
        })?;
        Ok(now() - started)
    }
}

pub(crate) async fn add(store: &RedisStore, jobs: Vec<NewJob>) -> Result<(), Failed> {
    let answer = store.enqueue(jobs).await?;
    match answer.jobs.iter().find(|answer| !matches!(answer, Enqueued::Accepted(_))) {
        Some(refused) => Err(format!("not accepted: {refused:?}").into()),
        None => Ok(()),
    }
}

async fn process(store: Arc<RedisStore>, ask: Dispatch, jobs: usize) -> Result<(), Failed> {
    let slots = Arc::new(Semaphore::new(CONCURRENCY));
    let mut running = JoinSet::new();
    let mut started = 0;
    while started < jobs {
        let first = slots.clone().acquire_owned().await?;
        // Other jobs that end now release their slots first.
        yield_now().await;
        let free = slots.available_permits().min(jobs - started - 1);
        let mut room = slots.clone().try_acquire_many_owned(u32::try_from(free)?)?;
        room.merge(first);
        let ask = Dispatch { max: room.num_permits(), nonce: fastrand::u64(..), wait: HELD, ..ask.clone() };
        let grants = store.dispatch(ask).await?.grants;
        started += grants.len();
        for grant in grants {
            let slot = room.split(1).ok_or("more jobs than slots")?;
            let store = store.clone();
            running.spawn(async move {
                let mut settled = pin!(settle(&store, grant.lease));
                // The slot is free as soon as the store knows that the job has ended.
                let early = poll!(&mut settled);
                drop(slot);
                match early {
                    Poll::Ready(settled) => settled,
                    Poll::Pending => settled.await,
                }
            });
        }
        while let Some(ended) = running.try_join_next() {
            ended??;
        }
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

async fn settle(store: &RedisStore, lease: LeaseId) -> Result<(), Failed> {
    match store.settle(vec![done(lease)]).await?.leases.as_slice() {
        [Settled::Ended(Status::Completed)] => Ok(()),
        other => Err(format!("not settled: {other:?}").into()),
    }
}
