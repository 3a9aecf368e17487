//! The figures of the Redis store and their targets.

use std::time::Duration;

use serde::Serialize;

use super::latency::Latency;
use super::limiter::Decisions;
use super::takeover::Pause;
use super::{Adds, By, JOBS, Round};
use crate::http::Times;
use crate::report::verdict;
use crate::workload::Load;

/// Life cycles per second, as a multiple of BullMQ's: of the owner, and asked from elsewhere.
const AIM_TIMES: f64 = 8.0;
const AIM_TIMES_ASKED: f64 = 5.0;
const AIM_CPU: f64 = 0.1;
const AIM_MEMORY: f64 = 0.4;
const AIM_OF_BARE: f64 = 1.5;
/// Seconds until decisions resume after the owner was killed, with at most this many jobs waiting.
const AIM_RESUME: f64 = 1.0;
const AIM_RESUME_JOBS: usize = 100_000;

/// How an owner ended: see [`RedisReport::takeover`].
pub(super) const KILLED: &str = "killed";

/// The memory that the requirements call enough for 250,000 jobs.
const SMALL_SERVER: f64 = 512.0 * 1024.0 * 1024.0;

/// The figures of one queue under one load.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Figures {
    waiting: usize,
    tenants: usize,
    in_flight: usize,
    adds: Adds,
    cycles_per_second: f64,
    /// CPU time of the server per job.
    cpu_us: f64,
    /// Commands per job, including those that scripts call.
    commands: f64,
}

impl Figures {
    /// Each figure is the median of the rounds.
    pub(super) fn median(load: Load, adds: Adds, rounds: &[Round]) -> Self {
        let Load { waiting, tenants, in_flight } = load;
        let median = |figure: fn(&Round) -> f64| {
            let mut figures: Vec<_> = rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2] / JOBS as f64
        };
        Self {
            waiting,
            tenants,
            in_flight,
            adds,
            cycles_per_second: 1.0 / median(|round| round.took.as_secs_f64()),
            cpu_us: median(|round| round.spent.cpu_us),
            commands: median(|round| round.spent.commands),
        }
    }
}

/// Bytes of memory of the server per job, its payload included.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Memory {
    /// Right after the jobs were added.
    pub(super) filled: f64,
    /// After as many life cycles as jobs wait.
    pub(super) churned: f64,
}

#[derive(Debug, Serialize)]
struct Compared {
    by: By,
    ours: Figures,
    bullmq: Figures,
}

#[derive(Debug, Serialize)]
struct Limiter {
    leased: bool,
    admitted: bool,
    ours: Decisions,
    bare: Decisions,
}

/// Everything measured on Redis.
#[derive(Debug, Serialize)]
pub(crate) struct RedisReport {
    sets_per_second: f64,
    lives: Vec<Compared>,
    payloads: Vec<Payload>,
    memory: Vec<MemoryRow>,
    takeovers: Vec<Takeover>,
    pauses: Vec<Pauses>,
    latencies: Vec<Latency>,
    round_trips: Vec<RoundTrip>,
    bytes_per_bucket: f64,
    limiter: Vec<Limiter>,
}

#[derive(Debug, Serialize)]
struct Payload {
    by: By,
    bytes: usize,
    cycles_per_second: f64,
    bullmq_cycles_per_second: f64,
}

#[derive(Debug, Serialize)]
struct MemoryRow {
    tenants: usize,
    ours: Memory,
    bullmq: Memory,
}

#[derive(Debug, Serialize)]
struct Takeover {
    how: &'static str,
    waiting: usize,
    seconds: f64,
}

/// One call at a time with `Prefer: wait` over HTTP, and directly to the upstream.
#[derive(Debug, Serialize)]
struct RoundTrip {
    by: By,
    through: Times,
    direct: Times,
}

/// How long adding a job took while the owner stopped.
#[derive(Debug, Serialize)]
struct Pauses {
    waiting: usize,
    p50_ms: f64,
    p99_ms: f64,
    longest_ms: f64,
}

impl RedisReport {
    pub(super) fn new(sets_per_second: f64) -> Self {
        println!(
            "\nOn one Redis server (AOF everysec): life cycles of jobs of 200 bytes, 100 at a time, ours : BullMQ\n\n\
             redis-benchmark SET: {sets_per_second:.0}/s\n\n\
             {:<5} {:>7} {:>7} {:>9} {:<6} {:>15} {:>12} {:>17} {:>12} {:>15}",
            "by",
            "waiting",
            "tenants",
            "in flight",
            "adds",
            "cycles/s",
            "times",
            "CPU us/job",
            "of theirs",
            "commands",
        );
        Self {
            sets_per_second,
            lives: Vec::new(),
            payloads: Vec::new(),
            memory: Vec::new(),
            takeovers: Vec::new(),
            pauses: Vec::new(),
            latencies: Vec::new(),
            round_trips: Vec::new(),
            bytes_per_bucket: 0.0,
            limiter: Vec::new(),
        }
    }

    /// Prints and stores one row.
    pub(super) fn lives(&mut self, by: By, [ours, bullmq]: [Figures; 2]) {
        let aim = if by == By::Owner { AIM_TIMES } else { AIM_TIMES_ASKED };
        let times = ours.cycles_per_second / bullmq.cycles_per_second;
        let cpu = ours.cpu_us / bullmq.cpu_us;
        println!(
            "{:<5} {:>7} {:>7} {:>9} {:<6} {:>8.0} :{:>5.0} {times:>6.1}x {:<4} {:>8.1} :{:>7.0} {:>6.1}% {:<4} {:>6.2} :{:>6.2}",
            by.word(),
            ours.waiting,
            ours.tenants,
            ours.in_flight,
            ours.adds.word(),
            ours.cycles_per_second,
            bullmq.cycles_per_second,
            verdict(times >= aim),
            ours.cpu_us,
            bullmq.cpu_us,
            cpu * 100.0,
            verdict(cpu <= AIM_CPU),
            ours.commands,
            bullmq.commands,
        );
        self.lives.push(Compared { by, ours, bullmq });
    }

    pub(super) fn memory(&mut self, tenants: usize, ours: Memory, bullmq: Memory) {
        let share = ours.filled / bullmq.filled;
        println!(
            "memory per waiting job of {tenants} tenants: {:.0} bytes, BullMQ {:.0}: {:.0}%, aim {:.0}% {}; {:.0} jobs fit in 512 MB, BullMQ {:.0}; after as many life cycles {:.0}, BullMQ {:.0}",
            ours.filled,
            bullmq.filled,
            share * 100.0,
            AIM_MEMORY * 100.0,
            verdict(share <= AIM_MEMORY),
            SMALL_SERVER / ours.filled,
            SMALL_SERVER / bullmq.filled,
            ours.churned,
            bullmq.churned,
        );
        self.memory.push(MemoryRow { tenants, ours, bullmq });
    }

    pub(super) fn payload(&mut self, by: By, bytes: usize, jobs: usize, took: [Duration; 2]) {
        let [ours, theirs] = took.map(|took| jobs as f64 / took.as_secs_f64());
        println!(
            "{:<5} payload {bytes:>7}: {ours:.0} cycles/s, BullMQ {theirs:.0}: {:.1}x, aim 1x {}",
            by.word(),
            ours / theirs,
            verdict(ours >= theirs)
        );
        self.payloads.push(Payload { by, bytes, cycles_per_second: ours, bullmq_cycles_per_second: theirs });
    }

    pub(super) fn takeover(&mut self, how: &'static str, waiting: usize, took: Duration) {
        let seconds = took.as_secs_f64();
        let aimed = how == KILLED && waiting <= AIM_RESUME_JOBS;
        let aim = if aimed {
            format!(", aim {AIM_RESUME:.0} s {}", verdict(seconds <= AIM_RESUME))
        } else {
            String::new()
        };
        println!("owner {how} with {waiting} jobs waiting: {seconds:.2} s until the first answer{aim}");
        self.takeovers.push(Takeover { how, waiting, seconds });
    }

    pub(super) fn pause(&mut self, waiting: usize, pause: &Pause) {
        let [p50_ms, p99_ms, longest_ms] =
            [pause.p50, pause.p99, pause.longest].map(|took| took.as_secs_f64() * 1e3);
        println!(
            "enqueue while the owner with {waiting} jobs stops: p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms, longest {longest_ms:.0} ms"
        );
        self.pauses.push(Pauses { waiting, p50_ms, p99_ms, longest_ms });
    }

    pub(super) fn latency(&mut self, latencies: &[Latency]) {
        for Latency { by, enqueue_us, acquire_us, life_us, script_us } in latencies {
            println!(
                "{:<5} p50: enqueue {enqueue_us:.0} us, acquire {acquire_us:.0} us, a life cycle until its result is known {life_us:.0} us; one script {script_us:.0} us",
                by.word()
            );
        }
        self.latencies.extend(latencies);
    }

    pub(super) fn round_trip(&mut self, by: By, [through, direct]: [Times; 2]) {
        println!(
            "{:<5} round trip with Prefer: wait p50 {:.2} ms (direct {:.2}), p99 {:.2} ms (direct {:.2})",
            by.word(),
            through.p50_ms,
            direct.p50_ms,
            through.p99_ms,
            direct.p99_ms,
        );
        self.round_trips.push(RoundTrip { by, through, direct });
    }

    pub(super) fn buckets(&mut self, bytes: f64) {
        println!("\n{bytes:.0} bytes of Redis memory per bucket of a user");
        self.bytes_per_bucket = bytes;
    }

    pub(super) fn limiter(&mut self, leased: bool, admitted: bool, [ours, bare]: [Decisions; 2]) {
        let share = ours.per_second / bare.per_second;
        println!(
            "limiter{}, {}: {:.0}/s ({:.1} us, {:.2} commands each), bare script {:.0}/s ({:.1} us): {:.0}%, aim {:.0}% {}",
            if leased { " with a lease" } else { "" },
            if admitted { "admitted" } else { "denied" },
            ours.per_second,
            ours.cpu_us,
            ours.commands,
            bare.per_second,
            bare.cpu_us,
            share * 100.0,
            AIM_OF_BARE * 100.0,
            verdict(share >= AIM_OF_BARE),
        );
        self.limiter.push(Limiter { leased, admitted, ours, bare });
    }
}
