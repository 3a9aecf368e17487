//! The figures of the Redis store beside what they aim at.

use std::time::Duration;

use serde::Serialize;

use super::limiter::Decisions;
use super::{Adds, JOBS, Spent, WAITING};
use crate::report::verdict;
use crate::workload::Load;

const AIM_TIMES: f64 = 8.0;
const AIM_CPU: f64 = 0.25;
const AIM_MEMORY: f64 = 0.6;
const AIM_COMMANDS: f64 = 12.0;
const AIM_OF_BARE: f64 = 0.8;

/// The memory that the source calls enough for 250,000 jobs.
const SMALL_SERVER: f64 = 512.0 * 1024.0 * 1024.0;

/// What one queue does under one load.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Figures {
    waiting: usize,
    tenants: usize,
    in_flight: usize,
    adds: Adds,
    cycles_per_second: f64,
    /// Per job, of the server.
    cpu_us: f64,
    /// Per job, those that scripts call included.
    commands: f64,
    /// Of memory of the server per waiting job, its payload included.
    bytes: f64,
}

impl Figures {
    pub(super) fn new(load: Load, adds: Adds, took: Duration, spent: Spent, bytes: f64) -> Self {
        let Load { waiting, tenants, in_flight } = load;
        let jobs = JOBS as f64;
        Self {
            waiting,
            tenants,
            in_flight,
            adds,
            cycles_per_second: jobs / took.as_secs_f64(),
            cpu_us: spent.cpu_us / jobs,
            commands: spent.commands / jobs,
            bytes,
        }
    }
}

#[derive(Debug, Serialize)]
struct Compared {
    ours: Figures,
    bullmq: Figures,
}

#[derive(Debug, Serialize)]
struct Limiter {
    admitted: bool,
    ours: Decisions,
    bare: Decisions,
}

/// Everything measured on Redis.
#[derive(Debug, Serialize)]
pub(crate) struct RedisReport {
    sets_per_second: f64,
    lives: Vec<Compared>,
    limiter: Vec<Limiter>,
}

impl RedisReport {
    pub(super) fn new(sets_per_second: f64) -> Self {
        println!(
            "\nOn one Redis server (AOF everysec): life cycles of jobs of 200 bytes, 100 at a time, ours : BullMQ\n\n\
             redis-benchmark SET: {sets_per_second:.0}/s\n\n\
             {:>7} {:>7} {:>9} {:<6} {:>15} {:>12} {:>17} {:>12} {:>15} {:>8}",
            "waiting",
            "tenants",
            "in flight",
            "adds",
            "cycles/s",
            "times",
            "CPU us/job",
            "of theirs",
            "commands",
            ""
        );
        Self { sets_per_second, lives: Vec::new(), limiter: Vec::new() }
    }

    /// Prints and keeps the figures of one fill.
    pub(super) fn lives(&mut self, ours: &[Figures], peers: &[Figures]) {
        for (ours, bullmq) in ours.iter().zip(peers) {
            let times = ours.cycles_per_second / bullmq.cycles_per_second;
            let cpu = ours.cpu_us / bullmq.cpu_us;
            println!(
                "{:>7} {:>7} {:>9} {:<6} {:>8.0} :{:>5.0} {times:>6.1}x {:<4} {:>8.0} :{:>7.0} {:>6.0}% {:<4} {:>6.2} :{:>6.2} {:<4}",
                ours.waiting,
                ours.tenants,
                ours.in_flight,
                ours.adds.word(),
                ours.cycles_per_second,
                bullmq.cycles_per_second,
                verdict(times >= AIM_TIMES),
                ours.cpu_us,
                bullmq.cpu_us,
                cpu * 100.0,
                verdict(cpu <= AIM_CPU),
                ours.commands,
                bullmq.commands,
                verdict(ours.commands <= AIM_COMMANDS),
            );
            self.lives.push(Compared { ours: *ours, bullmq: *bullmq });
        }
        if let (Some(ours), Some(bullmq)) = (ours.first(), peers.first())
            && ours.waiting == WAITING[1]
        {
            let share = ours.bytes / bullmq.bytes;
            println!(
                "memory per waiting job: {:.0} bytes, BullMQ {:.0}: {:.0}%, aim {:.0}% {}; {:.0} jobs fit in 512 MB, BullMQ {:.0}",
                ours.bytes,
                bullmq.bytes,
                share * 100.0,
                AIM_MEMORY * 100.0,
                verdict(share <= AIM_MEMORY),
                SMALL_SERVER / ours.bytes,
                SMALL_SERVER / bullmq.bytes,
            );
        }
    }

    pub(super) fn limiter(&mut self, admitted: bool, [ours, bare]: [Decisions; 2]) {
        let share = ours.per_second / bare.per_second;
        println!(
            "limiter, {}: {:.0}/s ({:.1} us, {:.2} commands each), bare script {:.0}/s ({:.1} us): {:.0}%, aim {:.0}% {}",
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
        self.limiter.push(Limiter { admitted, ours, bare });
    }
}
