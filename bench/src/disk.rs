//! The physical limit of the disk: the same bytes appended to a plain file.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use eclusa::store::Ack;

use crate::timing::{now, per_second};
use crate::workload::GROUP;

/// Life cycles a second if `clients` in step did nothing but append: each verb of all of them is one write of
/// `bytes` per client.
pub(crate) fn measure(dir: &Path, ack: Ack, clients: usize, bytes: usize) -> io::Result<f64> {
    const VERBS: f64 = 3.0;
    let path = dir.join("plain");
    let mut file = File::create(&path)?;
    let chunk = vec![b'x'; bytes * clients];
    let writes = per_second(|| {
        let start = now();
        file.write_all(&chunk)?;
        if matches!(ack, Ack::Fsync) {
            file.sync_data()?;
        }
        Ok::<_, io::Error>(now() - start)
    })?;
    std::fs::remove_file(path)?;
    Ok(writes * (clients * GROUP) as f64 / VERBS)
}
