//! How many mails and dead letters fit into the memory that the source gives Redis.

use std::fs;
use std::path::Path;

use crate::Failed;
use crate::redis::{By, Lives, Queue, RedisServer};

/// What the source gives Redis, and what it takes for the size of a waiting job and of a dead letter.
const MEMORY: f64 = 512.0 * 1024.0 * 1024.0;
const JOB_BYTES: usize = 2_048;
const LETTER_BYTES: usize = 3_072;
/// Of each. Lanes keep ten thousand dead letters unless they are told otherwise.
const MEASURED: usize = 10_000;
const TENANTS: usize = 100;

#[derive(Debug, serde::Serialize)]
pub(crate) struct Capacity {
    pub(crate) bytes_per_job: f64,
    pub(crate) jobs: f64,
    pub(crate) bytes_per_letter: f64,
    pub(crate) letters: f64,
}

/// Payloads are random text, which cannot be compressed; mail can.
pub(crate) fn measure(dir: &Path) -> Result<Capacity, Failed> {
    let dir = dir.join("redis");
    let server = RedisServer::start(&dir)?;
    let per_one = |payload, grow: &dyn Fn(&mut Lives) -> Result<(), Failed>| {
        server.flush()?;
        let mut lives = Lives::new(&server.url(), TENANTS, By::Owner, payload)?;
        let before = server.used_memory()?;
        grow(&mut lives)?;
        Ok::<_, Failed>((server.used_memory()? - before) / MEASURED as f64)
    };
    let bytes_per_job = per_one(JOB_BYTES, &|lives| lives.fill(MEASURED))?;
    let bytes_per_letter = per_one(LETTER_BYTES, &|lives| lives.bury(MEASURED))?;
    drop(server);
    fs::remove_dir_all(&dir)?;
    let (jobs, letters) = (MEMORY / bytes_per_job, MEMORY / bytes_per_letter);
    Ok(Capacity { bytes_per_job, jobs, bytes_per_letter, letters })
}
