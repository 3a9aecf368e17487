//! Whose turn it is among those who wait for leave to call an upstream.
//!
//! They stand in one line per upstream, first come, first served. Only the first of a line asks the store; the others
//! wait for their turn, so that none of them can be overtaken by one that happens to ask at the right moment.

use std::collections::BTreeMap;

use eclusa_core::Name;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::Config;

/// One line for each upstream.
#[derive(Debug)]
pub(crate) struct Turns(BTreeMap<Name, Semaphore>);

impl Turns {
    /// Lines for all upstreams of `config`.
    pub(crate) fn new(config: &Config) -> Self {
        Self(config.upstreams.keys().map(|upstream| (upstream.clone(), Semaphore::new(1))).collect())
    }

    /// Returns when all who came before have had their turn or gone. The turn ends when the answer is dropped.
    pub(crate) async fn next(&self, upstream: &Name) -> Option<SemaphorePermit<'_>> {
        self.0.get(upstream)?.acquire().await.ok()
    }
}
