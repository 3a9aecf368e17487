//! How long a planned takeover takes with many jobs waiting: from the release of the old owner to the first answer of the new
//! one, which has read the whole journal by then.

use std::time::Duration;

use eclusa::store::{RedisSettings, RedisStore};
use eclusa_core::Store;
use tokio::runtime::Runtime;

use super::lives::Lives;
use super::{By, Queue};
use crate::Failed;
use crate::timing::now;
use crate::workload::{PAYLOAD, spec};

pub(crate) fn measure(url: &str, jobs: usize) -> Result<Duration, Failed> {
    let mut owner = Lives::new(url, 1, By::Owner, PAYLOAD)?;
    owner.fill(jobs)?;
    let runtime = Runtime::new()?;
    let next = RedisStore::open(url, &RedisSettings::default(), &spec()?)?;
    runtime.block_on(next.lanes())?;
    let started = now();
    drop(owner);
    let lanes = runtime.block_on(next.lanes())?;
    let waiting: u64 = lanes.iter().flat_map(|lane| lane.queued).sum();
    if waiting != jobs as u64 || !next.owns() {
        return Err(format!("{waiting} of {jobs} jobs were taken over").into());
    }
    Ok(now() - started)
}
