//! What the other members notice when the owner stops, is killed, or stops while jobs are added.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, io};

use eclusa::store::{RedisSettings, RedisStore};
use eclusa_core::Store;
use tokio::runtime::Runtime;

use super::lives::{Lives, add};
use super::{By, Queue};
use crate::Failed;
use crate::timing::now;
use crate::workload::{PAYLOAD, Workload, spec, tenants};

/// The argument that makes this program own the basin of a server until it is killed.
pub(crate) const ARGUMENT: &str = "own";

/// Callers that add jobs one by one while the owner stops.
const PRODUCERS: u64 = 20;

/// How long they add jobs before the owner stops, and after it has stopped.
const BEFORE: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(2);

/// How long adding a job took while the owner stopped.
#[derive(Debug)]
pub(crate) struct Pause {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) longest: Duration,
}

/// From the stop request to the owner, including the preparation of its successor, to the successor's first answer.
pub(crate) fn planned(url: &str, jobs: usize) -> Result<Duration, Failed> {
    let mut owner = Lives::new(url, 1, By::Owner, PAYLOAD)?;
    owner.fill(jobs)?;
    let next = Next::open(url)?;
    let started = now();
    drop(owner);
    next.take_over(jobs)?;
    Ok(now() - started)
}

/// From the death of the owner to the first answer of the next one.
pub(crate) fn killed(url: &str, jobs: usize) -> Result<Duration, Failed> {
    let mut owner = OwnerProcess::start(url)?;
    let mut filling = Lives::joining(url, 1, PAYLOAD)?;
    filling.fill(jobs)?;
    drop(filling);
    let next = Next::open(url)?;
    let started = now();
    owner.kill()?;
    next.take_over(jobs)?;
    Ok(now() - started)
}

/// Adds jobs at another member while the owner, with jobs waiting, stops.
pub(crate) fn under_load(url: &str, jobs: usize) -> Result<Pause, Failed> {
    let mut owner = Lives::new(url, 1, By::Owner, PAYLOAD)?;
    owner.fill(jobs)?;
    let next = Next::open(url)?;
    let over = AtomicBool::new(false);
    let produce = async |client: u64| {
        let mut workload = Workload::new(tenants(1), client)?;
        let mut took = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let started = now();
            add(&next.store, workload.jobs(1)).await?;
            took.push(now() - started);
        }
        Ok::<_, Failed>(took)
    };
    let stop = async {
        tokio::time::sleep(BEFORE).await;
        tokio::task::spawn_blocking(move || drop(owner)).await?;
        tokio::time::sleep(AFTER).await;
        over.store(true, Ordering::Relaxed);
        Ok::<_, Failed>(())
    };
    let all = futures_util::future::try_join_all((1..=PRODUCERS).map(produce));
    let (took, ()) = next.runtime.block_on(async { tokio::try_join!(all, stop) })?;
    let mut took = took.concat();
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    Ok(Pause { p50: at(50), p99: at(99), longest: at(100) })
}

/// The member that owns after the owner.
struct Next {
    runtime: Runtime,
    store: RedisStore,
}

impl Next {
    fn open(url: &str) -> Result<Self, Failed> {
        let next = Self {
            runtime: Runtime::new()?,
            store: RedisStore::open(url, &RedisSettings::default(), &spec()?)?,
        };
        next.runtime.block_on(next.store.lanes())?;
        Ok(next)
    }

    /// Returns when this member has read the whole journal and answered.
    fn take_over(&self, jobs: usize) -> Result<(), Failed> {
        let lanes = self.runtime.block_on(self.store.lanes())?;
        let waiting: u64 = lanes.iter().flat_map(|lane| lane.queued).sum();
        if waiting != jobs as u64 || !self.store.owns() {
            return Err(format!("{waiting} of {jobs} jobs were taken over").into());
        }
        Ok(())
    }
}

/// Another process of this program that owns.
struct OwnerProcess(Child);

impl OwnerProcess {
    fn start(url: &str) -> Result<Self, Failed> {
        let child = Command::new(env::current_exe()?)
            .args([ARGUMENT, url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut owner = Self(child);
        let mut line = String::new();
        BufReader::new(owner.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        if line.trim() == "owns" { Ok(owner) } else { Err("the process does not own".into()) }
    }

    fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for OwnerProcess {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The main function of the other process: owns until it is killed or its parent ends.
pub(crate) fn own(url: &str) -> Result<(), Failed> {
    let store = RedisStore::open(url, &RedisSettings::default(), &spec()?)?;
    Runtime::new()?.block_on(store.lanes())?;
    println!("{}", if store.owns() { "owns" } else { "asks" });
    io::stdout().flush()?;
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}
