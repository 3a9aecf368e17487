//! The Redis store beside BullMQ, both on the same server, and its limiter beside a script that does nothing.

mod bullmq;
mod limiter;
mod lives;
mod raw;
mod report;
mod server;

use std::path::Path;
use std::time::Duration;
use std::{env, fs};

pub(crate) use report::RedisReport;

use self::bullmq::BullMq;
use self::lives::Lives;
use self::report::Figures;
use self::server::{RedisServer, Spent};
use crate::Failed;
use crate::workload::Load;

/// Jobs that run at a time.
const CONCURRENCY: usize = 100;

/// Life cycles per figure, the same for both.
const JOBS: usize = 5_000;

const WAITING: [usize; 2] = [1_000, 200_000];
const TENANTS: [usize; 2] = [1, 1_000];
const IN_FLIGHT: [usize; 2] = [10, 10_000];

/// How jobs are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Adds {
    /// A hundred in a call.
    Bulk,
    /// One in a call.
    Single,
}

impl Adds {
    const ALL: [Self; 2] = [Adds::Bulk, Adds::Single];

    const fn group(self) -> usize {
        match self {
            Adds::Bulk => 100,
            Adds::Single => 1,
        }
    }

    /// How many add at the same time.
    const fn producers(self) -> usize {
        match self {
            Adds::Bulk => 5,
            Adds::Single => 100,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Adds::Bulk => "bulk",
            Adds::Single => "single",
        }
    }
}

/// One who can be measured.
trait Queue {
    fn fill(&mut self, jobs: usize) -> Result<(), Failed>;
    fn hold(&mut self, jobs: usize) -> Result<(), Failed>;
    fn run(&mut self, jobs: usize, adds: Adds) -> Result<Duration, Failed>;
}

/// Measures everything, prints it and keeps it.
pub(crate) fn measure(dir: &Path) -> Result<RedisReport, Failed> {
    let server = RedisServer::start(dir)?;
    let mut report = RedisReport::new(raw::sets_per_second(&server)?);
    for waiting in WAITING {
        server.flush()?;
        let mut theirs = BullMq::start(server.port)?;
        let peers = measure_queue(&server, &mut theirs, waiting, 1)?;
        drop(theirs);
        for tenants in TENANTS {
            server.flush()?;
            let mut ours = Lives::new(&server.url(), tenants)?;
            let figures = measure_queue(&server, &mut ours, waiting, tenants)?;
            report.lives(&figures, &peers);
        }
    }
    server.flush()?;
    for admitted in [true, false] {
        report.limiter(admitted, limiter::measure(&server, admitted)?);
    }
    drop(server);
    fs::remove_dir_all(dir)?;
    Ok(report)
}

/// Runs one load on the Redis store alone and shows what the server says of it.
pub(crate) fn measure_ours(load: Load) -> Result<(), Failed> {
    let dir = env::temp_dir().join("eclusa-bench-redis");
    let server = RedisServer::start(&dir)?;
    let mut ours = Lives::new(&server.url(), load.tenants)?;
    ours.run(JOBS, Adds::Bulk)?;
    ours.fill(load.waiting + load.in_flight)?;
    ours.hold(load.in_flight)?;
    for adds in Adds::ALL {
        let (took, spent) = server.spent(|| ours.run(JOBS, adds))?;
        println!("{:.0?}", Figures::new(load, adds, took, spent, 0.0));
        println!("{}", server.info("commandstats")?);
    }
    for admitted in [true, false] {
        println!("{:.1?}", limiter::measure(&server, admitted)?);
        println!("{}", server.info("commandstats")?);
    }
    drop(server);
    Ok(fs::remove_dir_all(dir)?)
}

/// The figures of one queue with so many jobs waiting: for each number in flight and each way to add.
fn measure_queue(
    server: &RedisServer,
    queue: &mut impl Queue,
    waiting: usize,
    tenants: usize,
) -> Result<Vec<Figures>, Failed> {
    let mut figures = Vec::new();
    // Scripts are loaded, and as many finished jobs kept as ever will be, before anything is measured.
    queue.run(JOBS, Adds::Bulk)?;
    let before = server.used_memory()?;
    queue.fill(waiting)?;
    let bytes = (server.used_memory()? - before) / waiting as f64;
    let mut held = 0;
    for in_flight in IN_FLIGHT {
        queue.fill(in_flight - held)?;
        queue.hold(in_flight - held)?;
        held = in_flight;
        for adds in Adds::ALL {
            let (took, spent) = server.spent(|| queue.run(JOBS, adds))?;
            let load = Load { waiting, tenants, in_flight };
            figures.push(Figures::new(load, adds, took, spent, bytes));
        }
    }
    Ok(figures)
}
