//! The figures with their targets, as a table and as JSON.

use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use crate::buckets::{Buckets, USERS};
use crate::email::Email;
use crate::http::{Times, Ways};
use crate::redis::RedisReport;
use crate::workload::{Load, WAITING};

const AIM_IN_MEMORY: f64 = 500_000.0;
const AIM_EMBEDDED: f64 = 100_000.0;
const AIM_GROWTH: f64 = 1.5;
const AIM_BYTES: f64 = 300.0;
const AIM_OF_BARE: f64 = 0.6;
const AIM_ADDED_MS: f64 = 1.0;
const AIM_DECISIONS: f64 = 1_000_000.0;
const AIM_OF_NGINX: f64 = 0.6;
const AIM_DIRECT_ADDED_MS: f64 = 0.3;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Subject {
    /// The engine in memory.
    Engine,
    /// The engine, with the records of its changes serialized to memory.
    EngineWithRecords,
    /// The embedded store that answers when changes are written.
    EmbeddedWrite,
    /// The embedded store that answers when changes are synced.
    EmbeddedFsync,
}

impl Subject {
    const fn aim(self) -> Option<f64> {
        match self {
            Subject::Engine => Some(AIM_IN_MEMORY),
            Subject::EngineWithRecords => None,
            Subject::EmbeddedWrite | Subject::EmbeddedFsync => Some(AIM_EMBEDDED),
        }
    }
}

/// Life cycles per second under one load.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Throughput {
    pub(crate) subject: Subject,
    pub(crate) clients: usize,
    pub(crate) waiting: usize,
    pub(crate) tenants: usize,
    pub(crate) in_flight: usize,
    pub(crate) cycles_per_second: f64,
    /// Of a naive queue, or of the bare disk.
    pub(crate) limit_per_second: f64,
}

#[derive(Debug, Serialize)]
struct Growth {
    subject: Subject,
    clients: usize,
    tenants: usize,
    in_flight: usize,
    /// The time of a life cycle with the most jobs waiting, as a multiple of that with the fewest.
    times: f64,
}

#[derive(Debug, Serialize)]
struct Memory {
    tenants: usize,
    bytes_per_waiting_job: f64,
}

/// Requests per second accepted over HTTP.
#[derive(Debug, Serialize)]
struct Enqueue {
    ack: &'static str,
    requests_per_second: f64,
    /// Of a server that reads the same and does nothing.
    bare_per_second: f64,
}

/// Round trips through the program and directly to the upstream.
#[derive(Debug, Serialize)]
struct RoundTrip {
    ack: &'static str,
    through: Times,
    direct: Times,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    throughput: Vec<Throughput>,
    growth: Vec<Growth>,
    memory: Vec<Memory>,
    enqueue: Vec<Enqueue>,
    round_trips: Vec<RoundTrip>,
    buckets: Option<Buckets>,
    direct: Option<Ways>,
    pub(crate) email: Option<Email>,
    pub(crate) redis: Option<RedisReport>,
}

impl Report {
    pub(crate) fn heading() {
        println!("Life cycles per second (enqueue + dispatch + settle, 200-byte payload, groups of 100)\n");
        println!(
            "{:<18} {:>7} {:>9} {:>8} {:>9} {:>11} {:>9}      {:>11} {:>5}",
            "subject", "clients", "waiting", "tenants", "in flight", "cycles/s", "aim", "limit", "of it"
        );
    }

    /// Prints and stores a figure; `limit` is that of a naive queue or of the bare disk.
    pub(crate) fn throughput(
        &mut self,
        subject: Subject,
        clients: usize,
        load: Load,
        cycles: f64,
        limit: f64,
    ) {
        let Load { waiting, tenants, in_flight } = load;
        let aim = subject.aim().map_or(String::new(), |aim| format!("{aim:>9.0} {}", verdict(cycles >= aim)));
        println!(
            "{:<18} {clients:>7} {waiting:>9} {tenants:>8} {in_flight:>9} {cycles:>11.0} {aim:<14} {limit:>11.0} {:>4.0}%",
            format!("{subject:?}"),
            cycles / limit * 100.0,
        );
        self.throughput.push(Throughput {
            subject,
            clients,
            waiting,
            tenants,
            in_flight,
            cycles_per_second: cycles,
            limit_per_second: limit,
        });
    }

    /// Compares the figures with few and with many waiting jobs.
    pub(crate) fn growth(&mut self) {
        println!("\nGrowth of the cost of a life cycle from {} to {} waiting jobs\n", WAITING[0], WAITING[1]);
        for few in self.throughput.iter().filter(|figure| figure.waiting == WAITING[0]) {
            let key =
                |figure: &Throughput| (figure.subject, figure.clients, figure.tenants, figure.in_flight);
            let same = |many: &&Throughput| many.waiting == WAITING[1] && key(many) == key(few);
            let Some(many) = self.throughput.iter().find(same) else { continue };
            let times = few.cycles_per_second / many.cycles_per_second;
            let (subject, clients, tenants, in_flight) = key(few);
            println!(
                "{:<18} {clients:>7} {tenants:>18} {in_flight:>9} {times:>10.2}x {AIM_GROWTH:>8.2}x {}",
                format!("{subject:?}"),
                verdict(times <= AIM_GROWTH)
            );
            self.growth.push(Growth { subject, clients, tenants, in_flight, times });
        }
        println!("\nMemory per waiting job beyond its payload\n");
    }

    pub(crate) fn memory(&mut self, tenants: usize, bytes: f64) {
        println!(
            "{tenants:>8} tenants {bytes:>7.0} bytes, aim {AIM_BYTES:.0} {}",
            verdict(bytes <= AIM_BYTES)
        );
        self.memory.push(Memory { tenants, bytes_per_waiting_job: bytes });
    }

    pub(crate) fn buckets(&mut self, buckets: Buckets) {
        let Buckets { decisions_per_second, governor_per_second, bytes, left_when_full } = buckets;
        println!(
            "\n{USERS} buckets of users: {decisions_per_second:.0} decisions/s, aim {AIM_DECISIONS:.0} {}, governor \
             {governor_per_second:.0}/s: {:.0}%; {bytes:.0} bytes each, {left_when_full} left when all are full",
            verdict(decisions_per_second >= AIM_DECISIONS),
            decisions_per_second / governor_per_second * 100.0
        );
        self.buckets = Some(buckets);
    }

    pub(crate) fn http_heading() {
        println!(
            "\nOver HTTP: jobs taken in per second (wrk, 64 connections) and round trips with Prefer: wait\n"
        );
    }

    pub(crate) fn enqueue(&mut self, ack: &'static str, [ours, bare]: [f64; 2]) {
        let share = ours / bare;
        println!(
            "enqueue {ack:<6} {ours:>8.0}/s, bare axum {bare:>8.0}/s: {:>3.0}%, aim {:.0}% {}",
            share * 100.0,
            AIM_OF_BARE * 100.0,
            verdict(share >= AIM_OF_BARE)
        );
        self.enqueue.push(Enqueue { ack, requests_per_second: ours, bare_per_second: bare });
    }

    pub(crate) fn round_trip(&mut self, ack: &'static str, [through, direct]: [Times; 2]) {
        let added = through.p50_ms - direct.p50_ms;
        println!(
            "round trip {ack:<6} p50 {:.2} ms (direct {:.2}), p99 {:.2} ms (direct {:.2}): {added:.2} ms added, \
             aim {AIM_ADDED_MS:.0} ms {}",
            through.p50_ms,
            direct.p50_ms,
            through.p99_ms,
            direct.p99_ms,
            verdict(added <= AIM_ADDED_MS)
        );
        self.round_trips.push(RoundTrip { ack, through, direct });
    }

    pub(crate) fn direct(&mut self, ways: Ways) {
        let Ways { eclusa, nginx, hyper, upstream } = ways;
        let (share, added) = (eclusa.per_second / nginx.per_second, eclusa.p50_ms - upstream.p50_ms);
        println!(
            "direct lane {:.0}/s, nginx {:.0}/s, bare hyper {:.0}/s, upstream {:.0}/s: {:.0}% of nginx, aim {:.0}% {}",
            eclusa.per_second,
            nginx.per_second,
            hyper.per_second,
            upstream.per_second,
            share * 100.0,
            AIM_OF_NGINX * 100.0,
            verdict(share >= AIM_OF_NGINX)
        );
        println!(
            "direct lane p50 {:.3} ms, nginx {:.3}, bare hyper {:.3}, upstream {:.3}: {added:.3} ms added, aim {AIM_DIRECT_ADDED_MS:.1} ms {}",
            eclusa.p50_ms,
            nginx.p50_ms,
            hyper.p50_ms,
            upstream.p50_ms,
            verdict(added <= AIM_DIRECT_ADDED_MS)
        );
        self.direct = Some(ways);
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, serde_json::to_string_pretty(self)? + "\n")
    }
}

pub(crate) const fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISS" }
}
