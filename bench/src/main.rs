//! Measures the program and its parts, and prints the figures with their targets.
//!
//! `cargo run --release -p eclusa-bench` measures everything and writes `bench/results.json`;
//! `… -- http` measures only the program over HTTP, `… -- direct` only direct lanes,
//! `… -- buckets` only a million buckets, `… -- email` only the mail lane, `… -- redis` only the Redis store;
//! `… -- engine WAITING TENANTS IN_FLIGHT`, `… -- redis WAITING TENANTS IN_FLIGHT OTHERS`, `… -- limiter`,
//! `… -- takeover WAITING` and `… -- write|fsync WAITING TENANTS` only run that load for a while, for a profiler to look at.
#![expect(clippy::cast_precision_loss, reason = "figures are rounded when shown")]

mod buckets;
mod disk;
mod email;
mod embedded;
mod engine;
mod http;
mod memory;
mod naive;
mod redis;
mod report;
mod timing;
mod workload;

use std::path::Path;
use std::{env, fs};

use eclusa::store::Ack;
use mimalloc::MiMalloc;

use crate::report::{Report, Subject};
use crate::workload::{IN_FLIGHT, Load, TENANTS, WAITING};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Why something cannot be measured.
type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [first, url] = arguments.as_slice()
        && first == redis::OWN
    {
        return redis::own(url);
    }
    if let [first, upstream] = arguments.as_slice()
        && first == http::PROXY
    {
        return http::serve_proxy(upstream);
    }
    let numbers = arguments.iter().skip(1).map(|text| text.parse()).collect::<Result<Vec<usize>, _>>()?;
    match (arguments.first().map(String::as_str), numbers.as_slice()) {
        (None, _) => measure_all(),
        (Some(memory::ARGUMENT), [tenants]) => {
            println!("{}", memory::measure_here(*tenants)?);
            Ok(())
        }
        (Some(buckets::ARGUMENT), []) => {
            let (bytes, left) = buckets::measure_memory_here()?;
            println!("{bytes} {left}");
            Ok(())
        }
        (Some("buckets"), []) => {
            let figures = buckets::measure()?;
            Report::default().buckets(figures);
            keep("buckets", figures)
        }
        (Some("engine"), [waiting, tenants, in_flight]) => {
            let load = Load { waiting: *waiting, tenants: *tenants, in_flight: *in_flight };
            println!("{:.0?}", engine::measure(load)?);
            Ok(())
        }
        (Some(ack @ ("write" | "fsync")), [waiting, tenants]) => {
            let ack = if ack == "write" { Ack::Write } else { Ack::Fsync };
            let dir = env::temp_dir().join("eclusa-bench");
            for rates in embedded::measure(&dir, ack, *waiting, *tenants)? {
                println!("{:?}: {:.0} with one client, {:.0} with all", rates.load, rates.one_client, rates.all_clients);
            }
            Ok(fs::remove_dir_all(&dir)?)
        }
        (Some("http"), []) => measure_http(&mut Report::default(), &env::temp_dir().join("eclusa-bench")),
        (Some("direct"), []) => {
            let ways = http::direct(&env::temp_dir().join("eclusa-bench"))?;
            Report::default().direct(ways);
            keep("direct", ways)
        }
        (Some("email"), []) => keep("email", email::measure(&env::temp_dir().join("eclusa-bench-email"))?),
        (Some("redis"), [waiting, tenants, in_flight, others]) => {
            let load = Load { waiting: *waiting, tenants: *tenants, in_flight: *in_flight };
            redis::measure_ours(load, *others)
        }
        (Some("limiter"), []) => redis::measure_limiter(),
        (Some("redis"), []) => keep("redis", redis::measure(&env::temp_dir().join("eclusa-bench-redis"))?),
        (Some("takeover"), [waiting]) => redis::measure_takeover(*waiting),
        (Some(http::BARE), []) => http::serve_bare(),
        (Some(http::UPSTREAM), []) => http::serve_upstream(),
        _ => {
            Err("usage: eclusa-bench [http | direct | buckets | email | redis | limiter | takeover WAITING | engine WAITING TENANTS IN_FLIGHT | redis WAITING TENANTS IN_FLIGHT OTHERS | write|fsync WAITING TENANTS]"
                .into())
        }
    }
}

/// Merges figures of a partial run into those of the last full run.
fn keep(part: &str, figures: impl serde::Serialize) -> Result<(), Failed> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("results.json");
    let mut results: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
    results[part] = serde_json::to_value(figures)?;
    Ok(fs::write(path, serde_json::to_string_pretty(&results)? + "\n")?)
}

fn measure_all() -> Result<(), Failed> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let data = here.join("data");
    let mut report = Report::default();
    // The first figure of a process is the worst, so it is not reported.
    engine::measure(Load { waiting: WAITING[0], tenants: TENANTS[0], in_flight: IN_FLIGHT[0] })?;
    Report::heading();
    measure_engine(&mut report)?;
    fs::create_dir_all(&data)?;
    measure_embedded(&mut report, Ack::Write, Subject::EmbeddedWrite, &data)?;
    measure_embedded(&mut report, Ack::Fsync, Subject::EmbeddedFsync, &data)?;
    fs::remove_dir_all(&data)?;
    report.growth();
    for tenants in TENANTS {
        report.memory(tenants, memory::measure(tenants)?);
    }
    report.buckets(buckets::measure()?);
    measure_http(&mut report, &data)?;
    report.email = Some(email::measure(&data.join("email"))?);
    report.redis = Some(redis::measure(&data.join("redis"))?);
    report.write(&here.join("results.json"))?;
    Ok(())
}

fn measure_http(report: &mut Report, data: &Path) -> Result<(), Failed> {
    Report::http_heading();
    for ack in ["fsync", "write"] {
        report.enqueue(ack, http::enqueue(&data.join(ack), ack)?);
    }
    for ack in ["fsync", "write"] {
        report.round_trip(
            ack,
            http::round_trip(&data.join(ack), &format!("url = \"embedded:./data\"\nack = \"{ack}\""), 1)?,
        );
    }
    report.direct(http::direct(&data.join("direct"))?);
    Ok(())
}

fn measure_engine(report: &mut Report) -> Result<(), Failed> {
    for waiting in WAITING {
        for tenants in TENANTS {
            for in_flight in IN_FLIGHT {
                let load = Load { waiting, tenants, in_flight };
                let naive = naive::measure(load)?;
                let [bare, with_records] = engine::measure(load)?;
                report.throughput(Subject::Engine, 1, load, bare, naive);
                report.throughput(Subject::EngineWithRecords, 1, load, with_records, naive);
            }
        }
    }
    Ok(())
}

fn measure_embedded(report: &mut Report, ack: Ack, subject: Subject, data: &Path) -> Result<(), Failed> {
    let bytes = engine::record_bytes()?;
    for waiting in WAITING {
        for tenants in TENANTS {
            let one_client_limit = disk::measure(data, ack, 1, bytes)?;
            let all_clients_limit = disk::measure(data, ack, embedded::CLIENTS, bytes)?;
            let store = data.join("store");
            for rates in embedded::measure(&store, ack, waiting, tenants)? {
                report.throughput(subject, 1, rates.load, rates.one_client, one_client_limit);
                report.throughput(
                    subject,
                    embedded::CLIENTS,
                    rates.load,
                    rates.all_clients,
                    all_clients_limit,
                );
            }
            fs::remove_dir_all(&store)?;
        }
    }
    Ok(())
}
