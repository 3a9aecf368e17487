//! How many mails and dead letters fit into the memory that the requirements give Redis.

use std::fs;
use std::path::Path;

use eclusa_core::{DeadLetterSpec, Span};

use crate::Failed;
use crate::redis::{By, Lives, Queue, RedisServer};
use crate::workload::{Workload, spec_with, tenants};

/// The memory of Redis and the size of mails, from the requirements.
const MEMORY: f64 = 512.0 * 1024.0 * 1024.0;
const MAIL_BYTES: usize = 2_048;
/// The number of each: enough that the journal's overhead over live data does not matter.
const MEASURED: usize = 100_000;
const TENANTS: usize = 100;

#[derive(Debug, serde::Serialize)]
pub(crate) struct Capacity {
    pub(crate) bytes_per_job: f64,
    pub(crate) jobs: f64,
    pub(crate) bytes_per_letter: f64,
    pub(crate) letters: f64,
}

/// A lane like the one of `examples/email.toml`, which keeps no finished jobs.
pub(crate) fn measure(dir: &Path) -> Result<Capacity, Failed> {
    let dir = dir.join("redis");
    let server = RedisServer::start(&dir)?;
    let letters = DeadLetterSpec::new(Span::from_secs(7 * 86_400), MEASURED as u64)?;
    let spec = spec_with(|lane| (lane.keep.max, lane.dead_letters) = (0, Some(letters)))?;
    let per_one = |grow: &dyn Fn(&mut Lives) -> Result<(), Failed>| {
        server.flush()?;
        let workload = Workload::new(tenants(TENANTS), 0)?.with_payload(MAIL_BYTES).with_words();
        let mut lives = Lives::of(&server.url(), &spec, By::Owner, workload)?;
        let before = server.used_memory()?;
        grow(&mut lives)?;
        Ok::<_, Failed>((server.used_memory()? - before) / MEASURED as f64)
    };
    let bytes_per_job = per_one(&|lives| lives.fill(MEASURED))?;
    let bytes_per_letter = per_one(&|lives| lives.bury(MEASURED))?;
    drop(server);
    fs::remove_dir_all(&dir)?;
    let (jobs, letters) = (MEMORY / bytes_per_job, MEMORY / bytes_per_letter);
    Ok(Capacity { bytes_per_job, jobs, bytes_per_letter, letters })
}
