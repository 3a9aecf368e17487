//! The threads on which connections live: one for each core, each with its own runtime.
//!
//! A request, the connection it came by and the connection to its upstream stay on one thread, so none of them has to wake
//! another thread. The rest of the program runs elsewhere.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::life::LAST_THREADS_WAIT;
use crate::shard;

/// Runs connections, and what their requests started, until it is dropped.
pub(crate) struct Threads {
    running: Vec<(Handle, JoinHandle<()>)>,
    next: AtomicUsize,
    end: CancellationToken,
}

impl Threads {
    pub(crate) fn start() -> io::Result<Self> {
        let end = CancellationToken::new();
        let threads = (1..=shard::server_threads()).map(|shard| start(shard, end.clone()));
        Ok(Self { running: threads.collect::<io::Result<_>>()?, next: AtomicUsize::new(0), end })
    }

    /// The thread for the next connection, in turn.
    pub(super) fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.running[turn % self.running.len()].0
    }
}

fn start(shard: usize, end: CancellationToken) -> io::Result<(Handle, JoinHandle<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let run = move || {
        shard::enter(shard);
        runtime.block_on(end.cancelled());
        runtime.shutdown_timeout(LAST_THREADS_WAIT);
    };
    Ok((handle, thread::Builder::new().name(format!("eclusa-http-{shard}")).spawn(run)?))
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end.cancel();
        for (_, thread) in self.running.drain(..) {
            drop(thread.join());
        }
    }
}
