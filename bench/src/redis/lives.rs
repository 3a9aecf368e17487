//! Life cycles in the Redis store, driven as the gateway does: whoever adds waits for the answer, one loop asks for as many
//! jobs as slots are free, and each job is settled by itself when it ends.

use std::sync::Arc;
use std::time::Duration;

use eclusa::store::RedisStore;
use eclusa_core::{Enqueued, LeaseId, NewJob, Settled, Status, Store};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::{Adds, CONCURRENCY, Queue};
use crate::Failed;
use crate::timing::now;
use crate::workload::{GROUP, Workload, done, spec, tenants};

/// The store and those who use it.
pub(crate) struct Lives {
    runtime: Runtime,
    store: Arc<RedisStore>,
    workload: Workload,
}

impl Lives {
    pub(crate) fn new(url: &str, tenant_count: usize) -> Result<Self, Failed> {
        Ok(Self {
            runtime: Runtime::new()?,
            store: Arc::new(RedisStore::new(url, "eclusa:", &spec()?)?),
            workload: Workload::new(tenants(tenant_count), 0)?,
        })
    }
}

impl Queue for Lives {
    /// So many jobs begin to wait.
    fn fill(&mut self, jobs: usize) -> Result<(), Failed> {
        for filled in (0..jobs).step_by(GROUP) {
            let jobs = self.workload.jobs(GROUP.min(jobs - filled));
            self.runtime.block_on(add(&self.store, jobs))?;
        }
        Ok(())
    }

    /// So many of the waiting jobs are started and stay in flight.
    fn hold(&mut self, jobs: usize) -> Result<(), Failed> {
        let mut held = 0;
        while held < jobs {
            let mut ask = self.workload.ask();
            ask.max = GROUP.min(jobs - held);
            held += self.runtime.block_on(self.store.dispatch(ask))?.grants.len();
        }
        Ok(())
    }

    /// So many jobs are added and as many processed, at the same time; says how long it took.
    fn run(&mut self, jobs: usize, adds: Adds) -> Result<Duration, Failed> {
        let mut groups: Vec<_> = (0..jobs / adds.group()).map(|_| self.workload.jobs(adds.group())).collect();
        let producers: Vec<Vec<_>> = (0..adds.producers())
            .map(|_| groups.split_off(groups.len() - jobs / adds.group() / adds.producers()))
            .collect();
        let (store, bell) = (&self.store, Arc::new(Notify::new()));
        let started = now();
        self.runtime.block_on(async {
            let mut all = JoinSet::new();
            for groups in producers {
                let (store, bell) = (store.clone(), bell.clone());
                all.spawn(async move {
                    for jobs in groups {
                        add(&store, jobs).await?;
                        bell.notify_one();
                    }
                    Ok::<_, Failed>(())
                });
            }
            let ask = self.workload.ask();
            all.spawn(work(store.clone(), ask, jobs, bell));
            while let Some(ended) = all.join_next().await {
                ended??;
            }
            Ok::<_, Failed>(())
        })?;
        Ok(now() - started)
    }
}

/// Adds jobs, again where the answer was too late: the machine may do other things meanwhile.
async fn add(store: &RedisStore, jobs: Vec<NewJob>) -> Result<(), Failed> {
    let answer = loop {
        match store.enqueue(jobs.clone()).await {
            Err(error) if error.is_transient() => {}
            told => break told?,
        }
    };
    let is_in = |told: &Enqueued| matches!(told, Enqueued::Accepted(_) | Enqueued::Existing(_));
    match answer.jobs.iter().find(|told| !is_in(told)) {
        Some(refused) => Err(format!("not accepted: {refused:?}").into()),
        None => Ok(()),
    }
}

async fn work(
    store: Arc<RedisStore>,
    ask: eclusa_core::Dispatch,
    jobs: usize,
    bell: Arc<Notify>,
) -> Result<(), Failed> {
    let slots = Arc::new(Semaphore::new(CONCURRENCY));
    let mut running = JoinSet::new();
    let mut started = 0;
    while started < jobs {
        let first = slots.clone().acquire_owned().await?;
        let free = slots.available_permits().min(jobs - started - 1);
        let mut room = slots.clone().try_acquire_many_owned(u32::try_from(free)?)?;
        room.merge(first);
        let mut ask = ask.clone();
        ask.max = room.num_permits();
        let grants = store.dispatch(ask).await?.grants;
        started += grants.len();
        if grants.is_empty() {
            bell.notified().await;
        }
        for grant in grants {
            let slot = room.split(1).ok_or("more jobs than slots")?;
            let store = store.clone();
            running.spawn(async move {
                settle(&store, grant.lease).await?;
                drop(slot);
                Ok::<_, Failed>(())
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
