//! Bytes of memory per waiting job, in a separate process so that nothing else counts.

use std::process::Command;
use std::{env, fs, io};

use crate::Failed;
use crate::engine::Cycle;
use crate::timing::median;
use crate::workload::{Load, PAYLOAD};

/// The argument that makes this program measure itself.
pub(crate) const ARGUMENT: &str = "memory";

const JOBS: usize = 1_000_000;

/// Bytes per waiting job beyond its payload.
pub(crate) fn measure(tenants: usize) -> Result<f64, Failed> {
    median(|| {
        let child = Command::new(env::current_exe()?).args([ARGUMENT, &tenants.to_string()]).output()?;
        let answer = String::from_utf8_lossy(&child.stdout).trim().parse();
        answer.map_err(|_| String::from_utf8_lossy(&child.stderr).into_owned().into())
    })
}

/// The main function of the separate process.
pub(crate) fn measure_here(tenants: usize) -> Result<f64, Failed> {
    drop(Cycle::new(Load { waiting: 0, tenants, in_flight: 0 })?);
    let before = resident()?;
    let cycle = Cycle::new(Load { waiting: JOBS, tenants, in_flight: 0 })?;
    let grown = resident()?.saturating_sub(before);
    drop(cycle);
    Ok(grown as f64 / JOBS as f64 - PAYLOAD as f64)
}

/// The resident memory of this process in bytes.
pub(crate) fn resident() -> Result<usize, Failed> {
    const PAGE: usize = 4_096;
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    let unreadable = || io::Error::other("/proc/self/statm cannot be read");
    Ok(pages.ok_or_else(unreadable)? * PAGE)
}
