//! One call at a time: how long an enqueue, a decision and a whole life cycle take, compared with a script that does nothing.

use std::time::Duration;

use eclusa::store::{RedisSettings, RedisStore};
use eclusa_core::{Admit, Dispatch, Span, Store, Wait};
use redis::Client;
use tokio::runtime::Runtime;

use super::By;
use super::server::RedisServer;
use crate::Failed;
use crate::timing::now;
use crate::workload::{Workload, done, spec, tenants};

const CALLS: usize = 500;

/// Medians in microseconds.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Latency {
    pub(crate) by: By,
    pub(crate) enqueue_us: f64,
    pub(crate) acquire_us: f64,
    /// Enqueue, dispatch and settle of one job, until the caller that waits for the job has its result.
    pub(crate) life_us: f64,
    pub(crate) script_us: f64,
}

pub(crate) fn measure(server: &RedisServer) -> Result<Vec<Latency>, Failed> {
    [By::Owner, By::Other].into_iter().map(|by| measure_by(server, by)).collect()
}

fn measure_by(server: &RedisServer, by: By) -> Result<Latency, Failed> {
    server.flush()?;
    let runtime = Runtime::new()?;
    let open = || RedisStore::open(&server.url(), &RedisSettings::default(), &spec()?).map_err(Failed::from);
    let owner = open()?;
    runtime.block_on(owner.lanes())?;
    let other = if by == By::Owner { None } else { Some(open()?) };
    let store = other.as_ref().unwrap_or(&owner);
    let mut workload = Workload::new(tenants(1), 0)?;
    let upstream = spec()?.upstreams()[0].name.clone();
    let enqueue_us = runtime.block_on(median(async || {
        store.enqueue(workload.jobs(1)).await?;
        Ok(())
    }))?;
    let acquire_us = runtime.block_on(median(async || {
        let lease = Span::from_secs(60);
        let (chain, nonce) = (vec![upstream.clone()], fastrand::u64(..));
        store
            .admit(Admit {
                lane: None,
                tenant: None,
                chain,
                holds: Vec::new(),
                correlation: None,
                lease,
                nonce,
                after: None,
                probe: true,
            })
            .await?;
        Ok(())
    }))?;
    let ask = workload.ask();
    let drain = async {
        while !store.dispatch(Dispatch { nonce: fastrand::u64(..), ..ask.clone() }).await?.grants.is_empty() {
        }
        Ok::<_, Failed>(())
    };
    runtime.block_on(drain)?;
    let life_us = runtime.block_on(median(async || {
        let jobs = workload.jobs(1);
        let wait = Wait { allow_unknown: true, ..Wait::for_end(jobs[0].id, Span::from_secs(10)) };
        let work = async {
            let ask = Dispatch { nonce: fastrand::u64(..), wait: Span::from_secs(10), ..ask.clone() };
            let grants = store.dispatch(ask).await?.grants;
            store.settle(grants.iter().map(|grant| done(grant.lease)).collect()).await
        };
        tokio::try_join!(store.wait(wait), work, store.enqueue(jobs))?;
        Ok(())
    }))?;
    let mut connection = Client::open(server.url())?.get_connection()?;
    let script: String = redis::cmd("SCRIPT").arg("LOAD").arg("return 1").query(&mut connection)?;
    let script_us = runtime
        .block_on(median(async || Ok(redis::cmd("EVALSHA").arg(&script).arg(0).query(&mut connection)?)))?;
    Ok(Latency { by, enqueue_us, acquire_us, life_us, script_us })
}

async fn median(mut call: impl AsyncFnMut() -> Result<(), Failed>) -> Result<f64, Failed> {
    let mut took = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started = now();
        call().await?;
        took.push(now() - started);
    }
    took.sort_unstable();
    let middle: Duration = took[CALLS / 2];
    Ok(middle.as_secs_f64() * 1e6)
}
