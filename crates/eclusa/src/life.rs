//! The life of the process: what runs, and how it is told to end.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use eclusa_core::StoreError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clients::Uploads;
use crate::run_to_completion::RunToCompletion;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Calls under way, and what must be told of them.
    pub(crate) running: TaskTracker,
    /// Set when the process was asked to stop: it goes on as usual for `server.drain`, but is not ready any more.
    pub(crate) draining: CancellationToken,
    /// Bodies of requests that are being received.
    pub(crate) uploads: Uploads,
    /// Those of webhooks, which need no key.
    pub(crate) webhooks: Uploads,
    /// Set when nothing new is to be begun.
    pub(crate) stopping: CancellationToken,
    /// Set when calls under way can be waited for no longer.
    pub(crate) aborting: CancellationToken,
    /// Jobs that went back to their line because they could be waited for no longer.
    pub(crate) handed_back: AtomicUsize,
    /// Set when nothing runs any more.
    pub(crate) finished: CancellationToken,
    /// Set when the process cannot go on.
    pub(crate) broken: CancellationToken,
    /// Why it cannot go on was said.
    failed: AtomicBool,
}

impl Life {
    /// Does `work` to its end even if whoever asked for it goes away meanwhile: what a verb did must be told and undone in
    /// any case.
    pub(crate) async fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        RunToCompletion::new(self.running.track_future(work)).await
    }

    /// The process can keep no promise any more, so it ends. Says whether that is new.
    pub(crate) fn fail(&self) -> bool {
        let new = !self.failed.swap(true, Ordering::Relaxed);
        self.broken.cancel();
        self.stopping.cancel();
        new
    }
}
