//! The Redis store compared with BullMQ on the same server, and its limiter compared with a script that does nothing.

mod buckets;
mod bullmq;
mod latency;
mod limiter;
mod lives;
mod raw;
mod report;
mod server;
mod takeover;

use std::path::Path;
use std::time::Duration;
use std::{env, fs};

pub(crate) use lives::Lives;
pub(crate) use report::RedisReport;
pub(crate) use server::RedisServer;
pub(crate) use takeover::{ARGUMENT as OWN, own};

use self::bullmq::BullMq;
use self::report::{Figures, Memory};
use self::server::Spent;
use crate::workload::{Load, PAYLOAD};
use crate::{Failed, http};

/// Jobs that run at the same time.
const CONCURRENCY: usize = 100;

/// Life cycles per round, the same for both. Enough that a round takes a tenth of a second, and that as many finished jobs
/// are kept after two rounds as ever will be.
const JOBS: usize = 10_000;

/// Each figure is the median of this many rounds.
const ROUNDS: usize = 7;
/// Rounds of one load that a profiler looks at.
const PROFILED: usize = 51;

const WAITING: [usize; 2] = [1_000, 200_000];
const TENANTS: [usize; 2] = [1, 1_000];
const IN_FLIGHT: [usize; 2] = [10, 10_000];
/// Longer payloads, and how many jobs carry them.
const PAYLOADS: [(usize, usize); 3] = [(10_000, 2_000), (100_000, 400), (900_000, 100)];
/// Jobs that wait while another member takes over.
const TAKEOVERS: [usize; 3] = [1_000, 100_000, 1_000_000];

/// How jobs are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Adds {
    /// A hundred per call.
    Bulk,
    /// One per call.
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

    /// The number of concurrent producers.
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

/// Which members of the fleet add and process jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// The owner.
    Owner,
    /// Another member, which asks the owner through the server.
    Other,
    /// Four other members.
    Four,
}

impl By {
    const ALL: [Self; 3] = [By::Owner, By::Other, By::Four];

    /// The members that ask the owner.
    const fn others(self) -> usize {
        match self {
            By::Owner => 0,
            By::Other => 1,
            By::Four => 4,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            By::Owner => "owner",
            By::Other => "asked",
            By::Four => "four",
        }
    }
}

/// One run of [`JOBS`] through a queue.
struct Round {
    took: Duration,
    spent: Spent,
}

/// A queue that can be measured.
pub(crate) trait Queue {
    fn fill(&mut self, jobs: usize) -> Result<(), Failed>;
    fn hold(&mut self, jobs: usize) -> Result<(), Failed>;
    fn run(&mut self, jobs: usize, adds: Adds) -> Result<Duration, Failed>;
}

/// Measures everything, prints it and stores it.
pub(crate) fn measure(dir: &Path) -> Result<RedisReport, Failed> {
    let server = RedisServer::start(dir)?;
    let mut report = RedisReport::new(raw::sets_per_second(&server)?);
    for waiting in WAITING {
        measure_lives(&server, waiting, &mut report)?;
    }
    server.flush()?;
    let theirs = measure_memory(&server, &mut BullMq::start(server.port)?)?;
    for tenants in TENANTS {
        server.flush()?;
        let mut ours = Lives::new(&server.url(), tenants, By::Owner, PAYLOAD)?;
        report.memory(tenants, measure_memory(&server, &mut ours)?, theirs);
    }
    for (payload, jobs) in PAYLOADS {
        measure_payload(&server, payload, jobs, &mut report)?;
    }
    for jobs in TAKEOVERS {
        server.flush()?;
        report.takeover("planned", jobs, takeover::planned(&server.url(), jobs)?);
        server.flush()?;
        report.takeover(report::KILLED, jobs, takeover::killed(&server.url(), jobs)?);
        server.flush()?;
        report.pause(jobs, &takeover::under_load(&server.url(), jobs)?);
    }
    server.flush()?;
    report.buckets(buckets::bytes(&server)?);
    server.flush()?;
    report.latency(&latency::measure(&server)?);
    for by in [By::Owner, By::Other] {
        server.flush()?;
        let store = format!("url = \"{}\"", server.url());
        report.round_trip(by, http::round_trip(&dir.join("gateways"), &store, 1 + by.others())?);
    }
    server.flush()?;
    for leased in [false, true] {
        for admitted in [true, false] {
            report.limiter(leased, admitted, limiter::measure(&server, leased, admitted)?);
        }
    }
    drop(server);
    fs::remove_dir_all(dir)?;
    Ok(report)
}

/// Runs one load on the Redis store only, long enough for a profiler, with `others` members that ask the owner; without
/// them the owner works itself.
pub(crate) fn measure_ours(load: Load, others: usize) -> Result<(), Failed> {
    let by = By::ALL.into_iter().find(|by| by.others() == others).ok_or("OTHERS is 0, 1 or 4")?;
    let dir = env::temp_dir().join("eclusa-bench-redis");
    let server = RedisServer::start(&dir)?;
    let mut ours = Lives::new(&server.url(), load.tenants, by, PAYLOAD)?;
    ours.run(2 * JOBS, Adds::Bulk)?;
    ours.fill(load.waiting + load.in_flight)?;
    ours.hold(load.in_flight)?;
    for adds in Adds::ALL {
        let rounds = (0..PROFILED).map(|_| round(&server, &mut ours, adds)).collect::<Result<Vec<_>, _>>()?;
        println!("{:.1?}", Figures::median(load, adds, &rounds));
    }
    drop(server);
    Ok(fs::remove_dir_all(dir)?)
}

/// Runs only the limiter, and the scripts that it is compared with.
pub(crate) fn measure_limiter() -> Result<(), Failed> {
    let dir = env::temp_dir().join("eclusa-bench-redis");
    let server = RedisServer::start(&dir)?;
    for leased in [false, true] {
        for admitted in [true, false] {
            println!("{:.1?}", limiter::measure(&server, leased, admitted)?);
        }
    }
    drop(server);
    Ok(fs::remove_dir_all(dir)?)
}

/// Lets another member take over, and returns how long that took.
pub(crate) fn measure_takeover(jobs: usize) -> Result<(), Failed> {
    let dir = env::temp_dir().join("eclusa-bench-redis");
    let server = RedisServer::start(&dir)?;
    println!("stopped in order: {:.3?}", takeover::planned(&server.url(), jobs)?);
    server.flush()?;
    println!("killed: {:.3?}", takeover::killed(&server.url(), jobs)?);
    server.flush()?;
    println!("adding jobs while it stops in order: {:.3?}", takeover::under_load(&server.url(), jobs)?);
    drop(server);
    Ok(fs::remove_dir_all(dir)?)
}

/// All rows for one number of waiting jobs. Ours and theirs alternate, because the machine may be doing other things.
fn measure_lives(server: &RedisServer, waiting: usize, report: &mut RedisReport) -> Result<(), Failed> {
    server.flush()?;
    let mut theirs = BullMq::start(server.port)?;
    // Scripts are loaded, and as many finished jobs kept as ever will be, before anything is measured.
    theirs.run(2 * JOBS, Adds::Bulk)?;
    theirs.fill(waiting)?;
    let mut held = 0;
    for in_flight in IN_FLIGHT {
        theirs.fill(in_flight - held)?;
        theirs.hold(in_flight - held)?;
        held = in_flight;
        for tenants in TENANTS {
            for by in By::ALL {
                server.flush_ours()?;
                let mut ours = Lives::new(&server.url(), tenants, by, PAYLOAD)?;
                ours.run(2 * JOBS, Adds::Bulk)?;
                ours.fill(waiting + in_flight)?;
                ours.hold(in_flight)?;
                for adds in Adds::ALL {
                    let rounds = take_turns(server, &mut ours, &mut theirs, adds)?;
                    let load = Load { waiting, tenants, in_flight };
                    report.lives(by, rounds.map(|rounds| Figures::median(load, adds, &rounds)));
                }
            }
        }
    }
    Ok(())
}

/// Rows for one length of payload.
fn measure_payload(
    server: &RedisServer,
    payload: usize,
    jobs: usize,
    report: &mut RedisReport,
) -> Result<(), Failed> {
    for by in [By::Owner, By::Other] {
        server.flush()?;
        let mut theirs = BullMq::start(server.port)?;
        theirs.payload(payload)?;
        let mut ours = Lives::new(&server.url(), 1, by, payload)?;
        let mut took = [Vec::new(), Vec::new()];
        // The first round is not reported.
        for _ in 0..=ROUNDS {
            took[0].push(ours.run(jobs, Adds::Single)?);
            took[1].push(theirs.run(jobs, Adds::Single)?);
        }
        report.payload(
            by,
            payload,
            jobs,
            took.map(|mut took| {
                took.remove(0);
                took.sort_unstable();
                took[ROUNDS / 2]
            }),
        );
    }
    Ok(())
}

/// Runs both [`ROUNDS`] times, one after the other.
fn take_turns(
    server: &RedisServer,
    ours: &mut Lives,
    theirs: &mut BullMq,
    adds: Adds,
) -> Result<[Vec<Round>; 2], Failed> {
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        rounds[0].push(round(server, ours, adds)?);
        rounds[1].push(round(server, theirs, adds)?);
    }
    Ok(rounds)
}

fn round(server: &RedisServer, queue: &mut impl Queue, adds: Adds) -> Result<Round, Failed> {
    let (took, spent) = server.spent(|| queue.run(JOBS, adds))?;
    Ok(Round { took, spent })
}

/// Memory of the server per job: after filling, and after as many life cycles as jobs wait.
fn measure_memory(server: &RedisServer, queue: &mut impl Queue) -> Result<Memory, Failed> {
    let waiting = WAITING[1];
    queue.run(2 * JOBS, Adds::Bulk)?;
    let before = server.used_memory()?;
    queue.fill(waiting)?;
    let filled = (server.used_memory()? - before) / waiting as f64;
    queue.run(waiting, Adds::Bulk)?;
    let churned = (server.used_memory()? - before) / waiting as f64;
    Ok(Memory { filled, churned })
}
