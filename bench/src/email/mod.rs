//! The figures that the requirements of the mail lane state for its predecessor, compared with ours.

mod capacity;
mod latency;

use std::path::Path;

use crate::Failed;
use crate::engine;
use crate::report::verdict;
use crate::workload::Load;

/// The figures of the predecessor.
const SOURCE_P50_MS: f64 = 50.0;
const SOURCE_P95_MS: f64 = 250.0;
const SOURCE_JOBS: f64 = 250_000.0;
const SOURCE_LETTERS: f64 = 170_000.0;
const SOURCE_FAIRNESS_US: f64 = 5_000.0;

/// The numbers of tenants that are compared.
const TENANTS: [usize; 2] = [1, 1_000];
/// Mails that wait meanwhile.
const WAITING: usize = 10_000;

/// The figures.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Email {
    /// From intake until an SES-like server has the mail, without a retry.
    latency: latency::Times,
    /// Mails of 2 KB that wait, and dead letters of such mails, in 512 MB of Redis.
    capacity: capacity::Capacity,
    fairness: Vec<Turns>,
}

/// The cost of one job when this many tenants take turns.
#[derive(Debug, serde::Serialize)]
struct Turns {
    tenants: usize,
    us_per_job: f64,
}

/// Measures everything and prints it.
pub(crate) fn measure(dir: &Path) -> Result<Email, Failed> {
    println!("Mail, beside what the source says of itself\n");
    let latency = latency::measure(dir)?;
    println!(
        "intake to accepted by SES p50 {:.2} ms ({SOURCE_P50_MS:.0}) {}, p95 {:.2} ms ({SOURCE_P95_MS:.0}) {}",
        latency.p50_ms,
        verdict(latency.p50_ms <= SOURCE_P50_MS),
        latency.p95_ms,
        verdict(latency.p95_ms <= SOURCE_P95_MS)
    );
    let capacity = capacity::measure(dir)?;
    println!(
        "in 512 MB of Redis {:.0} waiting mails of 2 KB ({SOURCE_JOBS:.0}) {}, {:.0} dead letters ({SOURCE_LETTERS:.0}) {}",
        capacity.jobs,
        verdict(capacity.jobs >= SOURCE_JOBS),
        capacity.letters,
        verdict(capacity.letters >= SOURCE_LETTERS)
    );
    let mut fairness = Vec::new();
    for tenants in TENANTS {
        // Fairness is a part of the total cost, which is therefore an upper bound for it.
        let [cycles, _] = engine::measure(Load { waiting: WAITING, tenants, in_flight: 10 })?;
        let us_per_job = 1e6 / cycles;
        println!(
            "life of a job in the engine, {tenants} tenants: {us_per_job:.2} µs (fairness alone {SOURCE_FAIRNESS_US:.0} µs) {}",
            verdict(us_per_job <= SOURCE_FAIRNESS_US)
        );
        fairness.push(Turns { tenants, us_per_job });
    }
    Ok(Email { latency, capacity, fairness })
}
