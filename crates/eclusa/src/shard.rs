//! Shards: what each thread of the HTTP server keeps for itself, such as connections to upstreams, so that a request never
//! waits for another thread.
//!
//! All other threads of the program share shard 0.

use std::cell::Cell;
use std::num::NonZero;
use std::thread::available_parallelism;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Threads of the HTTP server: one for each core.
pub(crate) fn server_threads() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// How many shards there are.
pub(crate) fn count() -> usize {
    server_threads() + 1
}

/// The shard of this thread.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

/// Makes this thread the one of `shard`.
pub(crate) fn enter(shard: usize) {
    CURRENT.set(shard);
}
